"""The checker must fail: schedulers with one thing wrong, each caught within a few seeds.

Some run the real scheduler under options other than those the checker is told; others have their
answers tampered with on the way out.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from forebay.core import Scheduler
from forebay.core.actions import Action, Expire, Reject, Route, Wait
from forebay.core.events import Event, Finished, Ticked
from forebay.core.options import KeyLimits, Options
from forebay.core.snapshot import Snapshot
from forebay.testing.simulation import Scenario, Simulation
from forebay.testing.simulation.scenario import (
    Backlog,
    Bursts,
    ClientPlan,
    Exponential,
    NodePlan,
    Poisson,
)

Tamper = Callable[[list[Action]], list[Action]]


def busy(**options: Any) -> Scenario:
    """Two nodes, three users, bursts, every class, failures: something for each rule."""
    return Scenario(
        nodes=(
            NodePlan("n0", slots=2, fail_before_rate=0.1, busy_rate=0.05),
            NodePlan("n1", slots=1, fail_before_rate=0.1),
        ),
        clients=(
            ClientPlan("ann", Bursts(8, Exponential(4.0)), priorities={"high": 1, "low": 1}),
            ClientPlan("bob", Poisson(2.0), priorities={"normal": 1}, cancel_rate=0.2),
            ClientPlan("eve", Backlog(6), priorities={"normal": 1, "low": 1}, vanish_rate=0.2),
        ),
        options=Options(**{"max_size": 12, "wait_s_max": 5.0, **options}),
        duration_s=30.0,
        observe_s=1.0,
    )


class Tampered:
    """The real scheduler, whose answers are changed before anybody sees them."""

    def __init__(self, options: Options, tamper: Tamper) -> None:
        self._scheduler = Scheduler(options)
        self._tamper = tamper

    def handle(self, event: Event, now_s: float) -> Sequence[Action]:
        return self._tamper(list(self._scheduler.handle(event, now_s)))

    def next_deadline_s(self) -> float | None:
        return self._scheduler.next_deadline_s()


def fails_within(seeds: int, scenario: Scenario, make: Callable[[], Any]) -> str:
    """Return the first failure's first line; fail the test when nothing is noticed."""
    for seed in range(seeds):
        try:
            Simulation(scenario, seed, make()).run()
        except AssertionError as error:
            return str(error).splitlines()[0]
    return pytest.fail(f"nothing was noticed in {seeds} seeds")


def test_nothing_is_wrong_with_the_scenario_itself() -> None:
    for seed in range(5):
        Simulation(busy(), seed).run()


@pytest.mark.parametrize(
    ("told", "run_with", "complaint"),
    [
        ({}, {"max_size": 13}, "13 wait"),
        ({}, {"max_size": 11}, "which is not so"),
        ({"per_user_max": 3}, {"per_user_max": 4}, "has 4 waiting"),
        ({"per_user_max": 3}, {"per_user_max": 2}, "which is not so"),
        ({"bytes_max": 2000}, {"bytes_max": 2001 + 400}, "bytes wait"),
        ({}, {"wait_s_max": 5.5}, "deadline|is asked for"),
        ({}, {"wait_s_max": 4.5}, "too soon"),
        ({}, {"class_order": "weighted"}, "of a higher class waits"),
        ({"fairness": "fifo"}, {"fairness": "round_robin"}, "whose turn it was"),
        ({"when_full": "reject"}, {"when_full": "class"}, "loses its place"),
        ({}, {"when_full": "displace"}, "has no right to displace"),
        ({}, {"when_full": "reject"}, "it may displace another"),
        ({"when_full": "displace"}, {"when_full": "reject"}, "it may displace another"),
        ({"queue_streams": True}, {"enabled": False}, "which is not so"),
    ],
)
def test_a_scheduler_with_other_limits_is_caught(
    told: dict[str, Any], run_with: dict[str, Any], complaint: str
) -> None:
    scenario = busy(**told)
    other = msgspec.structs.replace(scenario.options, **run_with)
    found = fails_within(10, scenario, lambda: Scheduler(other))
    assert any(part in found for part in complaint.split("|")), found


def every_fifth(kind: type[Action], change: Callable[[Any], list[Action]]) -> Tamper:
    """Change every fifth action of a kind."""
    met = 0

    def tamper(actions: list[Action]) -> list[Action]:
        nonlocal met
        changed: list[Action] = []
        for action in actions:
            met += isinstance(action, kind)
            hit = isinstance(action, kind) and met % 5 == 0
            changed += change(action) if hit else [action]
        return changed

    return tamper


