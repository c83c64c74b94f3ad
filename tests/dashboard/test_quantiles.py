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
        assert 0 < above - below <= max(0.00101, 0.0501 * above)
    assert len(FINE_BOUNDS_S) < 300, "it is kept 91 times"


@given(WAITS)
def test_a_higher_quantile_is_never_lower(waits: list[float]) -> None:
    found = [quantile(counted(waits), FINE_BOUNDS_S, share / 20) for share in range(1, 21)]
    assert all(value is not None for value in found)
    assert found == sorted(found)  # type: ignore[type-var]


@pytest.mark.parametrize(("counts", "told"), [([0] * 3, None), ([9, 0, 0], 0.0), ([0, 0, 3], 2.0)])
def test_at_the_ends_a_quantile_is_the_bound_that_is_known(
    counts: list[int], told: float | None
) -> None:
    assert quantile(counts, (1.0, 2.0), 0.5) == told
