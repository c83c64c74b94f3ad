"""Promised waits are near, and kept as often as promised (invariant 15)."""

from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

import msgspec
import pytest

from forebay.core import Scheduler
from forebay.core.actions import Action, Route, Wait
from forebay.core.events import Event
from forebay.core.options import Options
from forebay.testing.simulation import Scenario, Simulation
from forebay.testing.simulation.report import Coverage
from forebay.testing.simulation.scenario import (
    ClientPlan,
    Distribution,
    Exponential,
    Lognormal,
    NodePlan,
    Poisson,
    Uniform,
)
from harness.traces.calls import Call, Traffic, draw_calls
from harness.traces.replay import (
    LOSING,
    MIXED,
    QUIET,
    Fairness,
    Priority,
    Replay,
    Trouble,
    Verdict,
    judge,
)
from harness.traces.targets import LOADS, shortfalls

SEEDS = range(3)
ARRIVALS = 2000
USERS = 4


def stationary(
    slots: int, service_s: Distribution, mean_s: float, load: float, **options: Any
) -> Scenario:
    """A steady stream of requests at a share `load` of what one node can serve."""
    rate_per_s = load * slots / mean_s
    duration_s = ARRIVALS / rate_per_s
    return Scenario(
        nodes=(NodePlan("n", slots=slots, service_s=service_s),),
        clients=tuple(
            ClientPlan(f"user{number}", Poisson(rate_per_s / USERS)) for number in range(USERS)
        ),
        options=Options(max_size=100_000, wait_s_max=1e9, **options),
        duration_s=duration_s,
        probe_s=duration_s,
    )


CASES = {
    "one slot, exponential": stationary(1, Exponential(1.0), 1.0, 0.9),
    "four slots, lognormal": stationary(4, Lognormal(2.0, 0.8), 2.75, 0.9),
    "two slots, uniform": stationary(2, Uniform(0.5, 1.5), 1.0, 0.9),
    "one slot, lognormal, less busy": stationary(1, Lognormal(5.0, 1.0), 8.25, 0.7),
    "first come, first served": stationary(1, Exponential(1.0), 1.0, 0.9, fairness="fifo"),
}


class TooBold:
    """Promises a third of what the real scheduler would."""

    def __init__(self, options: Options) -> None:
        self._scheduler = Scheduler(options)

    def handle(self, event: Event, now_s: float) -> Sequence[Action]:
        return [self._embolden(action) for action in self._scheduler.handle(event, now_s)]

    def _embolden(self, action: Action) -> Action:
        if isinstance(action, Wait) and action.p50_s is not None and action.p90_s is not None:
            return msgspec.structs.replace(action, p50_s=action.p50_s / 3, p90_s=action.p90_s / 3)
        if isinstance(action, Route) and action.predicted_s is not None:
            return msgspec.structs.replace(action, predicted_s=action.predicted_s / 3)
        return action

    def next_deadline_s(self) -> float | None:
        return self._scheduler.next_deadline_s()


def coverage(scenario: Scenario, seeds: Sequence[int] = SEEDS) -> Coverage:
    """Return how often the promises of several runs were kept, but those of the first tenth."""
    reports = [Simulation(scenario, seed).run() for seed in seeds]
    warm_s = scenario.duration_s / 10
    return Coverage.of(
        one for report in reports for one in report.requests if one.arrived_s >= warm_s
    )


def assert_promises_are_kept(kept: Coverage, promised_min: int = ARRIVALS) -> None:
    assert kept.promised > promised_min  # enough of them waited
    assert 0.85 <= kept.p90 <= 0.95, f"p90 was kept in {kept.p90:.1%} of cases"
    assert 0.40 <= kept.p50 <= 0.60, f"p50 was kept in {kept.p50:.1%} of cases"


@pytest.mark.parametrize("case", CASES)
def test_waits_are_as_long_as_promised(case: str) -> None:
    assert_promises_are_kept(coverage(CASES[case]))


