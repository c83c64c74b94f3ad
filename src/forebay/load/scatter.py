"""Every request as a point: what percentiles hide."""

from __future__ import annotations

from forebay.load.axes import Axis, time_axis
from forebay.load.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, drawing, frame, tick
from forebay.load.markup import Markup, tag

POINTS_MAX = 1500
"""Of each group, evenly thinned: enough to see the shape, and the file stays small."""
TICKS_MAX = 400
SIZE = 2.4


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
    size, kind = SIZE, f"dot s{colour}"
    if colour % 3 == 1:
        return tag("circle", cx=float(x), cy=float(y), r=size, class_=kind)
    if colour % 3 == 2:
        side = size * 1.8
        return tag("rect", x=x - side / 2, y=y - side / 2, width=side, height=side, class_=kind)
    path = f"M{x:.1f} {y - size * 1.3:.1f}l{size * 1.3:.1f} {size * 2.3:.1f}h{-size * 2.6:.1f}Z"
    return tag("path", d=path, class_=kind)
