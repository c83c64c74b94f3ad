"""Replicas that never met the others, cannot hear them, or have nothing to offer without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from redis import Redis

from coordination.pair import new_follower
from forebay.coordination.follower.standalone import Standalone
from forebay.coordination.protocol.messages import About, Announced, ReplicaBatch, encode
from forebay.coordination.store import keys
from forebay.coordination.store_tasks import ALL_STANDALONE, PARTITIONED
from forebay.core import Arrived, NodeChanged, Options, OptionsChanged, Reject, Resumed
from harness.valkey_server import ValkeyServer, free_port

from .crew import PATIENCE_S, TWO_SLOTS, Crew, Hand, arrivals, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from forebay.coordination.follower.follower import Follower
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
    hand.replica.on_peers_polled(cut_off=False)  # nobody else answers either
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


def follower(me: str, *others: str) -> Follower:
    """Return a replica that has just lost the store, with one node of one slot."""
    follower = new_follower(me, Options())
    follower.post(ONE_SLOT, 0.0)
    follower.join(1, others[0], 0.0)
    follower.members = (me, *others)
    return follower


def test_of_two_that_share_one_slot_the_one_without_it_is_not_ready() -> None:
    two = follower("aaaaaaaa-1", "bbbbbbbb-1"), follower("bbbbbbbb-1", "aaaaaaaa-1")
    refused = []
    for one in two:
        one.go_standalone(1.0)
        refused.append(isinstance(one.post(Arrived("a", "llama"), 1.0)[0], Reject))
    assert sorted(one.mode for one in two) == ["alone", "cut_off"]
    assert sorted(refused) == [False, True]


def test_new_limits_hold_for_those_who_are_alone_and_make_no_line() -> None:
    alone = Standalone("aaaaaaaa-1", (), Options(wait_s_max=60.0))
    alone.begin({"gpu1": ONE_SLOT}, [], 0.0)
    alone.handle(Resumed(Arrived("r", "llama"), 1, node="gpu1", attempt=1), 0.0)
    alone.handle(OptionsChanged(Options(wait_s_max=2.0)), 0.0)
    alone.handle(Resumed(Arrived("w", "llama"), 2), 0.0)
    assert alone.next_deadline_s() == 2.0
    (refused,) = alone.handle(Arrived("n", "llama"), 0.0)
    assert isinstance(refused, Reject)
    assert refused.code == "coordination_lost"


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
