"""Workers that die, hang and come back: what their requests see. Real sockets, the real clock."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from forebay.clock import LoopClock
from forebay.coordination.workers.store import LEASE_S
from forebay.core import (
    Action,
    Arrived,
    Cancelled,
    Event,
    Finished,
    NodeChanged,
    Observed,
    Options,
    Reject,
    Route,
    Snapshot,
    Wait,
)
from harness.worker_group import GroupRig

from ..crew import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from harness.worker_group import LocalWorker

NODE = NodeChanged("gpu1", slots=1, models=("llama",))
MANY = NodeChanged("gpu1", slots=8, models=("llama",))


class Hand:
    """One worker, with what it was told to do."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.worker: LocalWorker

    def post(self, *events: Event) -> None:
        for event in events:
            self.worker.replica.post(event)

    @property
    def leads(self) -> bool:
        return self.worker.replica.leads

    @property
    def routed(self) -> list[str]:
        return [action.id for action in self.actions if isinstance(action, Route)]

    @property
    def waiting(self) -> list[str]:
        return [action.id for action in self.actions if isinstance(action, Wait)]

    async def snapshot(self) -> Snapshot:
        before = len(self.actions)
        self.post(Observed())
        await until(lambda: any(isinstance(a, Snapshot) for a in self.actions[before:]))
        return next(a for a in self.actions[before:] if isinstance(a, Snapshot))


class Group:
    """Workers of one parent."""

    def __init__(self, directory: Path) -> None:
        self.rig = GroupRig(directory)
        self.hands: list[Hand] = []

    async def start(self, node: NodeChanged = NODE) -> Hand:
        hand = Hand()
        number = len(self.hands)
        clock = LoopClock(asyncio.get_running_loop())
        hand.worker = await self.rig.start(number, Options(), hand.actions.append, clock)
        await hand.worker.replica.start()
        hand.post(node)
        self.hands.append(hand)
        await self.settled()
        return hand

    async def settled(self) -> None:
        """Wait until one leads, and knows of all."""

        def settled() -> bool:
            leading = [hand for hand in self.hands if hand.leads]
            return len(leading) == 1 and (
                len(leading[0].worker.replica.statuses()[1]) == len(self.hands)
                and all(hand.worker.replica.mode == "coordinated" for hand in self.hands)
            )

        await until(settled)

    async def die(self, hand: Hand) -> None:
        self.hands.remove(hand)
        hand.worker.die()
        await self.settled()


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    async with AsyncExitStack() as stack:
        group = Group(tmp_path)
        stack.push_async_callback(group.rig.close)
        yield group
        for hand in group.hands:
            await hand.worker.replica.close()


async def test_the_slot_of_a_worker_that_died_is_free_long_before_a_lease_is_over(
    group: Group,
) -> None:
    first, second = await group.start(), await group.start()
    second.post(Arrived("a", "llama"))
    await until(lambda: second.routed == ["a"])
    first.post(Arrived("b", "llama"))
    await until(lambda: first.waiting == ["b"])
    died_s = asyncio.get_running_loop().time()
    await group.die(second)
    await until(lambda: first.routed == ["b"])
    assert asyncio.get_running_loop().time() - died_s < LEASE_S / 3


