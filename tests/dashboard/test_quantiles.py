"""Quantiles off buckets: never further from the truth than the bucket is wide."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.dashboard.history import quantile
from forebay.gateway.hot.accounting import BUCKETS_S

WAITS = st.lists(st.floats(0.0, 700.0), min_size=1, max_size=200)


def counted(waits: list[float]) -> list[int]:
    counts = [0] * (len(BUCKETS_S) + 1)
    for wait in waits:
        counts[bisect_left(BUCKETS_S, wait)] += 1
    return counts


@given(WAITS, st.sampled_from([0.05, 0.5, 0.9, 0.95, 1.0]))
def test_a_quantile_is_in_the_bucket_of_the_true_one(waits: list[float], share: float) -> None:
    found = quantile(counted(waits), BUCKETS_S, share)
    rank = max(0, -(-len(waits) * share // 1) - 1)
    truth = sorted(waits)[int(rank)]
    assert found is not None
    bucket = bisect_left(BUCKETS_S, truth)
    low = 0.0 if bucket == 0 else BUCKETS_S[bucket - 1]
    high = BUCKETS_S[min(bucket, len(BUCKETS_S) - 1)]
    assert low <= found <= high or found == pytest.approx(low)


@given(WAITS)
def test_a_higher_quantile_is_never_lower(waits: list[float]) -> None:
    found = [quantile(counted(waits), BUCKETS_S, share / 20) for share in range(1, 21)]
    assert all(value is not None for value in found)
    assert found == sorted(found)  # type: ignore[type-var]


def test_nothing_counted_is_nothing_known() -> None:
    assert quantile([0, 0, 0], (1.0, 2.0), 0.5) is None


def test_what_did_not_wait_waited_zero_seconds() -> None:
    assert quantile([10, 0, 0], (0.001, 2.0), 0.95) == 0.0


def test_beyond_the_last_bound_that_bound_is_all_that_is_known() -> None:
    assert quantile([0, 0, 3], (1.0, 2.0), 0.5) == 2.0
