"""The time line: what it keeps, for how long, and what it says of a minute."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from forebay.dashboard.history import (
    MINUTE,
    SAMPLES_MAX,
    WAITS_WINDOW,
    HistoryReading,
    SampleHistory,
)

BOUNDS_S = (0.001, 1.0, 10.0)


def reading(**given: Any) -> HistoryReading:
    depth = {"high": 0, "normal": given.pop("waiting", 0)}
    nothing = (0, 0, 0, 0)
    values = {"processing": 0, "served": 0, "rejected": 0, "waits": nothing, **given}
    values["waits"] = {"normal": values["waits"]}
    values = {"first_tokens": nothing, "output_tokens": 0, **values}
    return HistoryReading(depth=depth, **values)


def test_a_sample_says_what_happened_since_the_one_before() -> None:
    history = SampleHistory(BOUNDS_S)
    history.add(reading(waiting=4, processing=2, served=10, rejected=1))
    history.add(reading(waiting=3, processing=2, served=13, rejected=1))
    assert history.newest is not None
    assert (history.newest.served, history.newest.rejected) == (3, 0)
    assert history.newest.depth == {"high": 0, "normal": 3}


def test_waits_are_told_over_the_window_and_then_forgotten() -> None:
    history = SampleHistory(BOUNDS_S)
    history.add(reading(waits=(0, 0, 4, 0)))
    for _ in range(WAITS_WINDOW - 1):
        history.add(reading(waits=(0, 0, 4, 0)))
    assert history.newest is not None
    assert history.newest.wait_p50_seconds == 1.0
    history.add(reading(waits=(0, 0, 4, 0)))
    assert history.newest.wait_p50_seconds is None


def test_a_wait_counts_whatever_its_priority() -> None:
    history = SampleHistory(BOUNDS_S)
    waits = {"high": (0, 0, 1, 0), "low": (0, 0, 0, 1)}
    history.add(msgspec.structs.replace(reading(), waits=waits))
    assert history.newest is not None
    assert (history.newest.wait_p50_seconds, history.newest.wait_p95_seconds) == (1.0, 10.0)


def test_waits_are_told_by_priority_too() -> None:
    history = SampleHistory(BOUNDS_S)
    seen = {"high": (1, 0, 0, 0), "low": (0, 0, 0, 7)}
    history.begin(msgspec.structs.replace(reading(), waits=seen))
    now = {"high": (1, 0, 0, 1), "low": (0, 0, 0, 7), "normal": (0, 0, 1, 0)}
    for _ in range(WAITS_WINDOW + 1):
        history.add(msgspec.structs.replace(reading(), waits=now))
    columns = history.timeline(["high", "normal", "low", "new"], "")
    assert columns.wait_p95_seconds_by_priority == {
        "high": [10.0] * WAITS_WINDOW + [None],
        "normal": [1.0] * WAITS_WINDOW + [None],
        "low": [None] * (WAITS_WINDOW + 1),
        "new": [None] * (WAITS_WINDOW + 1),
    }


def test_tokens_and_first_tokens_are_those_of_the_last_minute() -> None:
    history = SampleHistory(BOUNDS_S)
    assert (history.tokens_per_second(), history.first_token(0.5)) == (None, None)
    history.add(reading(output_tokens=40, first_tokens=(0, 0, 4, 0)))
    assert (history.tokens_per_second(), history.first_token(0.5)) == (40.0, 1.0)
    for _ in range(MINUTE - 1):
        history.add(reading(output_tokens=100, first_tokens=(0, 0, 4, 0)))
    assert (history.tokens_per_second(), history.first_token(0.95)) == (1.7, 1.0)
    history.add(reading(output_tokens=100, first_tokens=(0, 0, 4, 0)))
    assert (history.tokens_per_second(), history.first_token(0.5)) == (1.0, None)


def test_what_had_been_counted_before_the_first_sample_is_no_news() -> None:
    history = SampleHistory(BOUNDS_S)
    before = {"waits": (0, 0, 4, 0), "first_tokens": (0, 0, 0, 9), "output_tokens": 1000}
    history.begin(reading(**before, served=50, rejected=7))
    now = {"waits": (0, 1, 4, 0), "first_tokens": (0, 1, 0, 9), "output_tokens": 1003}
    history.add(reading(**now, served=52, rejected=8))
    assert (newest := history.newest) is not None
    assert (newest.wait_p95_seconds, newest.served, newest.rejected) == (0.001, 2, 1)
    assert (history.tokens_per_second(), history.first_token(0.95)) == (3.0, 0.001)


def test_the_columns_hold_the_last_fifteen_minutes_oldest_first() -> None:
    history = SampleHistory(BOUNDS_S)
    for second in range(SAMPLES_MAX + 50):
        history.add(reading(processing=second))
    columns = history.timeline(["high", "normal", "low"], "")
    assert columns.processing == list(range(50, SAMPLES_MAX + 50))
    assert columns.sample_number == SAMPLES_MAX + 50
    assert columns.depth["low"] == [0] * SAMPLES_MAX, "a class that was added by a reload"
    lengths = {
        len(column) for column in msgspec.structs.astuple(columns) if isinstance(column, list)
    }
    assert lengths == {SAMPLES_MAX}


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=3 * MINUTE))
def test_a_minute_is_what_its_seconds_add_up_to(seconds: list[tuple[int, int]]) -> None:
    history, served, rejected = SampleHistory(BOUNDS_S), 0, 0
    for more_served, more_rejected in seconds:
        served, rejected = served + more_served, rejected + more_rejected
        history.add(reading(served=served, rejected=rejected))
    last = seconds[-MINUTE:]
    assert history.served_per_minute() == sum(one for one, _ in last)
    assert history.rejected_per_minute() == sum(one for _, one in last)


def test_totals_that_another_counts_are_no_news() -> None:
    history = SampleHistory(BOUNDS_S)
    served = []
    for total, leader in ((3, 1), (5, 1), (4000, 2), (4001, 2), (2, 3), (3, 3)):
        history.add(reading(served=total, source=("coordinated", leader)))
        assert history.newest is not None
        served.append(history.newest.served)
    assert served == [0, 2, 0, 1, 0, 1]


def test_totals_that_fall_are_never_told_as_less_than_nothing() -> None:
    history = SampleHistory(BOUNDS_S)
    history.add(reading(served=10))
    history.add(reading(served=4))
    assert history.newest is not None
    assert history.newest.served == 0
