"""Model swaps in virtual time: grouped by model, and nobody waits for ever (FAULTS 33 and 34).

The bound is invariant 10: the head of a cold lane waits at most `swap_wait + M * (S + residence +
drain)`, the residence being 9*S.
"""

from collections import defaultdict
from dataclasses import replace
from itertools import groupby
from random import Random

import pytest

from forebay.core.options import Options
from forebay.testing.simulation import Report, Scenario, Simulation
from forebay.testing.simulation.scenario import (
    Always,
    Backlog,
    ClientPlan,
    NodePlan,
    Poisson,
    Times,
    Uniform,
)

LOAD_S = 20.0
SERVICE_S = 5.0
SWAP_WAIT_S = 15.0
RESIDENCE_LOADS = 9.0


def one_gpu(
    models: str, clients: tuple[ClientPlan, ...], swap_wait_s: float, duration_s: float = 10_000.0
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
    return one_gpu("abcd", (hot, others), swap_wait_s, duration_s=5_000.0)


def first_come_first_served(report: Report, resident: str) -> tuple[float, int]:
    """Return the mean wait and the loads had the same requests been served in order of arrival."""
    free_s, loads, waits_s = 0.0, 0, []
    for request in report.requests:
        start_s = max(request.arrived_s, free_s)
        waits_s.append(start_s - request.arrived_s)
        free_s = start_s + SERVICE_S
        if request.asked.model != resident:
            resident, loads, free_s = request.asked.model, loads + 1, free_s + LOAD_S
    return sum(waits_s) / len(waits_s), loads


def longest_waits_as_head(report: Report) -> dict[str, float]:
    """Return for each model how long it was wanted and not served, at the most."""
    by_model = defaultdict(list)
    for request in report.requests:
        waited_s = float("inf") if request.waited_s is None else request.waited_s
        by_model[request.asked.model].append((request.arrived_s + waited_s, request.arrived_s))
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
    assert report.users["user"].wait_s_mean < mean_s / 20
    assert_nobody_waits_for_ever(report, models=3)


@pytest.mark.parametrize("seed", range(3))
def test_beside_a_model_that_is_always_wanted_the_others_are_served_too(seed: int) -> None:
    report = Simulation(hot_model(SWAP_WAIT_S), seed).run()
    assert report.users["others"].served == report.users["others"].arrived > 200
    assert_nobody_waits_for_ever(report, models=4)
    assert report.loads * LOAD_S < 0.35 * report.ended_s  # four loads in 13 at the most


def test_pure_grouping_never_serves_the_others_and_is_caught() -> None:
    scenario = replace(hot_model(swap_wait_s=1e9), duration_s=1000.0)
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
    assert mean_s > 2500.0  # it grows with the length of the run: unstable
    assert report.users["user"].wait_s_mean < 150.0
    assert_nobody_waits_for_ever(report, models=4)


def test_a_higher_class_swaps_within_the_residence_of_a_lower_one() -> None:
    background = ClientPlan("background", Backlog(5), models={"a": 1.0}, priorities={"low": 1})
    urgent = ClientPlan("urgent", Poisson(0.01), models={"b": 1.0}, priorities={"high": 1})
    report = Simulation(one_gpu("ab", (background, urgent), SWAP_WAIT_S), seed=1).run()
    residence_s = RESIDENCE_LOADS * LOAD_S
    assert report.users["urgent"].served > 50
    longest_s = longest_waits_as_head(report)["b"]
    assert longest_s <= residence_s + LOAD_S + SERVICE_S


def test_a_higher_class_does_not_take_the_residence_of_a_lower_one_away() -> None:
    """However often the urgent model is asked for, the other serves for 9*S between two swaps."""
    background = ClientPlan("background", Backlog(5), models={"a": 1.0}, priorities={"low": 1})
    urgent = ClientPlan("urgent", Poisson(0.04), models={"b": 1.0}, priorities={"high": 1})
    scenario = one_gpu("ab", (background, urgent), SWAP_WAIT_S, duration_s=5000.0)
    report = Simulation(scenario, seed=1).run()
    starts = sorted(
        (one.arrived_s + (one.waited_s or 0.0), one.asked.model) for one in report.requests
    )
    rows = ["".join(group) for _, group in groupby(model for _, model in starts)]
    turns = [len(row) for row in rows[1:-2] if row[0] == "a"]  # `a` is no more asked for in the end
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


# -- what the rule is to reach, with default settings


def beside_a_busy_model(load_s: float, cold: str, stagger_s: float = 0.0) -> Scenario:
    """Model `a` always has five clients, 5 s each; each of the others is asked for 30 times."""
    asked = (
        ClientPlan(
            model,
            Times(tuple(100.0 + stagger_s * place + 120.0 * turn for turn in range(30))),
            models={model: 1.0},
        )
        for place, model in enumerate(cold)
    )
    node = NodePlan(
        "gpu", models=("a", *cold), service_s=Always(SERVICE_S), swaps=True, loaded=("a",),
        load_s=load_s,
    )  # fmt: skip
    busy = ClientPlan("a", Backlog(5), models={"a": 1.0})
    return Scenario((node,), (busy, *asked), Options(), duration_s=3800.0)


def timeouts(report: Report, user: str) -> int:
    mine = [one for one in report.requests if one.asked.user == user]
    return sum(one.outcome == "queue_timeout" for one in mine)


@pytest.mark.parametrize(("load_s", "kept"), [(2.0, 0.9), (5.0, 0.85), (10.0, 0.78), (20.0, 0.58)])
def test_a_model_asked_for_now_and_then_is_served_beside_a_busy_one(
    load_s: float, kept: float
) -> None:
    report = Simulation(beside_a_busy_model(load_s, "b"), seed=0).run()
    assert report.users["b"].served >= 29
    assert report.users["a"].served >= kept * 3800.0 / SERVICE_S
    excursions = report.loads / 2
    assert timeouts(report, "a") <= (2 * excursions if load_s > 10.0 else 0)


def test_four_models_asked_for_at_once_all_have_their_turns() -> None:
    report = Simulation(beside_a_busy_model(20.0, "bcd"), seed=0).run()
    assert min(report.users[model].served for model in "bcd") >= 25
    assert "queue_full" not in report.outcomes  # no load makes a line too long


@pytest.mark.parametrize("stagger_s", [0.0, 40.0])
def test_with_short_loads_four_models_lose_nobody(stagger_s: float) -> None:
    report = Simulation(beside_a_busy_model(5.0, "bcd", stagger_s), seed=0).run()
    assert not any(one.outcome == "queue_timeout" for one in report.requests)
    assert [report.users[model].served for model in "bcd"] == [30, 30, 30]
    assert report.users["a"].served >= (540 if not stagger_s else 480)


def test_the_rule_costs_little_against_pure_grouping() -> None:
    """Poisson, four models, 20 s loads, load 0.6: the mean wait is within 1.15 of the least."""
    client = ClientPlan("user", Poisson(0.6 / SERVICE_S), models=dict.fromkeys("abcd", 1.0))
    means = []
    for options in (
        Options(max_size=10_000, wait_s_max=600.0),
        Options(max_size=10_000, wait_s_max=600.0, swap_wait_s=1e9, swap_share=1e-9),
    ):
        scenario = one_gpu("abcd", (client,), SWAP_WAIT_S, duration_s=7_500.0)
        scenario = replace(scenario, options=options)
        reports = [Simulation(scenario, seed).run() for seed in range(2)]
        assert all(report.outcomes == {"served": len(report.requests)} for report in reports)
        means.append(sum(report.users["user"].wait_s_mean for report in reports))
    assert means[0] <= 1.15 * means[1]


def first_in_first_out(depth: int, load_s: float, count: int) -> tuple[float, float]:
    """Return the mean wait and the time of the last answer, were `a b a b ...` served in order."""
    ends_s: list[float] = []
    waits_s, resident = [], "a"
    for number in range(count):
        arrived_s = ends_s[number - depth] if number >= depth else 0.0
        start_s = max(arrived_s, ends_s[-1] if ends_s else 0.0)
        waits_s.append(start_s - arrived_s)
        model = "ab"[number % 2]
        load = 0.0 if model == resident else load_s
        resident = model
        ends_s.append(start_s + load + SERVICE_S)
    return sum(waits_s) / count, ends_s[-1]


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
@pytest.mark.parametrize("load_s", [2.0, 20.0])
def test_a_lone_user_of_two_models_is_no_worse_off_than_in_order_of_arrival(
    depth: int, load_s: float
) -> None:
    count = 40
    client = ClientPlan(
        "user", Backlog(depth), count, models=dict.fromkeys("ab", 1.0), cycle_models=True
    )
    scenario = one_gpu("ab", (client,), SWAP_WAIT_S)
    node = replace(scenario.nodes[0], load_s=load_s)
    report = Simulation(replace(scenario, nodes=(node,)), seed=0).run()
    assert report.outcomes == {"served": count}
    mean_s, last_s = first_in_first_out(depth, load_s, count)
    assert report.users["user"].wait_s_mean <= mean_s + 1e-6
    loads_s = report.loads * load_s
    assert loads_s + count * SERVICE_S <= last_s + 1e-6  # one slot, never idle: the last answer


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(n, marks=pytest.mark.long) for n in range(8, 40))]
)
def test_in_any_fleet_a_cold_head_waits_no_longer_than_the_bound(seed: int) -> None:
    """Invariant 10, over slots, nodes, models, load times and traffic drawn at random."""
    random = Random(seed)
    models = "abcd"[: random.randint(2, 4)]
    load_s, service_s = random.choice((2.0, 5.0, 20.0)), random.choice((2.0, 8.0))
    slots, count = random.choice((1, 1, 2, 4)), random.choice((1, 1, 2))
    nodes = tuple(
        NodePlan(
            f"gpu{number}", slots=slots, models=tuple(models), swaps=True, load_s=load_s,
            service_s=Uniform(0.5 * service_s, service_s), loaded=(models[0],),
        )
        for number in range(count)
    )  # fmt: skip
    busy = ClientPlan("busy", Backlog(4 * slots * count), models={models[0]: 1.0})
    others = [
        ClientPlan(model, Poisson(random.choice((0.003, 0.02))), models={model: 1.0})
        for model in models[1:]
    ]
    options = Options(max_size=100_000, wait_s_max=1e9)
    scenario = Scenario(nodes, (busy, *others), options, duration_s=1200.0)
    waits_s = longest_waits_as_head(Simulation(scenario, seed).run())
    bound = SWAP_WAIT_S + len(models) * (load_s + RESIDENCE_LOADS * load_s + service_s)
    assert all(waited_s <= bound for waited_s in waits_s.values()), (waits_s, bound)
