"""With a guard beside each node nothing gets more than its slots, whatever befalls the gateways."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.fleet import Fault, Trial, run_trial
from harness.fleet.schedule import LEADER

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.long
async def test_guards_hold_while_a_leader_freezes_and_a_gateway_is_cut_off(tmp_path: Path) -> None:
    schedule = (Fault(1.0, "freeze", LEADER, 2.0), Fault(7.5, "cut", 1, 2.5))
    verdict = await run_trial(
        Trial(gateways=2, schedule=schedule, served=100, guards=True), tmp_path
    )
    assert verdict.wrong == []
    assert verdict.figures["over-commits"] == 0


async def test_guards_hold_even_between_gateways_that_do_not_talk(tmp_path: Path) -> None:
    """The control has no coordination at all, and over-commits at once where there is no guard."""
    verdict = await run_trial(
        Trial(coordinated=False, calm_s=4.0, served=20, guards=True), tmp_path
    )
    assert verdict.figures["over-commits"] == 0
