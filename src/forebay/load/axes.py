"""From measured values to places on paper: linear and logarithmic, with round marks."""

from __future__ import annotations

import math

from msgspec import Struct

MARKS_WANTED = 5
SMALLEST_S = 1e-6
"""No clock that we have tells less."""


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
