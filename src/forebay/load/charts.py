"""The plots of a report, as SVG drawn here: no scripts, no fonts, nothing from elsewhere.

Colours are classes, so that the page decides them for light and dark; lines differ by their dashes,
too. Each plot has a title and a description, and what lies under the pointer is told by `<title>`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from forebay.load.axes import Axis, count_axis, time_axis
from forebay.load.markup import Markup, joined, tag
from forebay.load.percentiles import percentile
from forebay.load.quantities import seconds, three_digits

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH, HEIGHT = 440.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 54.0, 10.0, 10.0, 34.0
SERIES_MAX = 6
"""As many as there are colours that can be told apart."""
CURVE_POINTS = 100
HINTS = 24
"""Places of a curve that tell their values."""


class Line(Struct, frozen=True):
    """One line of a plot: None leaves a gap."""

    name: str
    values: list[float | None]
    colour: int
    is_area: bool = False


def frame(x: Axis, y: Axis, x_text: Callable[[float], str], y_text: Callable[[float], str],
           x_label: str) -> Markup:  # fmt: skip
    """Return the grid and its marks."""
    floor = HEIGHT - BOTTOM
    pieces = []
    for mark in y.marks():
        at = y.place(mark)
        pieces.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="grid"))
        pieces.append(tag("text", y_text(mark), x=LEFT - 6, y=at + 4, class_="mark end"))
    for mark in x.marks():
        at = x.place(mark)
        pieces.append(tag("line", x1=at, x2=at, y1=floor, y2=floor + 4, class_="axis"))
        is_last = at > WIDTH - RIGHT - 12
        where = "mark end" if is_last else "mark middle"
        x_at = WIDTH - RIGHT + 4 if is_last else at
        pieces.append(tag("text", x_text(mark), x=x_at, y=floor + 16, class_=where))
    pieces.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=floor, y2=floor, class_="axis"))
    pieces.append(tag("text", x_label, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 3,
                      class_="mark middle"))  # fmt: skip
    return joined(pieces)


def drawing(name: str, title: str, description: str, *pieces: str) -> Markup:
    """Return a plot with what is said of it to who cannot see it."""
    return tag(
        "svg",
        tag("title", title, id=f"{name}-t"),
        tag("desc", description, id=f"{name}-d"),
        *pieces,
        viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}",
        role="img",
        aria_labelledby=f"{name}-t {name}-d",
    )


def _path(points: list[tuple[float, float] | None]) -> str:
    """Return the way through the points; None lifts the pen."""
    words, is_down = [], False
    for point in points:
        if point is None:
            is_down = False
            continue
        words.append(f"{'L' if is_down else 'M'}{point[0]:.1f} {point[1]:.1f}")
        is_down = True
    return "".join(words)


def distribution(name: str, title: str, groups: dict[str, list[float]]) -> Markup:
    """Return the share of answers that came within each time, one curve for each group."""
    shown = {key: sorted(values) for key, values in groups.items() if values}
    shown = dict(list(shown.items())[:SERIES_MAX])
    everything = [value for values in shown.values() for value in values]
    x = time_axis(everything, LEFT, WIDTH - RIGHT)
    y = Axis(0.0, 1.0, HEIGHT - BOTTOM, TOP)
    pieces = [frame(x, y, tick, lambda mark: f"{mark:.0%}", "within this time")]
    for colour, values in enumerate(shown.values()):
        pieces.append(tag("path", d=_steps(values, x, y), class_=f"line s{colour + 1}"))
    width = (WIDTH - LEFT - RIGHT) / HINTS
    for i in range(HINTS):
        at = _value_at(x, LEFT + (i + 0.5) * width)
        told = [f"{key}: {_share_within(values, at):.0%}" for key, values in shown.items()]
        hint = tag("title", f"within {seconds(at)}: {', '.join(told)}")
        pieces.append(tag("rect", hint, x=LEFT + i * width, y=TOP, width=width,
                          height=HEIGHT - TOP - BOTTOM, class_="hint"))  # fmt: skip
    described = "; ".join(
        f"{key}: half within {seconds(percentile(values, 50))}, "
        f"95 % within {seconds(percentile(values, 95))}"
        for key, values in shown.items()
    )
    return drawing(name, title, described or "Nothing was measured.", *pieces)


def over_time(name: str, title: str, lines: list[Line], width_s: float, unit: str) -> Markup:
    """Return lines over the time of the run; `unit` is "s" for durations, else counts."""
    count = max(len(line.values) for line in lines)
    x = Axis(0.0, max(count * width_s, 1e-6), LEFT, WIDTH - RIGHT)
    known = [value for line in lines for value in line.values if value is not None]
    y = count_axis(known, HEIGHT - BOTTOM, TOP)
    write = tick if unit == "s" else _count
    pieces = [frame(x, y, tick, write, "time since the start")]
    for line in lines:
        points = [
            None if value is None else (x.place((i + 0.5) * width_s), y.place(value))
            for i, value in enumerate(line.values)
        ]
        if line.is_area and points:
            pieces.append(_area(points, line.colour))
        pieces.append(tag("path", d=_path(points), class_=f"line s{line.colour}"))
        if known and sum(point is not None for point in points) <= CURVE_POINTS // 4:
            pieces += [
                tag("circle", cx=point[0], cy=point[1], r=2.2, class_=f"dot s{line.colour}")
                for point in points
                if point is not None
            ]
    pieces += _time_hints(lines, x, width_s, write)
    peaks = (
        f"{line.name}: at most {write(max(found))}"
        for line in lines
        if (found := [value for value in line.values if value is not None])
    )
    return drawing(name, title, "; ".join(peaks) or "Nothing was measured.", *pieces)


def _time_hints(
    lines: list[Line], x: Axis, width_s: float, write: Callable[[float], str]
) -> list[Markup]:
    found = []
    for i in range(max(len(line.values) for line in lines)):
        told = [
            f"{line.name} {write(value)}"
            for line in lines
            if i < len(line.values) and (value := line.values[i]) is not None
        ]
        left, right = x.place(i * width_s), x.place((i + 1) * width_s)
        hint = tag("title", f"{seconds(i * width_s)}: {', '.join(told) or 'nothing'}")
        found.append(tag("rect", hint, x=left, y=TOP, width=right - left,
                         height=HEIGHT - TOP - BOTTOM, class_="hint"))  # fmt: skip
    return found


def _area(points: list[tuple[float, float] | None], colour: int) -> Markup:
    known = [point for point in points if point is not None]
    if not known:
        return Markup("")
    floor = HEIGHT - BOTTOM
    path = f"M{known[0][0]:.1f} {floor}L" + _path(list(known))[1:]
    return tag("path", d=f"{path}L{known[-1][0]:.1f} {floor}Z", class_=f"area s{colour}")


def _steps(values: list[float], x: Axis, y: Axis) -> str:
    """Return the curve of a distribution, thinned to what paper can show."""
    step = max(1, len(values) // CURVE_POINTS)
    ranks = [*range(0, len(values), step), len(values) - 1]
    points: list[tuple[float, float] | None] = [(x.place(values[0]), y.place(0.0))]
    before = y.place(0.0)
    for rank in ranks:
        at, level = x.place(values[rank]), y.place((rank + 1) / len(values))
        points += [(at, before), (at, level)]
        before = level
    points.append((WIDTH - RIGHT, before))
    return _path(points)


def _share_within(values: list[float], limit: float) -> float:
    return sum(value <= limit for value in values) / len(values)


def _value_at(axis: Axis, place: float) -> float:
    part = (place - axis.start) / (axis.end - axis.start)
    if axis.is_log:
        return axis.low * math.exp(part * math.log(axis.high / axis.low))
    return axis.low + part * (axis.high - axis.low)


def tick(value: float) -> str:
    """Return a time for an axis.

    >>> tick(0.25), tick(2), tick(90), tick(0)
    ('250 ms', '2 s', '1.5 min', '0')
    """
    if value == 0:
        return "0"
    if value < 1:
        return f"{value * 1000:.4g} ms"
    return f"{value:.4g} s" if value < 60 else f"{value / 60:.3g} min"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else three_digits(value)
