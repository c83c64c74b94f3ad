"""Random fleets with random faults, checked from outside; and that the checker would see a bug."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace

import pytest

from forebay.coordination.follower.follower import Follower
from forebay.coordination.leader import deferred_decisions
from forebay.coordination.protocol.wire_ids import WireIds
from forebay.coordination.roles import Roles
from forebay.core import Arrived, Options
from harness.fleet_simulation import (
    Fault,
    FleetPlan,
    FleetSimulation,
    Keyspace,
    failure,
    play,
    random_plan,
)
from harness.fleet_simulation.wire_checks import WireChecker

SEEDS = [1_000_000 + more for more in (0, 6, 8, 9, 11, 20, 21, 29, 34, 50)]
"""Small worlds, two to five replicas, with 69 faults of every kind: they find broken rules as often
as large ones. Apart from those that `python -m harness.fleet_simulation` begins with."""

BUSY = FleetPlan(
    seed=7,
    replicas=3,
    lease_s=2.0,
    nodes={"gpu1": (3, ("llama",)), "gpu2": (2, ("llama",))},
    options=Options(max_size=50, wait_s_max=20.0),
    arrivals_per_s=8.0,
    duration_s=30.0,
)


CAUGHT = 0
SNUBBED = 13
OLD_GRANT = 910213
STALE_TIMER = 3000025


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds_in_random_fleets(seed: int) -> None:
    play(random_plan(seed))


def test_the_same_seed_gives_the_same_world() -> None:
    first, second = (FleetSimulation(random_plan(4)).run() for _ in range(2))
    assert first.trace == second.trace
    assert first.counts == second.counts


class Unfenced(Keyspace):
    """A store that lets anyone speak for the fleet, and gives the lease away all the same."""

    def is_fenced(self, token: str, now_s: float) -> bool:
        return True


def frozen_leader(seed: int) -> FleetPlan:
    faults = tuple(Fault(5.0 + 8.0 * n, "freeze", 5.0, -1) for n in range(4))
    return replace(BUSY, seed=seed, faults=faults, duration_s=45.0)


def test_leases_disabled_are_caught_and_the_failure_says_how_to_replay_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play(frozen_leader(0))
    monkeypatch.setattr(Roles, "step_down", lambda *_: None)
    report = FleetSimulation(frozen_leader(0), keyspace=Unfenced).run()
    assert report.problems
    assert "--seed 0" in failure(report)


def cut_followers(seed: int) -> FleetPlan:
    faults = tuple(Fault(5.0 + 9.0 * n, "freeze", 5.0, n % 3) for n in range(4))
    nodes: dict[str, tuple[int, tuple[str, ...]]] = {"gpu1": (5, ("llama",))}
    return replace(BUSY, seed=seed, nodes=nodes, faults=faults, duration_s=45.0, arrivals_per_s=3.0)


def test_loans_that_never_end_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    play(cut_followers(CAUGHT))
    monkeypatch.setattr(Follower, "may_use_loans", lambda *_: True)
    assert FleetSimulation(cut_followers(CAUGHT)).run().problems


def test_refusals_beside_slots_on_loan_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    play(random_plan(SNUBBED))
    monkeypatch.setattr(deferred_decisions, "AVOIDABLE", ())
    assert "refused beside a free slot" in str(FleetSimulation(random_plan(SNUBBED)).run().problems)


def callers_ids(self: WireIds, arrival: Arrived) -> Arrived:
    self._wire[arrival.id] = self._own[arrival.id] = arrival.id
    return arrival


def test_an_old_grant_taken_by_an_id_that_is_used_again_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play(random_plan(OLD_GRANT))
    monkeypatch.setattr(WireIds, "_open", callers_ids)
    simulation = FleetSimulation(random_plan(OLD_GRANT))
    assert "uses the id" in str(simulation.run().problems)
    monkeypatch.setattr(WireChecker, "read", lambda *_: None)  # its effects are seen as well
    assert FleetSimulation(random_plan(OLD_GRANT)).run().problems


def test_a_timer_that_is_armed_for_the_past_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    play(random_plan(STALE_TIMER))
    monkeypatch.setattr(Follower, "tick", lambda *_: [])
    problems = FleetSimulation(random_plan(STALE_TIMER)).run().problems
    assert "time stands still" in str(problems)


def test_the_command_plays_many_seeds_and_replays_one() -> None:
    command = [sys.executable, "-m", "harness.fleet_simulation"]
    shown = subprocess.run([*command, "--seeds", "2"], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stdout
    assert "2/2 seeds, 0 failed" in shown.stdout
    assert re.search(r"^requests +\d{3,}$", shown.stdout, re.MULTILINE)
    shown = subprocess.run([*command, "--seed", "1"], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stdout
    assert shown.stdout.startswith("FleetPlan(")
