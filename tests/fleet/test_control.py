"""Trials whose outcome is known: one gateway alone is right, two that do not talk are wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.testing.fleet import Trial, run_trial

if TYPE_CHECKING:
    from pathlib import Path


async def test_one_gateway_keeps_every_promise(tmp_path: Path) -> None:
    verdict = await run_trial(Trial(gateways=1, coordinated=False, calm_s=4.0), tmp_path)
    assert verdict.wrong == []
    assert verdict.figures["answered 200"] > 50, verdict.figures
    assert verdict.figures["over-commits"] == 0


async def test_two_gateways_without_coordination_are_found_out(tmp_path: Path) -> None:
    verdict = await run_trial(Trial(gateways=2, coordinated=False, calm_s=4.0), tmp_path)
    assert any(one.startswith("over-committed") for one in verdict.wrong)
    assert verdict.figures["over-committed most"] >= 1
