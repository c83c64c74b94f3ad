"""What is fair, computed without a scheduler: progressive filling over weighted demands.

Raise everybody's level together, each by its weight; whoever has all it asked for stops; go on with
the others until the capacity is spent. The result is the weighted max-min allocation: nobody can
be given more without taking from someone who has no more per weight (Bertsekas and Gallager, "Data
Networks", 6.5.2). Nothing here knows clocks, counters or heaps.
"""

from collections.abc import Mapping

NEGLIGIBLE = 1e-9


def water_fill(
    capacity: float, demands: Mapping[str, float], weights: Mapping[str, float]
) -> dict[str, float]:
    """Return what each user should get of the capacity."""
    granted = dict.fromkeys(demands, 0.0)
    thirsty = {user for user, demand in demands.items() if demand > 0.0}
    left = capacity
    while thirsty and left > NEGLIGIBLE:
        fair_level = left / sum(weights[user] for user in thirsty)
        next_full = min((demands[user] - granted[user]) / weights[user] for user in thirsty)
        level = min(fair_level, next_full)
        for user in thirsty:
            granted[user] += level * weights[user]
        left -= level * sum(weights[user] for user in thirsty)
        thirsty = {user for user in thirsty if demands[user] - granted[user] > NEGLIGIBLE}
    return granted
