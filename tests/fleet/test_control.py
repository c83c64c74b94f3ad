"""Trials whose outcome is known: one gateway alone is right; two that do not talk are found out,
and so are two that talk but believe in their leases for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.fleet import Fault, Trial, run_trial
from harness.fleet.schedule import LEADER

if TYPE_CHECKING:
    from pathlib import Path

WITHOUT_LEASES = """
from forebay.cli.main import main
from forebay.coordination.follower import follower
from forebay.coordination import store_tasks as links
from forebay.coordination import roles
follower.USABLE = roles.USABLE = links.BREAKER_S = 1e6
main()
"""
"""A gateway that never doubts: neither that it leads, nor that it may use what was lent to it."""


async def test_one_gateway_keeps_every_promise(tmp_path: Path) -> None:
    verdict = await run_trial(Trial(gateways=1, coordinated=False, calm_s=4.0, served=50), tmp_path)
    assert verdict.wrong == []
    assert verdict.figures["over-commits"] == 0


async def test_two_gateways_without_coordination_are_found_out(tmp_path: Path) -> None:
    verdict = await run_trial(Trial(gateways=2, coordinated=False, calm_s=4.0), tmp_path)
    assert any(one.startswith("over-committed") for one in verdict.wrong)
    assert verdict.figures["over-committed most"] >= 1


async def test_gateways_that_never_doubt_their_leases_are_found_out(tmp_path: Path) -> None:
    script = tmp_path / "without_leases.py"
    script.write_text(WITHOUT_LEASES)
    trial = Trial(schedule=(Fault(1.0, "cut", LEADER, 4.0),), command=(str(script),))
    verdict = await run_trial(trial, tmp_path)
    assert any(one.startswith("over-committed beyond the promise") for one in verdict.wrong)


@pytest.mark.long
async def test_the_same_gateways_with_leases_are_not(tmp_path: Path) -> None:
    verdict = await run_trial(Trial(schedule=(Fault(1.0, "cut", LEADER, 4.0),)), tmp_path)
    assert verdict.wrong == []
