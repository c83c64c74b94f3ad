"""Gateways that are not alike: other settings, and clocks an hour apart."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.fleet import Fault, Fleet, FleetPlan, NodePlan, RecordingNode, Trial, run_trial
from harness.fleet.asking import answers, ask
from harness.fleet.schedule import LEADER

if TYPE_CHECKING:
    from forebay.testing import Reply

FAKE_TIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))


def hour_off(sign: str) -> dict[str, str]:
    """Put the time of day off; time as it passes stays what it is, as on a real machine."""
    return {
        "LD_PRELOAD": str(FAKE_TIME[0]),
        "FAKETIME": f"{sign}1h",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


async def test_a_gateway_with_other_settings_is_seen_by_all(tmp_path: Path) -> None:
    async with RecordingNode("gpu1", 1, []) as node:
        plan = FleetPlan(
            gateways=3,
            nodes=(NodePlan("gpu1", 1, node.url),),
            variables={2: {"FOREBAY_QUEUE__MAX_SIZE": "7"}},
        )
        async with Fleet(plan, tmp_path) as fleet:
            for gateway in fleet.gateways:
                await answers(gateway.port, "/v1/queue", gateway, _knows_three)
            alike = [await _alike(fleet, number) for number in range(3)]
            assert alike == [
                [True, False, True],
                [False, True, False],
                [True, False, True],
            ]
            metrics = (await ask(fleet.ports[0], "/metrics")).body.decode()
            assert 'forebay_replicas_differing{what="settings"} 1.0' in metrics
        logs = await asyncio.to_thread(_warnings, tmp_path)
        # Who differs depends on who leads, and on a busy machine that may change.
        said = [[line["leader"] for line in log if line["message"] == DIFFERS] for log in logs]
        assert any(said)
        assert [sorted(set(one)) for one in said] == [sorted(one) for one in said], (
            "nobody says it twice of one leader"
        )
        assert {line["message"] for log in logs for line in log} == {DIFFERS}


DIFFERS = "settings differ from the leader's, which decide for all: queue.max_size"


def _warnings(folder: Path) -> list[list[dict[str, Any]]]:
    """Return what each gateway has logged of differences, in the order of the fleet."""
    logs = [path.read_text().splitlines() for path in sorted(folder.glob("gateway-*/*.log"))]
    read = [[json.loads(line) for line in log if line[:1] == "{"] for log in logs]
    return [[line for line in log if "differ" in line["message"]] for log in read]


def _knows_three(reply: Reply) -> bool:
    return len(reply.json["fleet"]["replicas"]) == 3


async def _alike(fleet: Fleet, number: int) -> list[bool]:
    """Return, in the order of the fleet, whom a gateway holds to have settings like its own."""
    told: Any = (await ask(fleet.ports[number], "/v1/queue")).json["fleet"]
    by_port = {
        int(one["address"].rpartition(":")[2]): one["same_settings"] for one in told["replicas"]
    }
    return [by_port[port] for port in fleet.ports]


@pytest.mark.long
@pytest.mark.skipif(not FAKE_TIME, reason="the package 'libfaketime' is not installed")
async def test_clocks_an_hour_apart_change_nothing(tmp_path: Path) -> None:
    trial = Trial(
        gateways=3,
        schedule=(Fault(1.0, "kill", LEADER, 0.5),),
        served=20,
        variables={1: hour_off("+"), 2: hour_off("-")},
    )
    verdict = await run_trial(trial, tmp_path)
    assert verdict.wrong == []
    dates = await asyncio.to_thread(_hours_of_logs, tmp_path)
    assert len(dates) == 3, "the clocks were not an hour apart"


def _hours_of_logs(folder: Path) -> set[str]:
    """Return the hours of day in which the gateways began, as they say themselves."""
    logs = [path.read_text() for path in folder.glob("gateway-*/*.log")]
    return {text.partition('"time":"')[2][:13] for text in logs}
