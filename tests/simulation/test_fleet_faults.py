"""Rows 37, 39-42, 44 and 45 of the faults, one by one, in virtual time: real replicas throughout.

`play` checks every promise of the fleet from outside (see `harness.fleet_simulation`); each
test adds what its row says beside that. The arrivals are more than the slots can serve, so that a
slot which is not given back is missed.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from forebay.core import Options
from harness.fleet_simulation import Fault, FleetPlan, FleetSimulation, failure, play

if TYPE_CHECKING:
    from harness.fleet_simulation import FleetReport
    from harness.fleet_simulation.plans import FaultKind

LEASE_S = 2.0
SLOTS: dict[str, tuple[int, tuple[str, ...]]] = {"gpu1": (3, ("llama",)), "gpu2": (2, ("llama",))}
SLOTS_MAX = 3
"""Of one node."""
BUSY = FleetPlan(
    seed=3,
    replicas=3,
    lease_s=LEASE_S,
    nodes=SLOTS,
    options=Options(max_size=50, wait_s_max=20.0),
    arrivals_per_s=8.0,
)
LEADER = -1
FIRST_S = 7.0
"""When the first fault begins: by then there is a queue."""
CALM_S = 2 * LEASE_S + 2.0
"""How long a fault has effects after its end, and some time without any."""
CALL_S = 0.1
"""How long a call to the store may take."""


def befallen(kind: FaultKind, for_s: float, *replicas: int) -> FleetPlan:
    """Return the busy fleet with one such fault after the other."""
    every_s = for_s + CALM_S
    faults = tuple(
        Fault(FIRST_S + every_s * number, kind, for_s, replica)
        for number, replica in enumerate(replicas)
    )
    return replace(BUSY, faults=faults, duration_s=FIRST_S + every_s * len(replicas))


def longest_pause_s(report: FleetReport) -> float:
    """Return the longest time in which nothing started while there was always somebody waiting."""
    starts_s = [at_s for at_s, _ in report.starts if at_s < report.plan.duration_s]
    return max(later - earlier for earlier, later in pairwise(starts_s))


@pytest.mark.parametrize("replica", [LEADER, 1, 2])
def test_fault_37_the_slots_of_a_killed_replica_are_free_within_two_leases(replica: int) -> None:
    away_s = 5 * LEASE_S  # longer than any lease
    report = play(befallen("kill", away_s, replica, replica))
    assert report.counts["fault: kill"] == 2
    assert longest_pause_s(report) < 2 * LEASE_S
    free_s, back_s = FIRST_S + 2 * LEASE_S, FIRST_S + away_s
    served_meanwhile = [at_s for at_s, _ in report.starts if free_s < at_s < back_s]
    assert len(served_meanwhile) > 5 * (back_s - free_s) / 2  # half of what five slots serve then


@pytest.mark.parametrize("kind", ["store_down", "store_paused", "store_slow"])
def test_fault_39_a_second_after_its_first_call_in_vain_each_is_on_its_own_share(
    kind: FaultKind,
) -> None:
    simulation = FleetSimulation(befallen(kind, 10.0, 0))
    modes: list[str] = []

    def look() -> None:
        modes.extend(one.replica.mode for one in simulation.gateways.values())

    first_call_s = FIRST_S + LEASE_S / 3 + CALL_S  # at the latest: the next sign of life
    simulation.world.call_at(first_call_s + 1.0 + CALL_S, look)
    report = simulation.run()
    assert not report.problems, failure(report)
    assert modes == ["alone"] * 3
    assert report.counts["starts alone"] > 10
    assert longest_pause_s(report) < 2 * LEASE_S


def test_fault_40_a_store_that_lost_its_data_is_told_everything_under_a_new_epoch() -> None:
    simulation = FleetSimulation(befallen("store_emptied", 1.0, 0))
    epochs: dict[str, set[int]] = {"before": set(), "after": set()}

    def look(when: str) -> None:
        epochs[when] = {one.replica.epoch for one in simulation.gateways.values()}

    simulation.world.call_at(FIRST_S - 1.0, lambda: look("before"))
    simulation.world.call_at(FIRST_S + 1.0 + 3 * LEASE_S, lambda: look("after"))
    report = simulation.run()
    assert not report.problems, failure(report)
    assert len(epochs["before"]) == len(epochs["after"]) == 1
    assert max(epochs["after"]) > max(epochs["before"])


@pytest.mark.parametrize("seed", range(5))
def test_fault_41_a_failover_that_loses_a_second_over_commits_within_the_slots_and_briefly(
    seed: int,
) -> None:
    report = play(replace(befallen("failover", 1.0, 0, 0), seed=seed))
    assert report.counts["fault: failover"] == 2
    assert report.overcommit_max <= SLOTS_MAX  # and `play`: none later than two leases after it
    assert report.counts["over-commits"] <= 3  # grants of that second; six without announcements


@pytest.mark.parametrize(("kind", "mode"), [("partition", "cut_off"), ("isolate", "alone")])
@pytest.mark.parametrize("replica", [LEADER, 1])
def test_fault_42_a_replica_that_is_cut_off_fences_itself_and_the_slots_do_not_multiply(
    kind: FaultKind, mode: str, replica: int
) -> None:
    """Where the others answer it that they go on, it starts nothing; else it has its share."""
    simulation = FleetSimulation(befallen(kind, 5 * LEASE_S, replica, replica))
    modes: list[str] = []

    def look() -> None:
        modes.extend(one.replica.mode for one in simulation.gateways.values())

    simulation.world.call_at(FIRST_S + 2 * LEASE_S, look)
    report = simulation.run()
    assert not report.problems, failure(report)
    assert sorted(modes) == sorted([mode, "coordinated", "coordinated"])
    assert report.overcommit_max <= SLOTS_MAX
    assert longest_pause_s(report) < 2 * LEASE_S


@pytest.mark.parametrize("seed", range(5))
def test_fault_44_clocks_that_differ_in_zero_and_rate_change_nothing(seed: int) -> None:
    """Each replica's clock begins anywhere within a day; nobody compares two of them."""
    report = play(replace(befallen("kill", 5.0, LEADER, 1), seed=seed, drift=0.01))
    assert longest_pause_s(report) < 2 * LEASE_S


# The last two see it where a replica believes in old loans; the first is the leader.
@pytest.mark.parametrize(("seed", "replica"), [(2, LEADER), (5, 1), (7, 2)])
def test_fault_45_a_replica_frozen_for_a_minute_starts_nothing_by_what_it_was_granted_before(
    seed: int, replica: int
) -> None:
    report = play(replace(befallen("freeze", 60.0, replica), seed=seed))
    assert report.counts["fault: freeze"] == 1
    assert longest_pause_s(report) < 2 * LEASE_S