@pytest.mark.parametrize(
    ("kind", "change", "complaint"),
    [
        (Route, lambda one: [], "was not answered|free slot|snapshot"),
        (Route, lambda one: [one, one], "starts while running|and is given one more"),
        (Route, lambda one: [msgspec.structs.replace(one, node="n9")], "nobody reported"),
        (Route, lambda one: [msgspec.structs.replace(one, waited_s=one.waited_s + 1)], "waited"),
        (Route, lambda one: [msgspec.structs.replace(one, attempt=7)], "attempt"),
        (Wait, lambda one: [], "was not answered"),
        (Wait, lambda one: [one, one], "answers nobody"),
        (Wait, lambda one: [Reject(one.id, "queue_full")], "which is not so"),
        (Expire, lambda one: [], "after its deadline|which is due"),
        (Expire, lambda one: [one, one], "is over"),
        (Reject, lambda one: [one, one], "is over|is unknown"),
    ],
)
def test_an_answer_changed_on_the_way_out_is_caught(
    kind: type[Action], change: Callable[[Any], list[Action]], complaint: str
) -> None:
    scenario = busy()
    found = fails_within(5, scenario, lambda: Tampered(scenario.options, every_fifth(kind, change)))
    assert any(part in found for part in complaint.split("|")), found


def test_a_scheduler_that_asks_for_no_tick_is_caught() -> None:
    class Forgetful(Tampered):
        def next_deadline_s(self) -> float | None:
            return None

    scenario = busy()
    found = fails_within(5, scenario, lambda: Forgetful(scenario.options, lambda actions: actions))
    assert "no tick is asked for" in found


def test_a_scheduler_that_keeps_asking_for_ticks_is_caught() -> None:
    class Restless(Tampered):
        def handle(self, event: Event, now_s: float) -> Sequence[Action]:
            self._now_s = now_s
            return super().handle(event, now_s)

        def next_deadline_s(self) -> float | None:
            return self._now_s

    scenario = busy()
    found = fails_within(1, scenario, lambda: Restless(scenario.options, lambda actions: actions))
    assert "asks for another" in found


def test_a_lease_that_is_never_given_back_is_caught() -> None:
    class Leaky(Tampered):
        """Forgets one answer in ten: its slot stays taken for ever."""

        met = 0

        def handle(self, event: Event, now_s: float) -> Sequence[Action]:
            if isinstance(event, Finished):
                self.met += 1
                if self.met % 10 == 0:
                    return super().handle(Ticked(), now_s)
            return super().handle(event, now_s)

    scenario = busy()
    found = fails_within(2, scenario, lambda: Leaky(scenario.options, lambda actions: actions))
    assert "free slot" in found or "snapshot" in found


def test_a_snapshot_that_lies_is_caught() -> None:
    def lie(actions: list[Action]) -> list[Action]:
        return [
            msgspec.structs.replace(one, waiting=one.waiting + 1)
            if isinstance(one, Snapshot)
            else one
            for one in actions
        ]

    scenario = busy()
    found = fails_within(1, scenario, lambda: Tampered(scenario.options, lie))
    assert "the snapshot says" in found


def paced(per_minute: int, job_rate: float) -> Scenario:
    """One client whose key has limits, and one without."""
    return Scenario(
        nodes=(NodePlan("n0", slots=4),),
        clients=(
            ClientPlan("ann", Bursts(8, Exponential(4.0)), key="k", job_rate=job_rate),
            ClientPlan("bob", Poisson(2.0)),
        ),
        options=Options(key_limits={"k": KeyLimits(per_minute)}),
        duration_s=30.0,
    )


@pytest.mark.parametrize("job_rate", [0.0, 1.0], ids=["live", "jobs"])
def test_a_key_that_exceeds_its_rate_is_noticed(job_rate: float) -> None:
    told, real = paced(20, job_rate), paced(21, job_rate)
    Simulation(told, 0, Scheduler(told.options)).run()
    words = fails_within(5, told, lambda: Scheduler(real.options))
    assert "starts since" in words


def test_a_key_that_is_never_let_go_on_is_noticed() -> None:
    told = paced(20, 1.0)
    for_ever = Options(key_limits={"k": KeyLimits(20, 0, 1)})  # of whose day nobody knows the end
    words = fails_within(5, told, lambda: Scheduler(for_ever))
    assert "wait" in words
