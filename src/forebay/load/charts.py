"""The plots of a report, as SVG drawn here: no scripts, no fonts, nothing from elsewhere.

Colours are classes, so that the page decides them for light and dark; lines differ by their dashes,
too. Each plot has a title and a description, and what lies under the pointer is told by `<title>`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from forebay.load.html import Markup, joined, tag
from forebay.load.quantities import seconds, three_digits
from forebay.load.statistics import fair_shares, percentile

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.load.summary import GroupSummary

WIDTH, HEIGHT = 440.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 54.0, 10.0, 10.0, 34.0
SERIES_MAX = 6
"""As many as there are colours that can be told apart."""
CURVE_POINTS = 100
HINTS = 24
"""Places of a curve that tell their values."""
POINTS_MAX = 1500
"""Of each group, evenly thinned: enough to see the shape, and the file stays small."""
TICKS_MAX = 400
DOT_SIZE = 2.4
BAR_LEFT, BAR_RIGHT, BAR_TOP, BAR_BOTTOM = 92.0, 46.0, 6.0, 26.0
ROW = 30.0
USERS_MAX = 16
NAME_LETTERS_MAX = 13
MARKS_WANTED = 5
SMALLEST_S = 1e-6
"""No clock that we have tells less."""


class ChartLine(Struct, frozen=True):
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


def over_time(name: str, title: str, lines: list[ChartLine], width_s: float, unit: str) -> Markup:
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
    lines: list[ChartLine], x: Axis, width_s: float, write: Callable[[float], str]
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


def scatter(
    name: str,
    title: str,
    groups: dict[str, list[tuple[float, float]]],
    failed: list[float],
    span_s: float,
) -> Markup:
    """Return the points of each group over the time of the run, and the failures below."""
    x = Axis(0.0, max(span_s, 1e-6), LEFT, WIDTH - RIGHT)
    y = time_axis(
        [value for found in groups.values() for _, value in found], HEIGHT - BOTTOM - 8, TOP
    )
    pieces: list[str] = [frame(x, y, tick, tick, "due at")]
    for colour, found in enumerate(groups.values()):
        step = max(1, -(-len(found) // POINTS_MAX))
        pieces += [dot(x.place(at), y.place(value), colour + 1) for at, value in found[::step]]
    floor = HEIGHT - BOTTOM
    step = max(1, -(-len(failed) // TICKS_MAX))
    for at_s in failed[::step]:
        at = x.place(at_s)
        pieces.append(tag("line", x1=at, x2=at, y1=floor - 6, y2=floor, class_="failed"))
    told = "; ".join(
        f"{key}: {len(found):,} answers, the slowest {tick(max(value for _, value in found))}"
        for key, found in groups.items()
        if found
    )
    return drawing(name, title, f"{told or 'No answers'}; {len(failed):,} failures.", *pieces)


def dot(x: float, y: float, colour: int) -> Markup:
    """Return a point; every group has a shape of its own, for who sees no colours."""
    size, kind = DOT_SIZE, f"dot s{colour}"
    if colour % 3 == 1:
        return tag("circle", cx=float(x), cy=float(y), r=size, class_=kind)
    if colour % 3 == 2:
        side = size * 1.8
        return tag("rect", x=x - side / 2, y=y - side / 2, width=side, height=side, class_=kind)
    path = f"M{x:.1f} {y - size * 1.3:.1f}l{size * 1.3:.1f} {size * 2.3:.1f}h{-size * 2.6:.1f}Z"
    return tag("path", d=path, class_=kind)


def dots_legend(names: list[tuple[str, int]]) -> Markup:
    """Return which points are whose: the same shapes as in the plot."""
    return tag(
        "ul",
        *(
            tag("li", tag("svg", dot(13, 5, colour), viewBox="0 0 26 10", aria_hidden="true"), name)
            for name, colour in names
        ),
        class_="legend",
    )


def user_bars(name: str, title: str, groups: dict[str, GroupSummary]) -> Markup:
    """Return a bar for each user: offered behind, served in front, the fair share as a mark."""
    shown = dict(list(groups.items())[:USERS_MAX])
    shares = fair_shares(
        {user: group.offered for user, group in groups.items()},
        sum(group.ok for group in groups.values()),
    )
    height = BAR_TOP + ROW * len(shown) + BAR_BOTTOM
    x = count_axis([float(group.offered) for group in shown.values()], BAR_LEFT, WIDTH - BAR_RIGHT)
    pieces: list[str] = []
    for mark in x.marks():
        at = x.place(mark)
        pieces.append(tag("line", x1=at, x2=at, y1=BAR_TOP, y2=height - BAR_BOTTOM, class_="grid"))
        pieces.append(tag("text", f"{mark:,.0f}", x=at, y=height - 10, class_="mark middle"))
    for row, (user, group) in enumerate(shown.items()):
        pieces += _bar(user, group, shares[user], BAR_TOP + row * ROW, x.place)
    told = "; ".join(
        f"{user}: {group.ok:,} of {group.offered:,}, fair share {shares[user]:,.1f}"
        for user, group in shown.items()
    )
    return tag(
        "svg",
        tag("title", title, id=f"{name}-t"),
        tag("desc", told, id=f"{name}-d"),
        *pieces,
        viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
        role="img",
        aria_labelledby=f"{name}-t {name}-d",
    )


def _bar(user: str, group: GroupSummary, share: float, top: float, place: object) -> list[Markup]:
    assert callable(place)
    offered, served, fair = place(group.offered), place(group.ok), place(share)
    is_long = len(user) > NAME_LETTERS_MAX
    label = user[: NAME_LETTERS_MAX - 1] + "\u2026" if is_long else user
    hint = tag("title", f"{user}: served {group.ok:,} of {group.offered:,}, fair {share:,.1f}")
    return [
        tag("text", label, x=BAR_LEFT - 8, y=top + 19, class_="mark end"),
        tag("rect", hint, x=BAR_LEFT, y=top + 5, width=max(1.0, offered - BAR_LEFT),
            height=ROW - 10, rx=2, class_="offered"),
        tag("rect", x=BAR_LEFT, y=top + 9, width=max(0.0, served - BAR_LEFT), height=ROW - 18, rx=2,
            class_="served"),
        tag("line", x1=fair, x2=fair, y1=top + 2, y2=top + ROW - 2, class_="fair"),
        tag("text", f"{group.ok:,}", x=offered + 5, y=top + 19, class_="mark"),
    ]  # fmt: skip


class Axis(Struct, frozen=True):
    """Values between `low` and `high` on paper between `start` and `end`."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def place(self, value: float) -> float:
        """Return where a value is; what is beyond the axis is at its end."""
        low, high, at = self.low, self.high, min(self.high, max(self.low, value))
        if self.is_log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def marks(self) -> list[float]:
        """Return the values to write at the axis."""
        return log_marks(self.low, self.high) if self.is_log else round_marks(self.low, self.high)