@pytest.mark.parametrize(
    "by_node", [{"affinity": "s"}, {"prefix": (1, 2), "prefix_tokens": (1000, 1000)}]
)
async def test_each_turn_of_a_conversation_runs_where_the_last_one_did(
    group: Group, by_node: dict[str, Any]
) -> None:
    nodes = [NodeChanged(name, slots=2, models=("llama",)) for name in ("gpu1", "gpu2")]
    hands = [await group.start(nodes[0]), await group.start(nodes[0])]
    for hand in hands:
        hand.post(nodes[1])
    await group.settled()
    used = []
    for number in range(12):
        hand, other = hands[number % 2], hands[(number // 2) % 2]
        name, plain = f"turn{number}", f"plain{number}"
        hand.post(Arrived(name, "llama", prompt_tokens=2000, **by_node))
        other.post(Arrived(plain, "llama"))
        await until(lambda hand=hand, name=name: name in hand.routed)  # type: ignore[misc]
        await until(lambda other=other, name=plain: name in other.routed)  # type: ignore[misc]
        routes = [one for one in hand.actions if isinstance(one, Route)]
        used += [one.node for one in routes if one.id == name]
        hand.post(Finished(name, True, 2000, 10))
        other.post(Finished(plain))
        for one in hands:  # the leader has heard of both
            await one.snapshot()
    assert len(set(used)) == 1


async def test_what_waits_keeps_its_order_when_the_leader_dies(group: Group) -> None:
    first, second, third = await group.start(), await group.start(), await group.start()
    second.post(Arrived("a", "llama"))
    await until(lambda: second.routed == ["a"])
    third.post(Arrived("b", "llama", user="one"))
    await until(lambda: third.waiting == ["b"])
    second.post(Arrived("c", "llama", user="one"))
    await until(lambda: second.waiting == ["c"])
    await group.die(first)
    assert second.leads
    seen = await third.snapshot()
    assert (seen.running, seen.waiting) == (1, 2)
    second.post(Finished("a"))
    await until(lambda: third.routed == ["b"])
    third.post(Finished("b"))
    await until(lambda: second.routed == ["a", "c"])
    assert not any(isinstance(action, Reject) for hand in group.hands for action in hand.actions)


async def test_a_leader_whose_loop_was_held_up_leads_again_in_another_epoch(group: Group) -> None:
    first, second = await group.start(), await group.start()
    first.post(Arrived("a", "llama"))
    second.post(Arrived("b", "llama"))
    await until(lambda: second.waiting == ["b"])
    epoch = first.worker.replica.epoch
    roles = first.worker.replica.roles
    roles.step_down(
        "the lease was not renewed in time", LoopClock(asyncio.get_running_loop()).monotonic_s()
    )
    await until(lambda: first.leads and first.worker.replica.epoch > epoch)
    await group.settled()
    first.post(Finished("a"))
    await until(lambda: second.routed == ["b"])


async def test_a_worker_that_is_cut_off_from_the_leader_connects_again(group: Group) -> None:
    first, second = await group.start(), await group.start()
    first.post(Arrived("a", "llama"))
    second.post(Arrived("b", "llama"))
    await until(lambda: second.waiting == ["b"])
    (link,) = first.worker.store._followers.values()
    link.abort()  # as for one that does not read
    first.post(Finished("a"))
    await until(lambda: second.routed == ["b"])
    second.post(Cancelled("b"))
    await until(lambda: first.worker.store.followers != [])


async def test_short_requests_on_lent_slots_are_counted_once_wherever_they_ran(
    group: Group,
) -> None:
    hands = [await group.start(MANY), await group.start(MANY)]

    await until(lambda: all(hand.worker.replica.roles.follower._borrowed.idle for hand in hands))
    for number in range(50):
        for hand in hands:
            hand.post(Arrived(f"{number}", "llama"))
            assert hand.routed[-1] == f"{number}", "a lent slot costs no round trip"
            hand.post(Finished(f"{number}"))

    async def served() -> int:
        return (await hands[1].snapshot()).totals.served

    async with asyncio.timeout(PATIENCE_S):
        while await served() != 100:
            pass
    seen = await hands[0].snapshot()
    assert (seen.running, seen.waiting, seen.totals.accepted) == (0, 0, 100)
    await group.die(hands[0])
    assert (await hands[1].snapshot()).totals.served == 100


async def test_a_request_that_lasts_is_known_to_the_leader(group: Group) -> None:
    first, second = await group.start(MANY), await group.start(MANY)
    second.post(Arrived("a", "llama"))
    await until(lambda: second.routed == ["a"])

    async def running() -> int:
        return (await first.snapshot()).running

    async with asyncio.timeout(PATIENCE_S):
        while await running() != 1:
            pass
    assert await first.worker.replica.fleet.owner_of("a") == second.worker.replica.about.name
