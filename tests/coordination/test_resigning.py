"""A leader that is told to stop: the next one begins at once, and forgets nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from forebay.coordination.store.port import StoreLost
from forebay.core import Finished, ShutDown

from .crew import PATIENCE_S, TWO_SLOTS, Crew, Hand, arrivals, until

if TYPE_CHECKING:
    from collections.abc import Sequence

LONG_S = 100 * PATIENCE_S
"""A lease of which no part may be waited for."""


def resign(hand: Hand) -> None:
    """Do what a gateway does on SIGTERM."""
    hand.post(ShutDown())
    hand.replica.resign()


def fall_silent_after_the_last_words(hand: Hand) -> None:
    """Hear nothing of the next leader, and announce nothing to it."""
    honest = hand.store.send_down

    async def send_down(
        token: str, payloads: Sequence[tuple[str, bytes]], *, last: bool = False
    ) -> bool:
        sent = await honest(token, payloads, last=last)
        if last:
            hand.replica.stop()
        return sent

    hand.store.send_down = send_down  # type: ignore[method-assign] # listened to


async def test_one_that_has_nothing_left_is_not_waited_for(valkey_url: str) -> None:
    async with Crew(valkey_url, 3, lease_s=LONG_S) as crew:
        crew.everyone(TWO_SLOTS)
        await crew.settled()
        first = crew.leader
        staying = [hand for hand in crew.hands if hand is not first]
        staying[0].post(*arrivals("a", "b", "c"))
        await until(lambda: len(staying[0].actions) == 3)
        fall_silent_after_the_last_words(first)
        resign(first)
        staying[0].post(Finished("a"))
        await until(lambda: staying[0].routed == ["a", "b", "c"])
        assert any(hand.replica.leads for hand in staying)


async def test_what_it_has_running_keeps_its_slots_under_the_next(valkey_url: str) -> None:
    async with Crew(valkey_url, 2, lease_s=LONG_S) as crew:
        crew.everyone(TWO_SLOTS)
        await crew.settled()
        first, other = crew.leader, crew.follower
        first.post(*arrivals("a", "b"))
        await until(lambda: first.routed == ["a", "b"])
        resign(first)
        await until(lambda: other.replica.leads and len(other.replica.statuses()[1]) == 2)
        other.post(*arrivals("c"))
        seen = await other.snapshot()
        assert [(node.in_flight, node.slots) for node in seen.nodes] == [(2, 2)]
        assert other.routed == []
        first.post(Finished("a"))
        await until(lambda: other.routed == ["c"])


async def test_one_that_is_closed_at_once_has_still_said_so(valkey_url: str) -> None:
    for told in (True, False):
        async with Crew(valkey_url, 2, lease_s=LONG_S) as crew:
            await crew.settled()
            first, other = crew.leader, crew.follower
            if told:
                resign(first)
            await first.replica.close()
            await until(lambda other=other: other.replica.leads)  # type: ignore[misc]


@pytest.mark.parametrize("how", ["resigns", "is closed"])
async def test_last_words_that_were_not_heard_are_said_again(valkey_url: str, how: str) -> None:
    async with Crew(valkey_url, 2, lease_s=LONG_S) as crew:
        await crew.settled()
        first, other = crew.leader, crew.follower
        honest, lost = first.store.send_down, asyncio.Event()

        async def send_down(
            token: str, payloads: Sequence[tuple[str, bytes]], *, last: bool = False
        ) -> bool:
            if last and not lost.is_set():
                lost.set()
                raise StoreLost("gone for a moment")
            return await honest(token, payloads, last=last)

        first.store.send_down = send_down  # type: ignore[method-assign] # listened to
        if how == "resigns":
            resign(first)
        else:
            await first.replica.close()
        await until(lambda: other.replica.leads)
        assert lost.is_set()


async def test_what_a_follower_had_is_free_when_it_has_closed(valkey_url: str) -> None:
    async with Crew(valkey_url, 2, lease_s=LONG_S) as crew:
        crew.everyone(TWO_SLOTS)
        await crew.settled()
        leader, other = crew.leader, crew.follower
        other.post(*arrivals("a", "b"))
        await until(lambda: other.routed == ["a", "b"])
        other.post(ShutDown(), Finished("a"), Finished("b"))
        await other.replica.close()
        leader.post(*arrivals("c", "d"))
        await until(lambda: leader.routed == ["c", "d"])
        await until(lambda: len(leader.replica.statuses()[1]) == 1)


async def test_one_that_nobody_waits_for_any_more_closes_its_connections(valkey_url: str) -> None:
    async with Crew(valkey_url, 1, lease_s=LONG_S) as crew:
        (hand,) = crew.hands
        honest, said, closed = hand.store.close, asyncio.Event(), asyncio.Event()

        async def leave(member: str) -> None:
            assert member == hand.replica.about.member
            said.set()
            await asyncio.Event().wait()

        async def close() -> None:
            await honest()
            closed.set()

        hand.store.leave = leave  # type: ignore[method-assign] # it hangs
        hand.store.close = close  # type: ignore[method-assign] # listened to
        closing = asyncio.create_task(hand.replica.close())
        await said.wait()
        closing.cancel()
        await asyncio.wait([closing])
        try:
            assert closing.cancelled()
            assert closed.is_set()
        finally:
            await honest()