def round_marks(low: float, high: float) -> list[float]:
    """Return round values from low to high, a handful of them.

    >>> round_marks(0, 10), round_marks(0, 0.7)
    ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [0.0, 0.2, 0.4, 0.6])
    """
    raw = (high - low) / MARKS_WANTED
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def log_marks(low: float, high: float) -> list[float]:
    """Return powers of ten, with 2 and 5 between them where there is room.

    >>> log_marks(0.01, 1), log_marks(0.3, 4)
    ([0.01, 0.1, 1.0], [0.5, 1.0, 2.0])
    """
    decades = math.log10(high / low)
    factors = (1, 2, 5) if decades < 2 else (1,)
    found = [
        round(factor * 10.0**power, 12)
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for factor in factors
    ]
    every = 2 if decades > 6 else 1
    return [mark for mark in found if low * 0.999 <= mark <= high * 1.001][::every]


def time_axis(values: list[float], start: float, end: float) -> Axis:
    """Return an axis for durations: logarithmic where they differ by orders of magnitude."""
    positive = sorted(value for value in values if value > SMALLEST_S)
    high = positive[-1] if positive else 1.0
    typical = positive[len(positive) // 20] if positive else high
    if high / typical >= 30:
        low = max(typical / 2, high / 1e5, SMALLEST_S)
        return Axis(_round_down(low), high, start, end, is_log=True)
    return Axis(0.0, high * 1.02, start, end)


def count_axis(values: list[float], start: float, end: float) -> Axis:
    """Return an axis from zero for counts and rates."""
    return Axis(0.0, max([*values, 0.0]) * 1.08 or 1.0, start, end)


def _round_down(value: float) -> float:
    """Return the next 1, 2 or 5 times a power of ten below.

    >>> _round_down(0.7), _round_down(3.0), _round_down(0.02)
    (0.5, 2.0, 0.02)
    """
    power = 10.0 ** math.floor(math.log10(value) + 1e-9)
    factor = max(factor for factor in (1, 2, 5) if factor * power <= value * (1 + 1e-9))
    return round(factor * power, 12)
