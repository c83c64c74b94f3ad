"""Model swaps in virtual time: grouped by model, and nobody waits for ever (FAULTS 33 and 34).

The bound is invariant 10: the head of a cold lane waits at most `swap_wait + M * (S + residence +
drain)`, the residence being 3*S.
"""

from collections import defaultdict
from dataclasses import replace
from itertools import groupby

import pytest

from forebay.core.options import Options
from forebay.testing.simulation import (
    Always,
    Backlog,
    ClientPlan,
    NodePlan,
    Poisson,
    Report,
    Scenario,
    Simulation,
)

LOAD_S = 20.0
SERVICE_S = 5.0
SWAP_WAIT_S = 15.0
RESIDENCE_LOADS = 3.0


def one_gpu(
    models: str, clients: tuple[ClientPlan, ...], swap_wait_s: float, duration_s: float = 20_000.0
) -> Scenario:
    """One slot, one model in memory."""
    return Scenario(
        nodes=(
            NodePlan(
                "gpu",
                models=tuple(models),
                service_s=Always(SERVICE_S),
                swaps=True,
                loaded=(models[0],),
                load_s=LOAD_S,
            ),
        ),
        clients=clients,
        options=Options(max_size=100_000, wait_s_max=1e9, swap_wait_s=swap_wait_s),
        duration_s=duration_s,
        probe_s=60.0,
    )


def in_turn(models: str, load: float) -> Scenario:
    """Requests for A B C A B C ..., at a share `load` of what the node could serve."""
    client = ClientPlan(
        "user", Poisson(load / SERVICE_S), models=dict.fromkeys(models, 1.0), cycle_models=True
    )
    return one_gpu(models, (client,), SWAP_WAIT_S)


def hot_model(swap_wait_s: float) -> Scenario:
    """Model `a` always has five waiting; the others are asked for now and then."""
    hot = ClientPlan("hot", Backlog(5), models={"a": 1.0})
    others = ClientPlan("others", Poisson(0.05), models={"b": 1.0, "c": 1.0, "d": 1.0})
    return one_gpu("abcd", (hot, others), swap_wait_s, duration_s=10_000.0)


def first_come_first_served(report: Report, resident: str) -> tuple[float, int]:
    """Return the mean wait and the loads had the same requests been served in order of arrival."""
    free_s, loads, waits_s = 0.0, 0, []
    for request in report.requests:
        start_s = max(request.arrived_s, free_s)
        waits_s.append(start_s - request.arrived_s)
        free_s = start_s + SERVICE_S
        if request.model != resident:
            resident, loads, free_s = request.model, loads + 1, free_s + LOAD_S
    return sum(waits_s) / len(waits_s), loads


def longest_waits_as_head(report: Report) -> dict[str, float]:
    """Return for each model how long it was wanted and not served, at the most."""
    by_model = defaultdict(list)
    for request in report.requests:
        waited_s = float("inf") if request.waited_s is None else request.waited_s
        by_model[request.model].append((request.arrived_s + waited_s, request.arrived_s))
    longest = {}
    for model, turns in by_model.items():
        before_s, waits_s = 0.0, [0.0]
        for start_s, arrived_s in sorted(turns):
            waits_s.append(start_s - max(arrived_s, before_s))
            before_s = start_s
        longest[model] = max(waits_s)
    return longest


def bound_s(models: int, swap_wait_s: float) -> float:
    return swap_wait_s + models * (LOAD_S + RESIDENCE_LOADS * LOAD_S + SERVICE_S)


def assert_nobody_waits_for_ever(report: Report, models: int) -> None:
    for model, waited_s in longest_waits_as_head(report).items():
        bound = bound_s(models, SWAP_WAIT_S)
        assert waited_s <= bound, f"{model} went {waited_s:.0f} s unserved, the bound is {bound} s"


