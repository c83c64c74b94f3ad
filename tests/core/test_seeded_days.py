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
    from forebay.core.records import Account

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
        check_forecast(core)
    check_replay(seed, log, Scheduler(day.options))


def is_held(core: Scheduler, ticket: str, now_s: float) -> bool:
    """Ask whether a ticket waits for a better node."""
    seen = core.handle(Inspected(ticket), now_s)
    return any(isinstance(one, Describe) and one.reason == "better_node" for one in seen)


def check_forecast(core: Scheduler) -> None:
    """Hold what the forecast has seen to wait against what waits."""
    book, forecast = core._book, core._book.forecast
    waiting = [one for one in book.entries.values() if one.state == "waiting"]
    queued = [one for one in waiting if one.claim is None or not one.claim.parked]
    for lane in book.cluster.lanes.values():
        for queue in lane.queues:
            here = [one for one in queued if one.queue is queue]
            line = forecast._lines.get(queue)
            assert (0 if line is None else sum(line.sizes.values())) == len(here) == queue.waiting
            owed: dict[Account, float] = {}
            for entry in here:
                if not entry.goes_first:
                    owed[entry.account] = owed.get(entry.account, 0.0) + entry.price
            assert forecast.owed(queue) == pytest.approx(owed)


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