def test_promises_that_are_too_bold_are_caught() -> None:
    scenario = CASES["one slot, exponential"]
    kept = Coverage.of(Simulation(scenario, 0, TooBold(scenario.options)).run().requests)
    with pytest.raises(AssertionError, match="was kept in"):
        assert_promises_are_kept(kept, ARRIVALS // 2)


MODES: tuple[Fairness, ...] = ("fifo", "round_robin", "tokens")
SHORT = 0.13
"""Traces of half an hour may miss the targets by a tenth: a third of it is spent learning. And by
three points more, which simpler rules are worth."""
TROUBLED = 0.15


@cache
def trace(seed: int) -> list[Call]:
    """Half an hour of conversations: Zipf users, a tide, bursts."""
    return draw_calls(Traffic(calls=5_000, span_s=1_800.0, bursts=3), Random(seed))


def verdict(seed: int, load: float, fairness: Fairness, trouble: Trouble = QUIET) -> Verdict:
    return judge(Replay(trace(seed), load, fairness, trouble).run())


@pytest.mark.parametrize("fairness", MODES)
@pytest.mark.parametrize(("seed", "load"), list(enumerate(LOADS)))
def test_promised_waits_are_near(seed: int, load: float, fairness: Fairness) -> None:
    found = verdict(seed, load, fairness)
    assert found.judged > 1_000
    assert not shortfalls(found, fairness, load, SHORT), found


OUTPUT_TOKENS = (20.0, 600.0, 60.0, 300.0, 15.0, 150.0)
"""Of the answers of six applications; their prompts are three times as long each."""


def test_they_are_near_where_applications_differ_and_take_turns() -> None:
    rng, calls = Random(0), list[Call]()
    for number, output in enumerate(OUTPUT_TOKENS):
        traffic = Traffic(
            calls=800, span_s=1_800.0, tide=0.9, bursts=0, prompt_median=60.0 * 3**number,
            prompt_sigma=0.1, output_median=output, output_sigma=0.3,
        )  # fmt: skip
        calls += draw_calls(traffic, rng)
    found = judge(Replay(sorted(calls), 1.0, "fifo").run())
    assert not shortfalls(found, "fifo", 1.0), found


@pytest.mark.parametrize("fairness", MODES)
def test_they_are_near_with_classes_retries_and_callers_that_leave(fairness: Fairness) -> None:
    found = verdict(3, 1.0, fairness, MIXED)
    assert not shortfalls(found, fairness, 1.0, SHORT + TROUBLED), found


@pytest.mark.parametrize("fairness", MODES)
def test_they_are_near_again_a_minute_after_a_node_is_lost(fairness: Fairness) -> None:
    found = verdict(4, 1.0, fairness, LOSING)
    assert not shortfalls(found, fairness, 1.0, SHORT + TROUBLED), found


def test_a_backlog_below_busy_classes_is_told_of_others_that_will_overtake_it() -> None:
    rng, span_s, calls = Random(0), 4_000.0, list[Call]()

    def trickle(user: str, per_s: float) -> None:
        at_s = rng.expovariate(per_s)
        while at_s < span_s:
            calls.append(Call(at_s, 100, rng.randrange(20, 60), f"{user}{rng.randrange(20)}"))
            at_s += rng.expovariate(per_s)

    trickle("normal", 5.0)
    trickle("other", 3.0)
    for burst in range(53):  # of one user
        calls += [Call(50.0 + 75.0 * burst, 100, rng.randrange(20, 60), "batch")] * 100

    def class_of(call: Call) -> Priority:  # half of the slots go to `normal`
        return "normal" if call.user.startswith("normal") else "low"

    replay = Replay(sorted(calls), 0.93, "round_robin", slots=10, class_of=class_of)
    late = [one for one in replay.run().promises if one.told_s > span_s / 4 and one.waited_s > 20.0]
    assert len(late) > 1_000  # nearly all of that user
    near = sum(one.waited_s / 2.0 <= one.p50_s <= 2.0 * one.waited_s for one in late)
    assert near >= 0.8 * len(late)
