"""What throughput at any number of requests at once follows from measurements at a few.

A request that takes a second alone takes `s(n)` seconds among n, and `n / s(n)` of them are done in
a second. What is fitted is

    s(n) = (1 + (n / knee) ** sharpness) ** (1 / sharpness)

which is 1 far below the knee and `n / knee` far above it: an engine that is flat up to its knee
where the corner is sharp, one that slows down from the first request on where it is not (1). A few
noisy points decide about two numbers well, and about a number for each of them badly. There is no
part for an engine that gets slower altogether: points beyond its best count as if they only shared
what there is.

For a given sharpness p, `s ** p` is a straight line over `n ** p`: its fit has a closed form, and
only a few sharpnesses are compared. That takes some 0.1 ms.
"""

from __future__ import annotations

from math import exp, log, log1p
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

WORSE: Final = 0.9
"""Where a higher number has less than this share of the best one's throughput, none is followed
beyond the best: how far the engine only shares what there is, nobody has seen."""
SHARPNESSES: Final = (1.0, 1.4, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
DOUBT: Final = 3.0
LIKELY_DOUBT: Final = 0.5
"""A curve may be right, or is likely to be, whose variance is at most so much worse than that of
the best, in variances of a mean."""
FAR: Final = 4.0
NEAR: Final = 256.0
"""The knee is at most so many times the highest point, and at least such a part of it."""
STRETCH_MAX: Final = 1e3


class Point(NamedTuple):
    """How much longer a request takes with so many at once, by how many samples."""

    slots: float
    stretch: float
    samples: float


def slowdown(slots: float, knee: float, sharpness: float) -> float:
    """Return how much longer a request takes than alone.

    >>> round(slowdown(16, 8.0, 20.0), 3), slowdown(16, 8.0, 1.0)
    (2.0, 3.0)
    """
    return float((1.0 + (slots / knee) ** sharpness) ** (1.0 / sharpness))


class Fit(NamedTuple):
    """A curve, and how far it is from the points: the variance of the relative errors."""

    error: float
    level: float
    """Of the stretch at few: its logarithm."""
    knee: float
    sharpness: float

    def throughput(self, slots: float) -> float:
        return slots / slowdown(slots, self.knee, self.sharpness)

    def enough(self, share: float, ceiling: int, top: int) -> int:
        """Return the smallest number with this share of what there is; at most `top`."""
        wanted = share * self.throughput(ceiling)
        low, high = 1, top
        while low < high:
            middle = (low + high) // 2
            if 1.001 * self.throughput(middle) >= wanted:
                high = middle
            else:
                low = middle + 1
        return low


def fit(points: Sequence[Point], sharpness: float) -> Fit:
    """Return the nearest curve that is so sharp; errors are relative."""
    top = max(point.slots for point in points)
    least = min(point.stretch for point in points)
    xs = [(point.slots / top) ** sharpness for point in points]
    w = wx = wy = wxx = wxy = 0.0
    for x, (_, stretch, samples) in zip(xs, points, strict=True):
        y = min(STRETCH_MAX, stretch / least) ** sharpness
        weight = samples / (y * y)
        w += weight
        wx += weight * x
        wy += weight * y
        wxx += weight * x * x
        wxy += weight * x * y
    bend = _bend(w * wxy - wx * wy, wxx * wy - wx * wxy, sharpness)
    total = sum(point.samples for point in points)
    mean = square = 0.0
    for x, (_, stretch, samples) in zip(xs, points, strict=True):
        error = log(stretch) - log1p(x * bend) / sharpness
        mean += samples / total * error
        square += samples / total * error * error
    return Fit(square - mean * mean, mean, top * bend ** (-1.0 / sharpness), sharpness)


def _bend(slope: float, level: float, sharpness: float) -> float:
    """Return `(top / knee) ** sharpness` by the line's slope and level, within bounds."""
    least, most = float(FAR**-sharpness), float(NEAR**sharpness)
    if slope <= 0.0:
        return least
    return most if level * most <= slope else max(least, slope / level)


class Curve:
    """The curve nearest to some points.

    >>> flat = [Point(4, 1.0, 9), Point(8, 1.0, 9), Point(16, 1.33, 9), Point(32, 2.67, 9)]
    >>> Curve(flat).enough(0.95, 64)
    12
    >>> Curve([Point(n, 1.0 + n / 4, 9) for n in (2, 4, 8, 16, 32)]).enough(0.9, 1024)
    32
    >>> Curve([Point(n, max(1.0, n / 4), 9) for n in (2, 3, 8)]).enough(0.97, 64)
    4
    >>> Curve([Point(2, 1.0, 9), Point(3, 1.0, 9), Point(8, 3.0, 9)]).enough(0.97, 64)
    3
    """

    def __init__(self, points: Sequence[Point], noise: float = 0.0) -> None:
        most, shared = 0.0, []
        for point in sorted(points):
            most = max(most, point.slots / point.stretch)
            shared.append(point._replace(stretch=min(point.stretch, point.slots / most)))
        fits = [fit(shared, sharpness) for sharpness in SHARPNESSES]
        self._best = min(fits)
        least, variance = self._best.error, noise * noise / sum(point.samples for point in points)
        self._plausible = [one for one in fits if one.error <= least + DOUBT * variance]
        self._likely = [one for one in fits if one.error <= least + LIKELY_DOUBT * variance]
        best = max(points, key=lambda point: point.slots / point.stretch)
        loses = any(
            point.slots > best.slots and point.slots / point.stretch < WORSE * most
            for point in points
        )
        self._top = int(best.slots if loses else max(point.slots for point in points))

    def throughput(self, slots: float) -> float:
        return self._best.throughput(slots)

    def may_gain(self, slots: int) -> float:
        """Return which share of twice this number may become throughput, by any that fits."""
        gains = [one.throughput(2 * slots) / one.throughput(slots) for one in self._plausible]
        return log(max(gains)) / log(2.0)

    def stretch(self, slots: int) -> float:
        _, level, knee, sharpness = self._best
        return exp(level) * slowdown(slots, knee, sharpness)

    def enough(self, share: float, ceiling: int) -> int:
        """Return the smallest number with this share of what there is up to a ceiling.

        It is no higher than the highest that was measured, or the best if one did clearly worse.
        Of curves that fit about as well it is the one that needs the fewest: among few, one more
        makes first bytes a third later.
        """
        return min(one.enough(share, ceiling, self._top) for one in self._likely)
