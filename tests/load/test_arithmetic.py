"""Mixes, percentiles and fairness: the arithmetic, by its properties."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.load.plan import parse_mix
from forebay.load.quantities import BadPlan, duration_s
from forebay.load.statistics import fair_shares, fairness, jain, percentile, spread

VALUES = st.lists(st.floats(0, 1e6, allow_nan=False), min_size=1, max_size=200)
DEMANDS = st.dictionaries(st.text(min_size=1, max_size=3), st.integers(1, 1000), min_size=1)


@settings(deadline=None, max_examples=60)
@given(VALUES, st.sampled_from([1, 50, 90, 95, 99, 100]))
def test_a_percentile_was_measured_and_has_its_share_below(values: list[float], p: int) -> None:
    ordered = sorted(values)
    found = percentile(ordered, p)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= p * len(values)
    assert sum(value < found for value in values) * 100 < p * len(values)


@settings(deadline=None, max_examples=60)
@given(VALUES)
def test_a_spread_is_in_order(values: list[float]) -> None:
    found = spread([*values, None])
    assert found is not None
    ranks = (found.p50, found.p90, found.p95, found.p99, found.max)
    assert list(ranks) == sorted(ranks)
    assert found.count == len(values)
    assert spread([None]) is None


@settings(deadline=None, max_examples=60)
@given(DEMANDS, st.integers(0, 5000))
def test_fair_shares_give_nobody_more_than_asked_and_waste_nothing(
    demands: dict[str, int], capacity: int
) -> None:
    shares = fair_shares(demands, capacity)
    assert all(shares[user] <= demands[user] for user in demands)
    assert math.fsum(shares.values()) == pytest.approx(min(capacity, sum(demands.values())))
    unmet = [shares[user] for user in demands if shares[user] < demands[user] - 1e-9]
    if unmet:  # those who got less than they asked for got as much as anyone
        assert min(unmet) == pytest.approx(max(shares.values()))


@settings(deadline=None, max_examples=60)
@given(DEMANDS, st.randoms(use_true_random=False))
def test_the_index_is_between_one_and_one_over_n(
    demands: dict[str, int], source: random.Random
) -> None:
    served = {user: float(source.randint(0, demand)) for user, demand in demands.items()}
    index = fairness(demands, served)
    if sum(served.values()) == 0:
        assert index is None
    else:
        assert index is not None
        assert 1 / len(demands) - 1e-9 <= index <= 1.0
    assert fairness(demands, demands) == pytest.approx(1.0)


@settings(deadline=None, max_examples=60)
@given(DEMANDS, st.integers(1, 5000))
def test_serving_the_fair_shares_is_perfectly_fair(demands: dict[str, int], capacity: int) -> None:
    assert fairness(demands, fair_shares(demands, capacity)) == pytest.approx(1.0)


def test_first_come_first_served_under_a_greedy_user_is_not_called_fair() -> None:
    offered = {"modest": 10.0, "greedy": 90.0}
    in_order = {"modest": 5.0, "greedy": 45.0}  # half of everyone's
    in_turn = {"modest": 10.0, "greedy": 40.0}
    assert fairness(offered, in_turn) == pytest.approx(1.0)
    index = fairness(offered, in_order)
    assert index is not None
    assert index < 0.9
    assert jain([1.0, 0.0]) == 0.5


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 100))
def test_a_mix_is_drawn_in_proportion_and_repeatably(seed: int) -> None:
    mix = parse_mix("alice:1,bob:3", "--users", "u")
    source = random.Random(seed)
    drawn = [mix.draw(source) for _ in range(2000)]
    again = random.Random(seed)
    assert drawn == [mix.draw(again) for _ in range(2000)]
    assert abs(Counter(drawn)["bob"] - 1500) < 6 * (2000 * 0.75 * 0.25) ** 0.5
    assert mix.shares() == {"alice": 0.25, "bob": 0.75}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not a name"),
        ("0", "between 1 and 1,000"),
        ("99999999", "between 1 and 1,000"),
        ("a,b,a", "a is listed twice"),
        ("a:0", "weight in 'a:0'"),
        ("a:-1", "weight"),
        ("a:inf", "weight"),
        ("a:x", "weight"),
        ("a\r\nx-evil: 1", "not a name"),
        (",".join(f"u{i}" for i in range(1001)), "at most 1,000"),
    ],
)
def test_a_bad_mix_is_refused_by_its_option(text: str, told: str) -> None:
    with pytest.raises(BadPlan, match=r"^--users: ") as caught:
        parse_mix(text, "--users", "user-")
    assert told in str(caught.value)


@pytest.mark.parametrize("text", ["", "s", "5 parsecs", "-1s", "1e3", "nan", "9999h"])
def test_a_bad_duration_is_refused_by_its_option(text: str) -> None:
    with pytest.raises(BadPlan, match=r"^--duration: "):
        duration_s(text, "--duration")
