"""Access logs as a gateway would have written them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from forebay.core import Options
from forebay.gateway.hot.access_record import AccessRecord, json_lines
from forebay.planning.fleet import PlannedNode
from forebay.planning.replay import ReplayPlan, replay
from forebay.planning.traffic import TrafficRequest

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.planning.replay import Replayed

BEGAN_S = 1_800_000_000.0


def line(at_s: float, *, waited_s: float = 0.0, run_s: float = 1.0, **more: Any) -> AccessRecord:
    """Return the line of a request that was served, unless `more` says otherwise."""
    time = datetime.fromtimestamp(BEGAN_S + at_s + waited_s + run_s, UTC)
    facts: dict[str, Any] = {
        "route": "/v1/chat/completions", "outcome": "served", "id": f"r{at_s}", "model": "m",
        "node": "n1", "status": 200, "attempt": 1, "prompt_tokens": 100, "output_tokens": 10,
        "arrived": BEGAN_S + at_s, "priority": "normal", "user_hash": "aa",
        "waited_ms": round(waited_s * 1000), "run_ms": round(run_s * 1000),
    }  # fmt: skip
    return AccessRecord(time=time.isoformat(timespec="milliseconds"), **{**facts, **more})


def refused(at_s: float, code: str = "queue_full", **more: Any) -> AccessRecord:
    return line(at_s, run_s=0.0, outcome=code, node="", status=0, output_tokens=0, **more)


def write(path: Path, *lines: AccessRecord) -> Path:
    path.write_bytes(json_lines(lines))
    return path


def request(at_s: float, service_s: float = 1.0, **more: Any) -> TrafficRequest:
    return TrafficRequest(at_s, more.pop("model", "m"), service_s=service_s, **more)


def play(
    requests: list[TrafficRequest], *nodes: PlannedNode, load_s: float = 0.0, **options: Any
) -> Replayed:
    """Replay on these nodes; on one with one slot where none is named."""
    models = tuple({one.model: None for one in requests})
    fleet = list(nodes) or [PlannedNode("n1", 1, models)]
    return replay(requests, ReplayPlan(fleet, Options(**options), load_s))


def waits(replayed: Replayed) -> list[float | None]:
    return [sample.wait_s for sample in replayed.samples]
