"""Percentiles of exact samples, by nearest rank: a value that was measured, never one between.

The p-th percentile of n sorted values is the one of rank ceil(p/100 * n). With fewer than
1 / (1 - p/100) samples it is simply the largest.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SHOWN = (50, 90, 95, 99)


class Spread(Struct, frozen=True):
    """How some measured times are spread, in seconds."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


def percentile(ordered: Sequence[float], p: float) -> float:
    """Return the value of that rank; the values must be sorted and there must be some.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 50), percentile([1.0, 2.0, 3.0, 4.0], 99)
    (2.0, 4.0)
    """
    # p * n first, as integers stay exact: 0.07 * 100 is more than 7 in floating point
    rank = math.ceil(p * len(ordered) / 100)
    return ordered[min(len(ordered), max(1, rank)) - 1]


def spread(values: Iterable[float | None]) -> Spread | None:
    """Return how the values are spread; None where nothing was measured."""
    ordered = sorted(value for value in values if value is not None)
    if not ordered:
        return None
    mean = math.fsum(ordered) / len(ordered)
    p50, p90, p95, p99 = (percentile(ordered, p) for p in SHOWN)
    return Spread(len(ordered), mean, p50, p90, p95, p99, ordered[-1])
