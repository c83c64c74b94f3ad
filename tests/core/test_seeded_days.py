"""Many seeded days, watched by an outsider who counts for itself, and played twice."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from forebay.core import Describe, Inspected, Observed, Scheduler, Snapshot, Ticked

from .outsider import Outsider
from .random_day import Day

if TYPE_CHECKING:
    from forebay.core import Action, Event

STEPS = 90
BLOCK = 35
"""Seeds in one test."""
REPLAYED_EVERY = 5
"""Whether the core is a function of its events is not a matter of single seeds."""
LONG = pytest.mark.long


def drive(seed: int, *, swaps: bool, returning: bool = False, one_slot: bool = False) -> None:
    """Play a day; where ticks come late, one event ends and starts things of several instants."""
    day = Day(Random(seed), swaps=swaps, returning=returning, one_slot=one_slot)
    late = seed % 2 == 0 and not day.options.aging_s
    core, now_s = Scheduler(day.options), 0.0
    outsider = None if late else Outsider(day.options, lambda ticket: is_held(core, ticket, now_s))
    log: list[tuple[float, Event, list[Action]]] = []

    def give(event: Event, at_s: float) -> list[Action]:
        actions = list(core.handle(event, at_s))
        log.append((at_s, event, actions))
        day.note(event, actions)
        if outsider is not None:
            outsider.watch(event, at_s, actions)
        return actions

    for event in day.beginning():
        give(event, now_s)
    for _ in range(STEPS):
        event, pause_s = day.next_event()
        now_s += pause_s
        while not late and (due_s := core.next_deadline_s()) is not None and due_s <= now_s:
            give(Ticked(), due_s)
        give(event, now_s)
        pictures = [a for a in give(Observed(), now_s) if isinstance(a, Snapshot)]
        if outsider is not None:
            outsider.check_free_slots(pictures[0])
        check_sizes(core)
        check_backlogs(core)
    check_replay(seed, log, Scheduler(day.options))


def is_held(core: Scheduler, ticket: str, now_s: float) -> bool:
    """Ask whether a ticket waits for a better node."""
    seen = core.handle(Inspected(ticket), now_s)
    return any(isinstance(one, Describe) and one.reason == "better_node" for one in seen)


def check_sizes(core: Scheduler) -> None:
    """Hold what is known to wait, by size, against what waits."""
    waiting = [one for one in core._book.entries.values() if one.state == "waiting" and one.size]
    parked = [one for one in waiting if one.claim is not None and one.claim.parked]
    assert not parked
    for lane in core._book.cluster.lanes.values():
        for rank, queue in enumerate(lane.queues):
            here = [one.size.mean_s for one in waiting if one.queue is queue and one.size]
            assert lane.times.by_size.counted[rank] == len(here) <= queue.waiting
            assert lane.times.by_size.waiting_s[rank] == pytest.approx(sum(here), abs=1e-6)


def check_backlogs(core: Scheduler) -> None:
    """Hold what is known of the users of each octave against the users."""
    accounts = [
        (queue.backlogs, account)
        for user in core._book.users._known.values()
        for queue, account in user.accounts.items()
    ]
    for lane in core._book.cluster.lanes.values():
        for backlogs in (queue.backlogs for queue in lane.queues):
            assert backlogs._idle.came >= -1e-6
            for cell in backlogs._cells.values():
                here = [one for its, one in accounts if its is backlogs and one.cell is cell]
                assert cell.users == len(here)
                assert cell.owed == pytest.approx(sum(one.owed for one in here), abs=1e-6)
                came = sum(map(backlogs._came, here))
                assert cell.came == pytest.approx(came, abs=1e-6)


def check_replay(seed: int, log: list[tuple[float, Event, list[Action]]], core: Scheduler) -> None:
    """13: same seed and events, same order."""
    if seed % REPLAYED_EVERY:
        return
    for at_s, event, actions in log:
        assert list(core.handle(event, at_s)) == actions


KINDS = {
    "plain": {"swaps": False},
    "callers that come back": {"swaps": False, "returning": True},
    "swaps": {"swaps": True},
    "swaps, one slot": {"swaps": True, "one_slot": True},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [0, 1, *(pytest.param(n, marks=LONG) for n in range(2, 8))])
def test_a_day_keeps_the_invariants(block: int, kind: str) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        try:
            drive(seed, **KINDS[kind])
        except Exception as error:
            raise AssertionError(f"replay with drive({seed}, **KINDS[{kind!r}])") from error
