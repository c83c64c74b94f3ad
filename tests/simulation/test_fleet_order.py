"""Several replicas decide as one core would: the same starts at the same times, in any order."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from forebay.core import Options
from harness.fleet_simulation import FleetPlan, play

SEEDS = 10


def peaceful_plan(seed: int, *, delay_s: float = 0.0) -> FleetPlan:
    """Return a world without faults, where every node serves every model."""
    random = Random(f"order/{seed}")
    strict = random.random() < 0.5
    count = random.randint(1, 3) if strict else 1  # shares of classes and lanes are kept by node
    models: tuple[str, ...] = ("llama", "qwen") if count == 1 else ("llama",)
    nodes = {f"gpu{n}": (random.choice((1, 2, 4)), models) for n in range(count)}
    slots = sum(count for count, _ in nodes.values())
    options = Options(
        max_size=random.choice((0, 3, 20)),
        wait_s_max=random.choice((2.0, 20.0)),
        fairness=random.choice(("round_robin", "tokens", "fifo")),
        class_order="strict" if strict else "weighted",
        when_full=random.choice(("class", "displace", "reject")),
        aging_s=0.0 if strict else random.choice((0.0, 1.0)),
    )
    return FleetPlan(
        seed=seed,
        replicas=random.randint(2, 5),
        nodes=nodes,
        options=options,
        arrivals_per_s=random.choice((0.5, 0.9, 1.3)) * slots,
        duration_s=20.0,
        users=random.randint(1, 4),
        delay_s=delay_s,
        leaves=random.choice((0.0, 0.2)),
    )


@pytest.mark.parametrize("seed", range(SEEDS))
def test_without_delays_several_replicas_are_one_core(seed: int) -> None:
    """On one node: of several, what ran on lent slots is known later, and so is which is faster."""
    plan = peaceful_plan(seed)
    (models,) = {models for _, models in plan.nodes.values()}
    slots = sum(count for count, _ in plan.nodes.values())
    plan = replace(plan, nodes={"gpu0": (slots, models)})
    one, several = play(replace(plan, replicas=1)), play(plan)
    assert several.outcomes == one.outcomes
    assert [name for _, name in several.starts] == [name for _, name in one.starts]
    times_s = [start_s for start_s, _ in one.starts]
    assert [start_s for start_s, _ in several.starts] == pytest.approx(times_s)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_with_delays_the_order_breaks_only_on_lent_slots_and_rarely(seed: int) -> None:
    report = play(peaceful_plan(seed, delay_s=0.002))
    assert report.counts["inversions on lent slots"] <= 0.02 * report.counts["starts"]
    assert report.counts["over-commits"] == 0
