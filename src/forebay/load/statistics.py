"""Percentiles, and the fairness of what each user was served.

Percentiles are of exact samples, by nearest rank: a value that was measured, never one between. The
p-th percentile of n sorted values is the one of rank ceil(p/100 * n). With fewer than
1 / (1 - p/100) samples it is simply the largest.

Fairness is Jain's index over max-min fair shares. Of a server that cannot serve everyone, nobody
can expect more than they asked for, and nobody should get less than an equal part while others get
more than that: the max-min fair share (Bertsekas and Gallager, "Data Networks", 6.5.2). With what
was served in all as the capacity, each user's ratio is what they got over that share, and Jain's
index of the ratios,

    (sum x)^2 / (n * sum x^2)

is 1 when all ratios are equal and 1/n when one user got everything (Jain, Chiu and Hawe, DEC
TR-301, 1984). A plain served/offered would call a server fair that lets whoever asks most have
most: here a first-come-first-served queue under one greedy user is well below 1, and a queue that
takes users in turn is 1.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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


def fair_shares(demands: Mapping[str, float], capacity: float) -> dict[str, float]:
    """Return each user's max-min fair share of the capacity, by filling from the smallest demand.

    >>> fair_shares({"alice": 2, "bob": 10, "carol": 10}, 12)
    {'alice': 2, 'bob': 5.0, 'carol': 5.0}
    """
    shares: dict[str, float] = {}
    left, users_left = capacity, len(demands)
    for user in sorted(demands, key=lambda user: demands[user]):
        shares[user] = min(demands[user], left / users_left)
        left = max(0.0, left - shares[user])
        users_left -= 1
    return {user: shares[user] for user in demands}


def jain(values: list[float]) -> float | None:
    """Return Jain's index; None of nothing, or of nothing but zeros."""
    squares = math.fsum(value * value for value in values)
    if squares == 0:
        return None
    return min(1.0, math.fsum(values) ** 2 / (len(values) * squares))


def fairness(offered: Mapping[str, float], served: Mapping[str, float]) -> float | None:
    """Return the index of what was served to users who asked; None where nothing was."""
    asking = {user: demand for user, demand in offered.items() if demand > 0}
    got = {user: served.get(user, 0.0) for user in asking}
    shares = fair_shares(asking, math.fsum(got.values()))
    return jain([got[user] / share for user, share in shares.items() if share > 0])
