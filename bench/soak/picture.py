"""One picture of a soak: memory, descriptors, slots, tasks and throughput over time, as SVG."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

from bench.soak.verdict import MIB
from forebay.load.charts import Curve, count, linear, square, tick, timeline
from forebay.load.html import Markup, tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bench.soak.samples import Sample

POINTS_MAX = 180
WIDTH, HEIGHT = 380.0, 210.0
LEFT, GAP, TITLE_HEIGHT, HEADING = 54.0, 30.0, 30.0, 44.0
STYLE = """
svg { font: 13px system-ui, sans-serif; --ink:#1c2126; --soft:#5a636d; --grid:#e9ecee;
  --page:#ffffff; --s1:#1f63c4; --s2:#b4530a; --s3:#0b7f74 }
@media (prefers-color-scheme: dark) { svg { --ink:#e8eaec; --soft:#a2abb4; --grid:#2a3036;
  --page:#14171a; --s1:#74adff; --s2:#f2a061; --s3:#45cdbc } }
.page { fill:var(--page) } .head { fill:var(--ink); font-weight:600 } .title { font-size:16px }
path { fill:none; vector-effect:non-scaling-stroke } .grid { stroke:var(--grid) }
.mark { fill:var(--soft); font-size:12px } .end { text-anchor:end } .middle { text-anchor:middle }
.line { stroke-width:1.8 } .s1 { stroke:var(--s1) } .s2 { stroke:var(--s2); stroke-dasharray:7 3 }
.s3 { stroke:var(--s3); stroke-dasharray:2 3 }
"""


def picture(samples: Sequence[Sample], every_s: float, title: str) -> str:
    """Draw the samples, which were taken `every_s` seconds apart."""
    size = -(-len(samples) // POINTS_MAX)
    groups = [samples[start : start + size] for start in range(0, len(samples), size)]
    width_s = every_s * size

    def curve(name: str, colour: int, values: Iterable[float | None]) -> Curve:
        return Curve(name, [((i + 0.5) * width_s, v) for i, v in enumerate(values)], f"s{colour}")

    def line(name: str, colour: int, value: Callable[[Sample], float]) -> Curve:
        return curve(name, colour, (fmean(map(value, group)) for group in groups))

    def rate(name: str, total: Callable[[Sample], float]) -> Curve:
        found = [None, *(_growth(total, *pair) for pair in pairwise(samples))]
        return curve(name, 1, (_mean(found[at : at + size]) for at in range(0, len(found), size)))

    plots = {
        "Memory of the gateway, MiB": [line("RSS", 1, lambda one: one.rss_bytes / MIB)],
        "Descriptors (solid), clients (dashed)": [
            line("descriptors", 1, lambda one: one.fds),
            line("clients", 2, lambda one: one.present),
        ],
        "Slots taken (solid), waiting (dashed)": [
            line("slots", 1, lambda one: one.slots),
            line("waiting", 2, lambda one: one.waiting),
        ],
        "Threads (solid), tasks (dashed), sessions (dotted)": [
            line("threads", 1, lambda one: one.threads),
            line("tasks", 2, lambda one: one.told.get("tasks", 0.0)),
            line("sessions", 3, lambda one: one.sessions),
        ],
        "Requests ended per second": [rate("requests", lambda one: one.requests)],
        "Processor time of the gateway, % of one core": [
            rate("processor", lambda one: 100 * one.cpu_s)
        ],
    }
    return _sheet(plots, len(groups) * width_s, title)


def _growth(total: Callable[[Sample], float], earlier: Sample, later: Sample) -> float:
    """Return by how much it grows in a second."""
    return (total(later) - total(earlier)) / max(later.at_s - earlier.at_s, 1e-6)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _sheet(plots: dict[str, list[Curve]], span_s: float, title: str) -> str:
    width = 2 * (LEFT + WIDTH + GAP)
    row_height = TITLE_HEIGHT + HEIGHT + 2 * GAP
    height = HEADING + (len(plots) + 1) // 2 * row_height
    pieces = [
        tag("title", title),
        tag("style", Markup(STYLE)),
        tag("rect", width=width, height=height, class_="page"),
        tag("text", title, x=GAP, y=28.0, class_="head title"),
    ]
    for place, (name, curves) in enumerate(plots.items()):
        x = LEFT + place % 2 * (LEFT + WIDTH + GAP)
        y = HEADING + place // 2 * row_height + TITLE_HEIGHT
        pieces.append(tag("text", name, x=x, y=y - 12, class_="head"))
        pieces += _plot(name, curves, span_s, x, y)
    return tag(
        "svg", *pieces, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width:.0f} {height:.0f}",
        role="img",
    )  # fmt: skip


def _plot(name: str, curves: list[Curve], span_s: float, x: float, y: float) -> list[Markup]:
    across = timeline(span_s)
    up = linear(max(v for curve in curves for _, v in curve.points if v is not None))
    pieces = [square(name, curves, across, up, x=x, y=y, width=WIDTH, height=HEIGHT)]
    for mark in up.marks():
        at = y + HEIGHT * (1 - up.place(mark)) + 4
        pieces.append(tag("text", count(mark), x=x - 6, y=at, class_="mark end"))
    for mark in across.marks():
        at = x + WIDTH * across.place(mark)
        pieces.append(tag("text", tick(mark), x=at, y=y + HEIGHT + 18, class_="mark middle"))
    return pieces
