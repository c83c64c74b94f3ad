"""Replicas that never met the others, cannot hear them, or have nothing to offer without them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from forebay.coordination.protocol.messages import About, Announced, ReplicaBatch, encode
from forebay.coordination.store import keys
from forebay.coordination.store_tasks import ALL_STANDALONE, PARTITIONED
from forebay.core import NodeChanged, Options
from harness.valkey_server import ValkeyServer, free_port

from .crew import PATIENCE_S, TWO_SLOTS, Crew, Hand, arrivals, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from forebay.coordination.store.port import StreamEntry

ONE_SLOT = NodeChanged("gpu1", slots=1, models=("llama",))


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


async def test_a_gateway_that_never_reached_the_store_starts_nothing() -> None:
    hand = Hand(f"redis://127.0.0.1:{free_port()}/0", 1, Options())
    await hand.replica.start()
    hand.post(TWO_SLOTS, *arrivals("a"))
    assert hand.mode == "cut_off"
    assert hand.refused == ["coordination_lost"]
    hand.replica.submit(partial(hand.replica.roles.set_cut_off, False))  # nobody else answers
    hand.post(*arrivals("b"))
    assert (hand.mode, hand.routed) == ("cut_off", [])
    await hand.replica.close()


async def test_a_store_that_goes_is_one_line_even_for_the_leader(
    server: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with Crew(server.url, 2, lease_s=100 * PATIENCE_S) as crew:
        await crew.settled()
        caplog.clear()
        server.stop()
        await crew.all_are("alone")
        said = [one.getMessage() for one in caplog.records if one.name == "forebay.coordination"]
        assert said == ["store unreachable: continuing standalone"] * 2


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ((True, False, False), []),
        ((True, True, True), [PARTITIONED]),
        ((True, True, False, False), [PARTITIONED, ALL_STANDALONE]),
    ],
)
async def test_being_cut_off_is_told_when_others_still_have_a_leader_at_the_second_look(
    server: ValkeyServer,
    caplog: pytest.LogCaptureFixture,
    answers: tuple[bool, ...],
    told: list[str],
) -> None:
    async with Crew(server.url, 1, lease_s=0.6) as crew:
        (hand,) = crew.hands
        asked: list[bool] = []

        async def ask_peers(_: Sequence[str]) -> bool:
            asked.append(answers[min(len(asked), len(answers) - 1)])
            return asked[-1]

        hand.replica.ask_peers = ask_peers
        server.stop()
        await until(lambda: len(asked) > len(answers))
        said = [one.getMessage() for one in caplog.records if one.name == "forebay.coordination"]
        assert [words for words in said if words in (PARTITIONED, ALL_STANDALONE)] == told


async def test_a_gateway_that_cannot_hear_the_others_leaves_them_its_slots(
    server: ValkeyServer,
) -> None:
    with Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "deaf", "on", ">x", "~*", "+@all", "-xread")
    async with Crew(server.url, 1) as crew:
        crew.everyone(TWO_SLOTS)
        await crew.settled()
        deaf = Hand(server.url.replace("redis://", "redis://deaf:x@"), 7, Options())
        await deaf.replica.start()
        deaf.post(TWO_SLOTS, *arrivals("x", "y"))
        await until(lambda: deaf.mode in ("alone", "cut_off"))
        await until(lambda: len(crew.leader.replica.statuses()[1]) == 1)
        crew.leader.post(*arrivals("a", "b"))
        await until(lambda: crew.leader.routed == ["a", "b"])
        await deaf.replica.close()


async def test_what_was_said_to_a_leader_is_not_for_the_one_it_is_next(valkey_url: str) -> None:
    ghost = About("ffffffff-1")
    crew = Crew(valkey_url, 1, lease_s=100 * PATIENCE_S)
    (hand,) = crew.hands
    honest, asked = hand.store.read_up, list[int]()

    async def read_up(epoch: int, after: bytes, wait_s: float) -> list[StreamEntry]:
        asked.append(epoch)
        entries = await honest(epoch, after, wait_s)
        if entries and epoch == asked[0]:  # it takes so long that the lease is lost, and taken anew
            await hand.store._client.delete(keys.LEASE)
            hand.replica._store_tasks.heartbeat_now()
            await until(lambda: hand.replica.epoch > epoch)
        return entries

    hand.store.read_up = read_up  # type: ignore[method-assign] # slowed down
    async with crew:
        await until(lambda: bool(asked))
        batch = ReplicaBatch(ghost.member, 1, 0, (Announced(ghost),))
        await hand.store.send_up(asked[0], [encode(batch)])
        await until(lambda: asked[-1] > asked[0])
        assert [one.about for one in hand.replica.statuses()[1]] == [hand.replica.about]