@pytest.mark.parametrize("seed", range(3))
def test_requests_for_three_models_in_turn_are_collated(seed: int) -> None:
    report = Simulation(in_turn("abc", load=0.5), seed).run()
    mean_s, loads = first_come_first_served(report, "a")
    assert report.outcomes == {"served": len(report.requests)}
    assert loads > 0.9 * len(report.requests)  # in order of arrival, nearly every one swaps
    assert report.loads < loads / 3
    assert report.users["user"].waits.mean_s < mean_s / 20
    assert_nobody_waits_for_ever(report, models=3)


@pytest.mark.parametrize("seed", range(3))
def test_beside_a_model_that_is_always_wanted_the_others_are_served_too(seed: int) -> None:
    report = Simulation(hot_model(SWAP_WAIT_S), seed).run()
    assert report.users["others"].served == report.users["others"].arrived > 400
    assert_nobody_waits_for_ever(report, models=4)
    assert report.loads * LOAD_S < 0.45 * report.ended_s  # a turn of 2S in 5S at the most


def test_pure_grouping_never_serves_the_others_and_is_caught() -> None:
    scenario = replace(hot_model(swap_wait_s=1e9), duration_s=4000.0)
    report = Simulation(scenario, seed=0).run()
    with pytest.raises(AssertionError, match="unserved"):
        assert_nobody_waits_for_ever(report, models=4)


@pytest.mark.parametrize("seed", range(3))
def test_grouping_keeps_a_node_stable_that_first_come_first_served_overloads(seed: int) -> None:
    """The policy's own comparison: one slot, four models, 20 s loads, load 0.6."""
    models = dict.fromkeys("abcd", 1.0)
    client = ClientPlan("user", Poisson(0.6 / SERVICE_S), models=models)
    report = Simulation(one_gpu("abcd", (client,), SWAP_WAIT_S), seed).run()
    mean_s, _ = first_come_first_served(report, "a")
    assert mean_s > 5000.0  # it grows with the length of the run: unstable
    assert report.users["user"].waits.mean_s < 150.0
    assert_nobody_waits_for_ever(report, models=4)


def test_a_higher_class_swaps_within_the_residence_of_a_lower_one() -> None:
    background = ClientPlan("background", Backlog(5), models={"a": 1.0}, priorities={"low": 1})
    urgent = ClientPlan("urgent", Poisson(0.005), models={"b": 1.0}, priorities={"high": 1})
    report = Simulation(one_gpu("ab", (background, urgent), SWAP_WAIT_S), seed=1).run()
    residence_s = RESIDENCE_LOADS * LOAD_S
    assert report.users["urgent"].served > 50
    longest_s = longest_waits_as_head(report)["b"]
    assert longest_s <= residence_s + LOAD_S + SERVICE_S


def test_a_higher_class_does_not_take_the_residence_of_a_lower_one_away() -> None:
    """However often the urgent model is asked for, the other serves for 3*S between two swaps."""
    background = ClientPlan("background", Backlog(5), models={"a": 1.0}, priorities={"low": 1})
    urgent = ClientPlan("urgent", Poisson(0.04), models={"b": 1.0}, priorities={"high": 1})
    scenario = one_gpu("ab", (background, urgent), SWAP_WAIT_S, duration_s=5000.0)
    report = Simulation(scenario, seed=1).run()
    starts = sorted((one.arrived_s + (one.waited_s or 0.0), one.model) for one in report.requests)
    rows = ["".join(group) for _, group in groupby(model for _, model in starts)]
    turns = [len(row) for row in rows[1:-1] if row[0] == "a"]
    assert len(turns) > 10
    assert min(turns) >= RESIDENCE_LOADS * LOAD_S / SERVICE_S


def test_two_models_that_fit_together_are_never_swapped() -> None:
    scenario = in_turn("ab", load=0.5)
    node = scenario.nodes[0]
    roomy = NodePlan(
        "gpu", models=node.models, service_s=node.service_s, swaps=True, loaded=("a",),
        loaded_max=2, load_s=LOAD_S,
    )  # fmt: skip
    report = Simulation(
        Scenario((roomy,), scenario.clients, scenario.options, duration_s=2000.0), seed=1
    ).run()
    assert report.loads == 1
