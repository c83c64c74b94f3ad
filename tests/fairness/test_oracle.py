"""The oracle itself, on cases small enough to do by hand and on random ones by its definition."""

from random import Random

import pytest

from .oracle import water_fill


def ones(*users: str) -> dict[str, float]:
    return dict.fromkeys(users, 1.0)


def test_equal_demands_share_equally() -> None:
    assert water_fill(9, {"a": 9, "b": 9, "c": 9}, ones("a", "b", "c")) == {"a": 3, "b": 3, "c": 3}


def test_a_small_demand_is_met_and_the_rest_is_shared() -> None:
    shares = water_fill(10, {"a": 2, "b": 9, "c": 9}, ones("a", "b", "c"))
    assert shares == pytest.approx({"a": 2, "b": 4, "c": 4})


def test_weights_divide_what_is_left() -> None:
    shares = water_fill(7, {"a": 9, "b": 9, "c": 9}, {"a": 1, "b": 2, "c": 4})
    assert shares == pytest.approx({"a": 1, "b": 2, "c": 4})


def test_nobody_gets_more_than_asked_for() -> None:
    assert water_fill(100, {"a": 1, "b": 2}, ones("a", "b")) == pytest.approx({"a": 1, "b": 2})


@pytest.mark.parametrize("seed", range(50))
def test_nothing_can_be_moved_from_the_better_off_to_the_worse_off(seed: int) -> None:
    random = Random(seed)
    users = [f"u{number}" for number in range(random.randint(1, 8))]
    demands = {user: random.uniform(0, 10) for user in users}
    weights = {user: random.choice((0.5, 1.0, 4.0)) for user in users}
    capacity = random.uniform(0, 40)
    shares = water_fill(capacity, demands, weights)
    assert sum(shares.values()) == pytest.approx(min(capacity, sum(demands.values())), abs=1e-6)
    for user in users:
        assert shares[user] <= demands[user] + 1e-6
        if shares[user] < demands[user] - 1e-6:  # it wants more, so nobody is better off than it
            level = shares[user] / weights[user]
            assert all(shares[u] / weights[u] <= level + 1e-6 for u in users)
