"""Quantiles off buckets: close to the truth, and never above the longest."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.dashboard.history import quantile
from forebay.gateway.dashboard import FINE_BOUNDS_S, FineHistogram

WAITS = st.lists(st.floats(0.0, 700.0), min_size=1, max_size=200)


def counted(waits: list[float]) -> list[int]:
    counts = FineHistogram()
    for wait in waits:
        counts.add(wait)
    return counts.counts


@given(WAITS, st.sampled_from([0.05, 0.5, 0.9, 0.95, 1.0]))
def test_a_quantile_is_at_most_the_true_one_and_near_it(waits: list[float], share: float) -> None:
    found = quantile(counted(waits), FINE_BOUNDS_S, share)
    rank = max(0, -(-len(waits) * share // 1) - 1)
    truth = sorted(waits)[int(rank)]
    assert found is not None
    assert found <= truth
    assert min(truth, FINE_BOUNDS_S[-1]) - found <= max(0.0011, 0.051 * truth)


def test_no_bound_is_further_from_the_next_than_the_page_may_be_off() -> None:
    for below, above in pairwise(FINE_BOUNDS_S):
        assert above - below <= max(0.00101, 0.0501 * above)


def test_what_95_percent_are_within_is_not_above_the_longest() -> None:
    assert quantile(counted([11.8] * 9 + [12.0]), FINE_BOUNDS_S, 0.95) == pytest.approx(
        12, rel=0.05
    )
    assert tuple(sorted(set(FINE_BOUNDS_S))) == FINE_BOUNDS_S
    assert len(FINE_BOUNDS_S) < 300, "it is kept 91 times"


@given(WAITS)
def test_a_higher_quantile_is_never_lower(waits: list[float]) -> None:
    found = [quantile(counted(waits), FINE_BOUNDS_S, share / 20) for share in range(1, 21)]
    assert all(value is not None for value in found)
    assert found == sorted(found)  # type: ignore[type-var]


def test_nothing_counted_is_nothing_known() -> None:
    assert quantile([0, 0, 0], (1.0, 2.0), 0.5) is None


def test_what_did_not_wait_waited_zero_seconds() -> None:
    assert quantile([10, 0, 0], (0.001, 2.0), 0.95) == 0.0


def test_beyond_the_last_bound_that_bound_is_all_that_is_known() -> None:
    assert quantile([0, 0, 3], (1.0, 2.0), 0.5) == 2.0
