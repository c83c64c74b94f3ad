"""The plots of a report: curves and points in a square that the browser stretches.

There is no layout to compute: labels are HTML that CSS spreads evenly along the edges, so scales
only have evenly spaced marks, and strokes keep their width however the square is stretched. No
scripts and no fonts; colours are classes, so that the style decides them for light and dark.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from forebay.load.html import Markup, figure, legend, tag
from forebay.load.quantities import seconds, three_digits
from forebay.load.statistics import percentile

if TYPE_CHECKING:
    from collections.abc import Callable

SIDE = 1000
"""Of the square; whole units are finer than a screen shows."""
CURVES_MAX = 6
"""As many as there are colours that can be told apart."""
POINTS_MAX = 1500
"""Of each group, evenly thinned: enough to see the shape, and the file stays small."""
MARKS_MAX = 5
NEARLY = 0.9995
"""What is above a mark by no more than this is drawn at the mark."""
SMALLEST_S = 1e-6
MINUTES_FROM_S = 180.0
RANKS = (5, 25, 50, 75, 90, 95, 99)


class Curve(Struct, frozen=True):
    """Points that belong together; None for y leaves a gap."""

    name: str
    points: list[tuple[float, float | None]]
    look: str
    """The class of its colour and its dashes, `s1` to `s6`."""


class Scale(Struct, frozen=True):
    """Values from `low` to `high`, with a mark at the end of each of `parts` equal parts."""

    low: float
    high: float
    parts: int
    is_log: bool = False

    def place(self, value: float) -> float:
        """Return where a value is, from 0 to 1; what is beyond the scale is at its end."""
        low, high, at = self.low, self.high, min(self.high, max(self.low, value))
        if self.is_log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return (at - low) / (high - low)

    def marks(self) -> list[float]:
        """Return the values to write.

        >>> linear(37).marks(), durations([0.02, 0.03, 5]).marks()
        ([0.0, 10.0, 20.0, 30.0, 40.0], [0.01, 0.1, 1.0, 10.0])
        """
        parts = [i / self.parts for i in range(self.parts + 1)]
        if self.is_log:
            return [round(self.low * (self.high / self.low) ** part, 12) for part in parts]
        return [round(self.low + (self.high - self.low) * part, 12) for part in parts]


def linear(most: float) -> Scale:
    """Return a scale from 0 to a round number that is at least `most`."""
    most = max(most, SMALLEST_S)
    power = 10.0 ** math.floor(math.log10(most / MARKS_MAX))
    steps = (factor * power for factor in (1, 2, 2.5, 5, 10))
    step = next(size for size in steps if size * MARKS_MAX >= most * NEARLY)
    parts = max(1, math.ceil(most * NEARLY / step))
    return Scale(0.0, step * parts, parts)


def timeline(span_s: float) -> Scale:
    """Return a scale from 0 to a round time, of whole minutes where `tick` writes minutes."""
    unit_s = 60.0 if span_s >= MINUTES_FROM_S else 1.0
    scale = linear(span_s / unit_s)
    return Scale(0.0, scale.high * unit_s, scale.parts)


def durations(values: list[float]) -> Scale:
    """Return a scale for durations: by powers of ten where they differ by orders of magnitude."""
    positive = sorted(value for value in values if value > SMALLEST_S)
    if not positive or positive[-1] / percentile(positive, 5) < 30:
        return timeline(positive[-1] if positive else 1.0)
    low = math.floor(math.log10(max(percentile(positive, 5) / 2, positive[-1] / 1e5)))
    high = math.ceil(math.log10(positive[-1]))
    return Scale(10.0**low, 10.0**high, high - low, is_log=True)


def tick(value: float) -> str:
    """Return a time for an axis.

    >>> tick(0.25), tick(2), tick(90), tick(600), tick(0)
    ('250 ms', '2 s', '90 s', '10 min', '0')
    """
    if value == 0:
        return "0"
    if value < 1:
        return f"{value * 1000:.4g} ms"
    return f"{value:.4g} s" if value < MINUTES_FROM_S else f"{value / 60:.3g} min"


def count(value: float) -> str:
    """Return a count or a rate for an axis."""
    return f"{value:,.0f}" if value == int(value) else three_digits(value)


def square(
    described: str,
    curves: list[Curve],
    across: Scale,
    up: Scale,
    kind: str = "line",
    **attributes: object,
) -> Markup:
    """Return the curves and the grid as an SVG without labels; `kind` is "line" or "dots"."""
    heights = (SIDE * (1 - up.place(mark)) for mark in up.marks())
    grid = "".join(f"M0 {height:.0f}H{SIDE}" for height in heights)
    drawn = (
        tag("path", d=_path(curve.points, across, up, kind), class_=f"{kind} {curve.look}")
        for curve in curves
    )
    return tag(
        "svg",
        tag("path", d=grid, class_="grid"),
        *drawn,
        viewBox=f"0 0 {SIDE} {SIDE}",
        preserveAspectRatio="none",
        role="img",
        aria_label=described or "Nothing was measured.",
        **attributes,
    )


def plot(
    described: str,
    curves: list[Curve],
    x: tuple[Scale, str],
    y: tuple[Scale, Callable[[float], str]],
    kind: str = "line",
) -> Markup:
    """Return the curves with labels: `x` is a scale of time with its name."""
    (across, name), (up, write) = x, y
    ups = [tag("span", write(mark)) for mark in reversed(up.marks())]
    acrosses = [tag("span", tick(mark)) for mark in across.marks()]
    return tag(
        "div",
        tag("div", *ups, class_="up", aria_hidden="true"),
        square(described, curves, across, up, kind),
        tag("div", *acrosses, class_="across", aria_hidden="true"),
        tag("p", name, class_="name", aria_hidden="true"),
        class_="plot",
    )


def _path(points: list[tuple[float, float | None]], x: Scale, y: Scale, kind: str) -> str:
    """Return lines through the points, or a stroke without length at each, which is a dot."""
    words, is_down = [], False
    for at, value in points:
        if value is not None:
            move = "L" if is_down and kind == "line" else "M"
            words.append(f"{move}{SIDE * x.place(at):.0f} {SIDE * (1 - y.place(value)):.0f}")
            words.append("h0" if kind == "dots" else "")
        is_down = value is not None
    return "".join(words) or "M0 0"


def looks(names: list[str]) -> list[tuple[str, str]]:
    """Return the first names, each with a look of its own."""
    return [(name, f"s{i + 1}") for i, name in enumerate(names[:CURVES_MAX])]


def distribution(title: str, about: str, kind: str, groups: dict[str, list[float]]) -> Markup:
    """Return the share of answers that came within each time, one curve for each group.

    The values are sorted, and no group is empty.
    """
    shown = looks(list(groups))
    x = durations([value for values in groups.values() for value in values])
    curves = []
    for name, look in shown:
        values = groups[name]
        points: list[tuple[float, float | None]] = [(values[0], 0.0)]
        points += [(percentile(values, p), p / 100) for p in range(1, 101)]
        curves.append(Curve(name, [*points, (x.high, 1.0)], look))
    described = "; ".join(
        f"{name}: half within {seconds(percentile(groups[name], 50))}, "
        f"95 % within {seconds(percentile(groups[name], 95))}"
        for name, _ in shown
    )
    rows = [
        [name, *(seconds(percentile(values, p)) for p in RANKS)] for name, values in groups.items()
    ]
    drawn = plot(
        described, curves, (x, "within this time"), (Scale(0.0, 1.0, 4), lambda v: f"{v:.0%}")
    )
    return figure(title, about, legend(shown), drawn, [kind, *(f"p{p}" for p in RANKS)], rows)


def over_time(
    title: str, about: str, curves: list[Curve], width_s: float, write: Callable[[float], str]
) -> Markup:
    """Return curves over the time of the run, in bins of `width_s`."""
    known = [y for curve in curves for _, y in curve.points if y is not None]
    bins = max(len(curve.points) for curve in curves)
    described = "; ".join(
        f"{curve.name}: at most {write(max(found))}"
        for curve in curves
        if (found := [y for _, y in curve.points if y is not None])
    )
    x, y = timeline(bins * width_s), linear(max(known, default=0.0))
    rows = []
    for i in range(bins):
        values = [curve.points[i][1] for curve in curves]
        if any(values):
            cells = ("-" if value is None else write(value) for value in values)
            rows.append([seconds(i * width_s), *cells])
    return figure(
        title,
        about,
        legend([(curve.name, curve.look) for curve in curves]),
        plot(described, curves, (x, "time since the start"), (y, write)),
        ["From", *(curve.name for curve in curves)],
        rows,
    )


def scatter(
    title: str, about: str, groups: dict[str, list[tuple[float, float]]], failed: list[float],
    span_s: float,
) -> Markup:  # fmt: skip
    """Return a point for each answer over the time of the run, and the failures at the floor."""
    shown = looks(list(groups))
    y = durations([value for points in groups.values() for _, value in points])
    curves = [Curve(name, _thinned(list(groups[name])), look) for name, look in shown]
    if failed:
        curves.append(Curve("failed", _thinned([(at, y.low) for at in failed]), "failed"))
    slowest = {
        name: seconds(max((value for _, value in points), default=None))
        for name, points in groups.items()
    }
    told = [
        f"{name}: {len(groups[name]):,} answers, the slowest {slowest[name]}" for name, _ in shown
    ]
    return figure(
        title,
        about,
        legend([(curve.name, curve.look) for curve in curves], "dots"),
        plot("; ".join([*told, f"{len(failed):,} failures"]), curves, (timeline(span_s), "due at"),
             (y, tick), "dots"),
        ["Priority", "Answers", "Slowest"],
        [[name, f"{len(points):,}", slowest[name]] for name, points in groups.items()],
    )  # fmt: skip


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float | None]]:
    return [*points[:: max(1, -(-len(points) // POINTS_MAX))]]


def bar(offered: float, served: float, fair: float, most: float) -> Markup:
    """Return a bar for one user: offered behind, served in front, the fair share as a mark."""
    unit = SIDE / (most or 1)
    return tag(
        "svg",
        tag("rect", width=offered * unit, height=10, class_="offered"),
        tag("rect", width=served * unit, height=6, y=2, class_="served"),
        tag("path", d=f"M{fair * unit:.0f} 0V10", class_="fair"),
        viewBox=f"0 0 {SIDE} 10",
        preserveAspectRatio="none",
        aria_hidden="true",
        class_="bar",
    )
