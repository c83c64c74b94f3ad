"""One picture of a soak: memory, descriptors, slots, tasks and throughput over time, as SVG."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

from bench.soak.verdict import MIB
from forebay.load.charts import HEIGHT, WIDTH, ChartLine, over_time
from forebay.load.html import Markup, tag

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.soak.samples import Sample

POINTS_MAX = 180
GAP, TITLE_HEIGHT, HEADING = 24.0, 26.0, 40.0
STYLE = """
svg { font: 13px system-ui, sans-serif; --ink:#1c2126; --soft:#5a636d; --grid:#e9ecee;
  --page:#ffffff; --s1:#1f63c4; --s2:#b4530a; --s3:#0b7f74 }
@media (prefers-color-scheme: dark) { svg { --ink:#e8eaec; --soft:#a2abb4; --grid:#2a3036;
  --page:#14171a; --s1:#74adff; --s2:#f2a061; --s3:#45cdbc } }
.page { fill:var(--page) } .head { fill:var(--ink); font-weight:600 } .title { font-size:16px }
.grid { stroke:var(--grid) } .axis { stroke:var(--soft) } .mark { fill:var(--soft); font-size:12px }
.end { text-anchor:end } .middle { text-anchor:middle } .hint { fill:transparent }
.line { fill:none; stroke-width:1.8 } .line.s1 { stroke:var(--s1) }
.line.s2 { stroke:var(--s2); stroke-dasharray:7 3 }
.line.s3 { stroke:var(--s3); stroke-dasharray:2 3 }
.dot.s1 { fill:var(--s1) } .dot.s2 { fill:var(--s2) } .dot.s3 { fill:var(--s3) }
"""


def picture(samples: Sequence[Sample], every_s: float, title: str) -> str:
    """Draw the samples, which were taken `every_s` seconds apart."""
    size = -(-len(samples) // POINTS_MAX)
    groups = [samples[start : start + size] for start in range(0, len(samples), size)]
    width_s = every_s * size

    def line(name: str, colour: int, value: Callable[[Sample], float]) -> ChartLine:
        return ChartLine(name, [fmean(map(value, group)) for group in groups], colour)

    def rate(name: str, total: Callable[[Sample], float]) -> ChartLine:
        found = [None, *(_growth(total, *pair) for pair in pairwise(samples))]
        return ChartLine(
            name, [_mean(found[at : at + size]) for at in range(0, len(found), size)], 1
        )

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
    return _sheet(plots, width_s, title)


def _growth(total: Callable[[Sample], float], earlier: Sample, later: Sample) -> float:
    """Return by how much it grows in a second."""
    return (total(later) - total(earlier)) / max(later.at_s - earlier.at_s, 1e-6)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _sheet(plots: dict[str, list[ChartLine]], width_s: float, title: str) -> str:
    width = 2 * WIDTH + 3 * GAP
    row_height = HEIGHT + TITLE_HEIGHT + GAP
    height = HEADING + (len(plots) + 1) // 2 * row_height
    pieces = [
        tag("title", title),
        tag("style", Markup(STYLE)),
        tag("rect", width=width, height=height, class_="page"),
        tag("text", title, x=GAP, y=28.0, class_="head title"),
    ]
    for place, (name, lines) in enumerate(plots.items()):
        x = GAP + place % 2 * (WIDTH + GAP)
        y = HEADING + place // 2 * row_height
        pieces.append(tag("text", name, x=x, y=y + 16, class_="head"))
        plot = over_time(f"p{place}", name, lines, width_s, "")
        where = (
            f'<svg x="{x:.0f}" y="{y + TITLE_HEIGHT:.0f}" width="{WIDTH:.0f}" height="{HEIGHT:.0f}"'
        )
        pieces.append(Markup(plot.replace("<svg", where, 1)))
    return tag(
        "svg", *pieces, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width:.0f} {height:.0f}",
        role="img",
    )  # fmt: skip
