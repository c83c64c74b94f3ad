"""The assertions: one against the oracle, one for each pair of users at every dispatch.

Both are plain functions that raise AssertionError, so that a control can be seen to fail them.
"""

from collections import defaultdict
from itertools import combinations

from .load import Load, Log
from .oracle import water_fill


def assert_max_min(log: Log, start_s: float, end_s: float, slack: float, node: str = "") -> None:
    """Compare what each user was given in a window with the max-min shares of it.

    `slack` is in cost over weight. What a user demands in the window is what it sent until its end
    and had not been given before it began.
    """
    weights = log.load.weights()
    served = log.served(start_s, end_s, node)
    before = log.served(0.0, start_s, node)
    demands: dict[str, float] = defaultdict(float)
    for at_s, user, cost in log.offered:
        if at_s < end_s:
            demands[user] += cost
    for user, cost in before.items():
        demands[user] -= cost
    expected = water_fill(sum(served.values()), demands, weights)
    for user, fair in expected.items():
        difference = (served[user] - fair) / weights[user]
        assert abs(difference) <= slack, (
            f"{user} was given {served[user]:.1f}, fair is {fair:.1f} (slack {slack:.1f}): "
            f"{dict(served)}"
        )


def largest_cost_over_weight(load: Load) -> float:
    weights = load.weights()
    return max(load.cost(party) / weights[load.name(party)] for party in load.parties)


def assert_no_pair_drifts_apart(log: Log, bound: float) -> float:
    """Check invariant 4 at every dispatch; return the largest difference that was met.

    While two users are both backlogged, their service over weight may differ by at most `bound`,
    over every interval of that time and not only from its start.
    """
    worst = 0.0
    users = sorted({(log.load.name(party), party.priority) for party in log.load.parties})
    weights = log.load.weights()
    for one, other in combinations(users, 2):
        if one[1] != other[1]:
            continue
        difference = lowest = highest = 0.0
        for dispatch in log.dispatches:
            if not {one, other} <= dispatch.backlogged:
                difference = lowest = highest = 0.0
                continue
            if dispatch.user in (one[0], other[0]):
                sign = 1.0 if dispatch.user == one[0] else -1.0
                difference += sign * dispatch.cost / weights[dispatch.user]
            lowest, highest = min(lowest, difference), max(highest, difference)
            spread = highest - lowest
            worst = max(worst, spread)
            assert spread <= bound + 1e-9, (
                f"{one[0]} and {other[0]} drift {spread:.1f} apart by {dispatch.at_s:.1f} s, "
                f"the bound is {bound:.1f}"
            )
    return worst
