"""What the gateway uses, looked at from outside: /proc and /metrics."""

from __future__ import annotations

import os
import re
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from bench.soak.stage import Stage

SERIES = re.compile(r"^(\w+)(\{[^}]*\})? ([0-9.e+-]+)$", re.MULTILINE)
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
OPTIONAL = ("leases", "leases_orphaned_total", "connections", "body_bytes", "tasks")
"""Metrics that a gateway may not have yet; what it does not tell is not judged."""


class Sample(Struct):
    """One look. Counts are of the moment, `requests` and `cpu_s` since the start."""

    at_s: float
    rss_bytes: int
    fds: int
    threads: int
    cpu_s: float
    """Of the gateway alone."""
    all_cpu_s: float
    """Of the gateway, the running nodes and the soak itself."""
    health_s: float
    """How long `/metrics` took to answer."""
    slots: float
    waiting: float
    jobs_open: float
    sessions: float
    requests: float
    outcomes: dict[str, float]
    told: dict[str, float]
    """The optional metrics, without their prefix."""
    sent: int = 0
    present: int = 0


class Sampler:
    """Takes samples of one gateway."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._start_s = monotonic()

    async def take(self) -> Sample:
        begun_s = monotonic()
        reply = await self._stage.ask("GET", "/metrics")
        health_s = monotonic() - begun_s
        found = SERIES.findall(reply.body.decode())
        pid = self._stage.gateway.pid
        folder = Path(f"/proc/{pid}")
        nodes = [node.program.pid for node in self._stage.nodes if node.program.pid]
        return Sample(
            at_s=round(begun_s - self._start_s, 3),
            rss_bytes=int((folder / "statm").read_text().split()[1]) * PAGE_BYTES,
            fds=len(os.listdir(folder / "fd")),
            threads=len(os.listdir(folder / "task")),
            cpu_s=cpu_s(pid),
            all_cpu_s=sum(cpu_s(one) for one in (pid, os.getpid(), *nodes)),
            health_s=round(health_s, 4),
            slots=_sum(found, "forebay_node_in_flight"),
            waiting=_sum(found, "forebay_queue_depth"),
            jobs_open=_sum(found, "forebay_jobs", "queued") + _sum(found, "forebay_jobs", "runn"),
            sessions=_sum(found, "forebay_sessions"),
            requests=_sum(found, "forebay_requests_total"),
            outcomes=_outcomes(found),
            told=_told(found),
        )


def cpu_s(pid: int) -> float:
    """Return the processor time that a program has used; 0 for one that has just ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def _sum(found: list[tuple[str, str, str]], name: str, label: str = "") -> float:
    return sum(
        float(value) for series, labels, value in found if series == name and label in labels
    )


def _told(found: list[tuple[str, str, str]]) -> dict[str, float]:
    """Return the optional metrics; connections to nodes are kept in pools, and left out."""
    told: dict[str, float] = {}
    for series, labels, value in found:
        name = series.removeprefix("forebay_")
        if name in OPTIONAL and 'side="node"' not in labels:
            told[name] = told.get(name, 0.0) + float(value)
    return told


def _outcomes(found: list[tuple[str, str, str]]) -> dict[str, float]:
    counted: dict[str, float] = {}
    for series, labels, value in found:
        if series == "forebay_requests_total":
            outcome = re.search(r'outcome="([^"]*)"', labels)
            key = outcome[1] if outcome else "?"
            counted[key] = counted.get(key, 0.0) + float(value)
    return counted
