"""The store dies, freezes, forgets, and comes back: FAULTS 39 to 46."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from forebay.coordination.store import keys
from forebay.coordination.store.valkey import ValkeyStore
from forebay.core import Cancelled, Finished
from harness.fleet.link import Link
from harness.valkey_server import ValkeyServer

from ..crew import LEASE_S, TWO_SLOTS, Crew, arrivals, filled, until

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOW_S = 3.0
"""A lease with time to announce: who comes too late is not waited for, and its slot given away."""


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    """A server that a test may break."""
    with ValkeyServer() as server:
        yield server


@pytest.mark.parametrize("fault", ["killed", "frozen"])
async def test_without_the_store_each_uses_its_share_and_refuses_the_rest(
    server: ValkeyServer, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Crew(server.url, 2) as crew:
        await filled(crew)
        if fault == "killed":
            server.stop()
        else:
            server.freeze()
        await crew.all_are("alone")
        first, second = crew.hands
        first.post(*arrivals("e"))
        assert first.refused == ["coordination_lost"]
        first.post(Finished("a"))
        assert first.routed == ["a", "c"]  # its own slot, by its own line
        second.post(Finished("b"), Finished("d"), *arrivals("f"))
        assert second.routed == ["b", "d", "f"]
        snapshot = await first.snapshot()
        assert (snapshot.running, snapshot.waiting) == (1, 0)
        assert snapshot.totals.served == 1
        lost = [record for record in caplog.records if "continuing standalone" in record.message]
        assert len(lost) == 2  # one line for each replica
        if fault == "frozen":
            server.thaw()
        else:
            server.start()
        await crew.settled()
        snapshot = await second.snapshot()
        assert (snapshot.running, snapshot.waiting) == (2, 0)
        assert snapshot.totals.served == 3  # what each of them served alone
        first.post(Finished("c"))
        second.post(Finished("f"))
        back = [record for record in caplog.records if record.message == "store reachable again"]
        assert len(back) == 2


async def test_a_slow_store_is_given_up_and_used_again_when_it_is_fast(
    server: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    link = await Link.to(server.port)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(link.stop)
        crew = await stack.enter_async_context(Crew(f"redis://127.0.0.1:{link.port}/0", 2))
        await filled(crew)
        link.delay_s = 0.08  # there, and as much back: more than a call may take, less than all
        await crew.all_are("alone")
        first, second = crew.hands
        first.post(Finished("a"), *arrivals("e"))
        assert first.routed == ["a", "c"]
        assert first.refused == ["coordination_lost"]
        tried = first.store.calls + 10  # it connects, and is not taken for well because of that
        await until(lambda: first.mode != "alone" or first.store.calls >= tried)
        assert first.mode == "alone"
        link.delay_s = 0.0
        await crew.settled()
        second.post(Finished("b"))
        await until(lambda: second.routed == ["b", "d"])
        said = [one.message for one in caplog.records if one.levelname == "WARNING"]
        assert sum("continuing standalone" in one for one in said) == 2
        assert said.count("store reachable again") == 2


async def test_a_store_that_comes_back_empty_finds_everything_in_its_old_order(
    server: ValkeyServer,
) -> None:
    async with Crew(server.url, 2, lease_s=SLOW_S) as crew:
        await filled(crew)
        epoch = crew.leader.replica.epoch
        server.stop()
        server.start()
        await until(lambda: all(hand.replica.epoch > epoch for hand in crew.hands))
        await crew.settled()
        first, second = crew.hands
        snapshot = await first.snapshot()
        assert (snapshot.running, snapshot.waiting) == (2, 2)
        first.post(Finished("a"))
        await until(lambda: first.routed == ["a", "c"])  # the older of the two that wait
        second.post(Finished("b"))
        await until(lambda: second.routed == ["b", "d"])
        assert first.refused == second.refused == []


async def test_a_store_that_forgets_its_scripts_is_told_them_again(server: ValkeyServer) -> None:
    async with Crew(server.url, 2) as crew:
        crew.everyone(TWO_SLOTS)
        await crew.settled()
        epoch = crew.leader.replica.epoch
        with Redis.from_url(server.url) as client:
            client.script_flush()
        hand = crew.follower
        for name in "abc":
            hand.post(*arrivals(name))
        await until(lambda: hand.routed == ["a", "b"])
        hand.post(Finished("a"))
        await until(lambda: hand.routed == ["a", "b", "c"])
        assert {one.replica.epoch for one in crew.hands} == {epoch}
        assert {one.mode for one in crew.hands} == {"coordinated"}


async def test_connections_that_the_store_cuts_are_made_again(server: ValkeyServer) -> None:
    async with Crew(server.url, 2) as crew:
        crew.everyone(TWO_SLOTS)
        await crew.settled()
        hand = crew.follower
        for number in range(5):
            with Redis.from_url(server.url) as client:
                client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            hand.post(*arrivals(f"r{number}"))
            await until(lambda number=number: f"r{number}" in hand.routed)  # type: ignore[misc]
            hand.post(Finished(f"r{number}"))
        await crew.settled()


async def test_a_leader_that_cannot_write_any_more_loses_nothing(server: ValkeyServer) -> None:
    async with Crew(server.url, 2, lease_s=SLOW_S) as crew:
        await filled(crew)
        with Redis.from_url(server.url) as client:
            client.replicaof("127.0.0.1", 1)  # a replica of nobody: every write is READONLY
            await crew.all_are("alone")
            client.replicaof("NO", "ONE")
        await crew.settled()
        snapshot = await crew.follower.snapshot()
        assert (snapshot.running, snapshot.waiting) == (2, 2)


async def test_a_cancelled_call_never_gives_its_reply_to_another(server: ValkeyServer) -> None:
    store = ValkeyStore(server.url, LEASE_S)
    chance = random.Random(7)
    client = store._client

    async def ask(number: int) -> None:
        assert await client.execute_command("ECHO", f"n{number}") == f"n{number}".encode()

    for number in range(3000):
        asked = asyncio.ensure_future(ask(number))
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(0)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        if not asked.cancelled():
            asked.result()
        if number % 10 == 0:
            await ask(-number)
    await store.close()


async def test_a_ticket_given_up_while_nobody_leads_is_not_announced(server: ValkeyServer) -> None:
    async with Crew(server.url, 2) as crew:
        await filled(crew)
        server.stop()
        await crew.all_are("alone")
        first, second = crew.hands
        first.replica.post(Cancelled("c"))
        server.start()
        await crew.settled()
        snapshot = await second.snapshot()
        assert (snapshot.running, snapshot.waiting) == (2, 1)
        first.post(Finished("a"))
        await until(lambda: second.routed == ["b", "d"])


async def test_a_store_that_is_full_is_as_good_as_gone(
    server: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody may take a lease there: under it nothing could be sent."""
    async with Crew(server.url, 2) as crew:
        await filled(crew)
        epoch = crew.leader.replica.epoch
        with Redis.from_url(server.url) as client:
            client.config_set("maxmemory", "1")
            await crew.all_are("alone")
            for _ in range(30):  # longer than a lease: the others are forgotten by then
                await asyncio.sleep(LEASE_S / 10)
                assert [hand.mode for hand in crew.hands] == ["alone", "alone"]
            client.config_set("maxmemory", "0")
        await crew.settled()
        assert crew.leader.replica.epoch == epoch + 1
        lost = [record for record in caplog.records if "continuing standalone" in record.message]
        assert len(lost) == 2


async def test_an_entry_of_somebody_else_does_not_stop_the_leader_from_reading(
    server: ValkeyServer,
) -> None:
    async with Crew(server.url, 2) as crew:
        crew.everyone(TWO_SLOTS)
        await crew.settled()
        with Redis.from_url(server.url) as client:
            client.xadd(keys.up(crew.leader.replica.epoch), {"other": b"?"})
        crew.follower.post(*arrivals("a", "b"))
        await until(lambda: crew.follower.routed == ["a", "b"])


@pytest.mark.parametrize("option", ["decode_responses=true", "protocol=3"])
async def test_options_of_the_driver_that_change_its_answers_do_not(
    server: ValkeyServer, option: str
) -> None:
    async with Crew(f"{server.url}?{option}", 2) as crew:
        await filled(crew)
