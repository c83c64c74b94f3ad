"""The retry budget: retries never add more than their share of load."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.relay.retries import FLOOR, WINDOW_S, RetryBudget


def spend(budget: RetryBudget, now_s: float) -> int:
    """Take retries until there are no more, and return how many there were."""
    taken = 0
    while budget.take(now_s):
        taken += 1
    return taken


@pytest.mark.parametrize(
    ("requests", "retries"), [(0, 10), (50, 10), (100, 10), (200, 20), (999, 99)]
)
def test_a_tenth_of_the_requests_may_be_retries_and_ten_always(requests: int, retries: int) -> None:
    budget = RetryBudget(0.1)
    for number in range(requests):
        budget.note_request(1000.0 + number / requests)
    assert spend(budget, 1001.0) == retries


def test_a_budget_of_nothing_still_has_its_floor() -> None:
    assert spend(RetryBudget(0.0), 5.0) == FLOOR


def test_what_is_older_than_the_window_is_forgotten() -> None:
    budget = RetryBudget(0.1)
    for _ in range(500):
        budget.note_request(0.0)
    assert spend(budget, 0.0) == 50
    assert spend(budget, WINDOW_S - 0.1) == 0
    assert spend(budget, WINDOW_S + 1.0) == FLOOR


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.floats(0.0, 3.0), st.booleans()), max_size=300))
def test_over_any_window_retries_stay_within_the_budget(
    events: list[tuple[float, bool]],
) -> None:
    budget, now_s = RetryBudget(0.1), 100.0
    requests: list[float] = []
    retries: list[float] = []
    for step_s, is_request in events:
        now_s += step_s
        if is_request:
            budget.note_request(now_s)
            requests.append(now_s)
        elif budget.take(now_s):
            retries.append(now_s)
        recent = [at_s for at_s in retries if at_s > now_s - (WINDOW_S - 1.0)]
        asked = [at_s for at_s in requests if at_s > now_s - (WINDOW_S + 1.0)]
        assert len(recent) <= max(FLOOR, 0.1 * len(asked))
