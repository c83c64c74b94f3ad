"""Real gateways, a real store, a network that fails: outsiders see what was promised.

More of them, drawn from seeds: make faults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.fleet import Fault, Trial, run_trial
from harness.fleet.order_checks import unfairness
from harness.fleet.schedule import LEADER

if TYPE_CHECKING:
    from pathlib import Path

LEASE_S = 1.0
STORE = -1
SERVED = 100
"""Enough to have seen something; a tenth of what a quiet machine serves in that time."""

SCHEDULES = {
    "the leader is killed, and the next one frozen past its lease": (
        Fault(1.0, "kill", LEADER, 1.0),
        Fault(7.0, "freeze", LEADER, 2.0),
    ),
    "one is cut off from the store, and another thrown out": (
        Fault(1.0, "cut", 1, 2.5),
        Fault(8.5, "refuse", 2, 1.5),
    ),
    "the store dies and comes back empty, is paused, and forgets": (
        Fault(1.0, "kill_store", STORE, 1.5),
        Fault(7.5, "pause_store", STORE, 1.5),
        Fault(14.0, "flush_scripts", STORE, 0.0),
        Fault(14.5, "drop_clients", STORE, 0.0),
    ),
}


async def test_a_fleet_that_nothing_happens_to_works_as_one_gateway(tmp_path: Path) -> None:
    verdict = await run_trial(
        Trial(gateways=3, calm_s=5.0, served=SERVED, lease_s=LEASE_S), tmp_path
    )
    assert verdict.wrong == []
    assert verdict.figures["over-commits"] == 0
    assert unfairness(verdict.journal, "ann", "bob") <= FAIR


FAIR = 8
"""By how many requests one of two users may be ahead while both wait: turns of three gateways and
three slots, and clients that come back at different times. Without coordination it is near 20."""


LONG = "the store dies and comes back empty, is paused, and forgets"
"""The same faults, one by one and against the coordinators alone: tests/coordination."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name == LONG)) for name in SCHEDULES]
)
async def test_the_promises_hold_while(name: str, tmp_path: Path) -> None:
    trial = Trial(gateways=2, schedule=SCHEDULES[name], served=SERVED, lease_s=LEASE_S)
    verdict = await run_trial(trial, tmp_path)
    assert verdict.wrong == []
