"""The core is a function of its events: no clock, no chance, no memory that grows for ever."""

from __future__ import annotations

import gc
import sys
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from forebay.core import (
    Action,
    Arrived,
    Cancelled,
    Event,
    Finished,
    NodeChanged,
    Observed,
    Options,
    OptionsChanged,
    Returned,
    Route,
    Scheduler,
    Ticked,
    Wait,
)
from forebay.errors import InvariantBroken
from harness.function_calls import functions_called

from .random_day import Day
from .rig import Rig

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType


def script(seed: int, length: int = 400) -> list[tuple[float, Event]]:
    """Draw a day's events that make sense together."""
    day = Day(Random(seed), swaps=True)
    day.ends = False
    core, now_s = Scheduler(), 0.0
    events: list[tuple[float, Event]] = [(0.0, event) for event in day.beginning()]
    for _, event in events:
        core.handle(event, now_s)
    for _ in range(length):
        event, pause_s = day.next_event()
        now_s += pause_s
        if not isinstance(event, OptionsChanged):
            events.append((now_s, event))
            day.note(event, core.handle(event, now_s))
    return events


def play(events: list[tuple[float, Event]], options: Options) -> list[list[Action]]:
    core = Scheduler(options)
    return [list(core.handle(event, now_s)) for now_s, event in events]


@pytest.mark.parametrize("fairness", ["round_robin", "tokens", "fifo"])
@pytest.mark.parametrize("class_order", ["strict", "weighted"])
def test_the_same_events_give_the_same_actions(fairness: Any, class_order: Any) -> None:
    """Invariant 13."""
    options = Options(
        fairness=fairness, class_order=class_order, aging_s=5.0, wait_s_max=20.0, max_size=20
    )
    events = script(seed=5)
    first = play(events, options)
    assert play(events, options) == first
    assert sum(isinstance(action, Route) for step in first for action in step) > 10


def test_events_that_travelled_give_the_same_actions() -> None:
    events = script(seed=4)
    travelled = [
        (now_s, msgspec.msgpack.decode(msgspec.msgpack.encode(event), type=Event))
        for now_s, event in events
    ]
    assert play(travelled, Options()) == play(events, Options())


def test_a_clock_that_steps_back_is_held_at_its_highest() -> None:
    """Invariant 11."""
    rig = Rig()
    rig.node()
    rig.give(Arrived("z", "m"), at_s=100.0)
    rig.give(Arrived("a", "m"), at_s=50.0)
    assert rig.core.next_deadline_s() == 160.0
    assert rig.describe("a").waited_s == 0.0
    assert rig.finish("z") == ["a"]
    assert rig.routed[-1].waited_s == 0.0


def test_asking_for_the_next_deadline_changes_nothing() -> None:
    """Invariant 13: whether anybody looked is not an event."""
    orders = []
    for curious in (False, True):
        rig = Rig.busy(wait_s_max=5.0)
        rig.wait("a")
        rig.finish("z")
        if curious:
            assert rig.core.next_deadline_s() is None
        rig.wait("b")
        rig.come_back("a")
        rig.give_rest("n", 60.0)
        if rig.routed[-1].id == "b":
            rig.come_back("b")
        orders.append([getattr(action, "id", "") for action in rig.tick(at_s=5.0)])
    assert orders[0] == orders[1]


def test_an_id_that_is_alive_is_refused_loudly_and_changes_nothing() -> None:
    rig = Rig()
    rig.node()
    rig.start("a")
    rig.wait("b")
    for name in ("a", "b"):
        with pytest.raises(InvariantBroken):
            rig.give_arrival(name)
    picture = rig.look()
    assert (picture.running, picture.waiting) == (1, 1)
    rig.finish("a")
    rig.wait("a")


def test_late_events_about_the_dead_are_harmless() -> None:
    rig = Rig()
    rig.node()
    rig.start("a")
    rig.finish("a")
    before = rig.look()
    for event in (Finished("a"), Returned("a"), Cancelled("a"), Finished("never")):
        assert rig.give(event) == []
    assert rig.look() == before


def test_a_finish_for_one_that_waits_is_ignored() -> None:
    rig = Rig.busy()
    rig.wait("a")
    assert rig.give(Finished("a")) == []
    assert rig.give(Returned("a")) == []
    assert rig.finish("z") == ["a"]


def calls_of(core: Scheduler, event: Event, now_s: float = 0.0) -> int:
    """Count the function calls that one event takes."""
    return len(functions_called(lambda: core.handle(event, now_s)))


def crowded(waiting: int) -> Scheduler:
    core = Scheduler(Options(max_size=waiting))
    core.handle(NodeChanged("n", 1, ("m",)), 0.0)
    answers: list[Sequence[Action]] = [
        core.handle(Arrived(f"r{number}", "m", user=f"u{number % 50}"), 0.0)
        for number in range(waiting + 1)
    ]
    assert isinstance(answers[-1][0], Wait)
    return core


@pytest.mark.parametrize("event", [Observed(), Arrived("late", "m", user="x")], ids=str)
def test_a_picture_and_a_refusal_cost_the_same_however_many_wait(event: Event) -> None:
    """Invariant 12: rejection is O(1)."""
    assert calls_of(crowded(100), event) == calls_of(crowded(10_000), event)


def test_fault_19_deadlines_that_pass_at_once_cost_in_proportion_to_their_number() -> None:
    late_s = Options().wait_s_max
    few, many = (calls_of(crowded(count), Ticked(), late_s) for count in (1_000, 10_000))
    assert few / 1_000 <= 33  # measured: 30
    assert many <= 11 * few


def objects_after(core: Scheduler, users: range) -> int:
    for number in users:
        core.handle(Arrived(f"r{number}", "m", user=f"user-{number}"), float(number))
        core.handle(Finished(f"r{number}"), number + 0.5)
    gc.collect()
    return len(gc.get_objects())


def test_thirty_thousand_invented_users_leave_a_bounded_memory() -> None:
    core = Scheduler(Options(idle_users_max=1000))
    core.handle(NodeChanged("n", 1, ("m",)), 0.0)
    early = objects_after(core, range(5_000))
    late = objects_after(core, range(5_000, 30_000))
    assert late - early < 1000  # where 25,000 users would take several objects each


def test_an_idle_user_remembered_is_no_better_off_than_a_new_one() -> None:
    rig = Rig(idle_users_max=0)
    rig.node()
    for number in range(3):
        rig.start(f"a{number}")
        rig.finish(f"a{number}")
    rig.start("z")
    for name in ("a8", "b8", "a9", "b9"):
        rig.wait(name)
    assert rig.run_dry("z") == ["a8", "b8", "a9", "b9"]


def lines_of_an_arrival(waiting: int, users: int) -> int:
    """Return how many lines of the core run when one more joins a line of so many users."""
    core = Scheduler(Options(max_size=20_000, fairness="tokens"))
    core.handle(NodeChanged("n", 1, ("m",)), 0.0)
    for number in range(waiting):
        core.handle(Arrived(f"r{number}", "m", user=f"u{number % users}"), 0.0)
    lines = 0

    def note(frame: FrameType, kind: str, _: object) -> Any:
        nonlocal lines
        lines += kind == "line"
        return note

    sys.settrace(note)
    try:
        core.handle(Arrived("last", "m", user="u0"), 0.0)
    finally:
        sys.settrace(None)
    return lines


def test_an_arrival_costs_no_more_behind_thousands_of_users_than_behind_a_hundred() -> None:
    assert lines_of_an_arrival(10_000, 1_000) <= lines_of_an_arrival(1_000, 100) + 200
