"""Was each user served what they had a right to? Jain's index over max-min fair shares.

Of a server that cannot serve everyone, nobody can expect more than they asked for, and nobody
should get less than an equal part while others get more than that: the max-min fair share
(Bertsekas and Gallager, "Data Networks", 6.5.2). With what was served in all as the capacity, each
user's ratio is what they got over that share, and Jain's index of the ratios,

    (sum x)^2 / (n * sum x^2)

is 1 when all ratios are equal and 1/n when one user got everything (Jain, Chiu and Hawe, DEC
TR-301, 1984). A plain served/offered would call a server fair that lets whoever asks most have
most: here a first-come-first-served line under one greedy user is well below 1, and a line that
takes users in turn is 1.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


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
