"""A soak as a page: memory, descriptors, slots, tasks and throughput over time."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

from bench.soak.verdict import MIB
from forebay.load.page import page
from forebay.load.report import Curve, Figure, Report, Section

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.soak.samples import Sample

POINTS_MAX = 180
LOOKS = ("p50", "p95", "class look-2")


def picture(samples: Sequence[Sample], every_s: float, title: str, summary: str) -> str:
    """Return the page of the samples, which were taken `every_s` seconds apart."""
    size = -(-len(samples) // POINTS_MAX)
    groups = [samples[start : start + size] for start in range(0, len(samples), size)]

    def figure(name: str, about: str, curves: dict[str, list[float | None]]) -> Figure:
        return Figure(
            title=name,
            about=about,
            kind="lines",
            unit="count",
            span_s=len(groups) * every_s * size,
            curves=[
                Curve(each, look, values)
                for (each, values), look in zip(curves.items(), LOOKS, strict=False)
            ],
        )

    def level(value: Callable[[Sample], float]) -> list[float | None]:
        return [fmean(map(value, group)) for group in groups]

    def rate(total: Callable[[Sample], float]) -> list[float | None]:
        return [None, *(_growth(total, *pair) for pair in pairwise(samples[::size]))]

    figures = [
        figure("Memory", "MiB of the gateway", {"RSS": level(lambda one: one.rss_bytes / MIB)}),
        figure("Connections", "Descriptors of the gateway, and the clients that are there.", {
            "descriptors": level(lambda one: one.fds),
            "clients": level(lambda one: one.present),
        }),
        figure("Slots", "Taken, and the requests that wait for one.", {
            "slots": level(lambda one: one.slots),
            "waiting": level(lambda one: one.waiting),
        }),
        figure("Tasks", "Threads and tasks of the gateway, and its sessions.", {
            "threads": level(lambda one: one.threads),
            "tasks": level(lambda one: one.told.get("tasks", 0.0)),
            "sessions": level(lambda one: one.sessions),
        }),
        figure("Requests", "Ended per second.", {"requests": rate(lambda one: one.requests)}),
        figure("Processor time", "Of the gateway, in % of one core.", {
            "processor": rate(lambda one: 100 * one.cpu_s),
        }),
    ]  # fmt: skip
    report = Report(
        title=title, lines=summary.splitlines(), sections=[Section("Over time", figures)]
    )
    return page(report)


def _growth(total: Callable[[Sample], float], earlier: Sample, later: Sample) -> float:
    """Return by how much it grows in a second."""
    return (total(later) - total(earlier)) / max(later.at_s - earlier.at_s, 1e-6)
