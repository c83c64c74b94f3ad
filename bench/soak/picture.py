"""A soak as a page: what must stay flat, and the throughput, over time."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

from bench.soak.verdict import SERIES
from forebay.load.page import page
from forebay.load.report import Curve, Figure, Report, Section

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.soak.samples import Sample

POINTS_MAX = 180


def picture(samples: Sequence[Sample], every_s: float, title: str, summary: str) -> str:
    """Return the page of the samples, which were taken `every_s` seconds apart."""
    size = -(-len(samples) // POINTS_MAX)
    groups = [samples[start : start + size] for start in range(0, len(samples), size)]

    def figure(title: str, about: str, values: list[float | None]) -> Figure:
        span_s = len(groups) * every_s * size
        curves = [Curve(title, "p50", values)]
        return Figure(
            title=title, about=about, kind="lines", unit="count", span_s=span_s, curves=curves
        )

    def rate(total: Callable[[Sample], float]) -> list[float | None]:
        return [None, *(_growth(total, *pair) for pair in pairwise(samples[::size]))]

    figures = [
        *(
            figure(one.name, "Of the gateway.", [fmean(map(one.value, group)) for group in groups])
            for one in SERIES
        ),
        figure("requests", "Ended per second.", rate(lambda one: one.requests)),
        figure("processor time", "% of one core.", rate(lambda one: 100 * one.cpu_s)),
    ]
    report = Report(
        title=title, lines=summary.splitlines(), sections=[Section("Over time", figures)]
    )
    return page(report)


def _growth(total: Callable[[Sample], float], earlier: Sample, later: Sample) -> float:
    """Return by how much it grows in a second."""
    return (total(later) - total(earlier)) / max(later.at_s - earlier.at_s, 1e-6)
