"""The last day, one point a minute."""

from __future__ import annotations

from forebay.api.events import TimelineSample
from forebay.api.status import DayHistory
from forebay.dashboard.minutes import MinuteSeries
from forebay.records.history import MINUTES_MAX

BOUNDS_S = (0.001, 1.0, 4.0)


def second(depth: int = 0, wait: float | None = None) -> TimelineSample:
    return TimelineSample({"high": depth}, depth, 1, 2, wait, wait)


def test_a_minute_sums_up_its_seconds() -> None:
    series = MinuteSeries(BOUNDS_S)
    for at, depth in enumerate((2, 4)):
        series.add(second(depth, float(depth)), 7.5, {}, 600.0 + at)
    assert series.history(("high",), 0).at == []
    series.add(second(), None, {}, 660.0)
    assert series.history(("high", "low"), 0) == DayHistory(
        priorities=["high", "low"],
        step_seconds=60,
        at=[600],
        depth={"high": [3.0], "low": [0]},
        processing=[3.0],
        served=[2],
        rejected=[4],
        wait_p50_seconds=[3.0],
        wait_p95_seconds=[4.0],
        tokens_per_second=[7.5],
        wait_p50_seconds_by_priority={"high": [None], "low": [None]},
        wait_p95_seconds_by_priority={"high": [None], "low": [None]},
    )


def test_waits_by_priority_are_those_of_their_minute() -> None:
    series = MinuteSeries(BOUNDS_S)
    counts = [
        {"high": [50, 0, 0, 0]},  # before anybody looked
        {"high": [50, 9, 1, 0]},
        {"high": [50, 9, 1, 0], "low": [0, 0, 0, 1]},
        {"high": [50, 9, 1, 0], "low": [0, 0, 0, 1]},
    ]
    for at, waits in zip((600.0, 601.0, 660.0, 720.0), counts, strict=True):
        series.add(second(), None, waits, at)
    told = series.history(("high", "low"), 0)
    assert told.wait_p50_seconds_by_priority == {"high": [0.001, None], "low": [None, 4.0]}
    assert told.wait_p95_seconds_by_priority == {"high": [1.0, None], "low": [None, 4.0]}


def test_points_of_an_older_version_and_a_newer_one_are_read() -> None:
    old = (
        '{"depth":{"high":1.0},"processing":1.0,"served":1,"rejected":0,'
        '"wait_p50_seconds":2.0,"wait_p95_seconds":3.0,"tokens_per_second":null'
    )
    series = MinuteSeries(BOUNDS_S)
    series.restore([(10, old + "}"), (11, old + ',"waits":{"high":[2.0,3.0]},"more":1}')])
    told = series.history(("high",), 0)
    assert told.wait_p95_seconds == [3.0, 3.0]
    assert told.wait_p95_seconds_by_priority == {"high": [None, 3.0]}


def test_points_are_handed_over_once_and_come_back_behind_none_twice() -> None:
    series, later = MinuteSeries(BOUNDS_S), MinuteSeries(BOUNDS_S)
    for minute in range(4):
        series.add(second(minute), None, {}, 60.0 * minute)
    fresh = series.take_fresh()
    assert [minute for minute, _ in fresh] == [0, 1, 2]
    assert series.take_fresh() == []
    for minute in (2, 9, 10):
        later.add(second(minute), None, {}, 60.0 * minute)
    later.restore(fresh)
    assert later.history(("high",), 0).at == [0, 60, 120, 540]
    assert later.history(("high",), 2).at == [120, 540]
    assert [minute for minute, _ in later.take_fresh()] == [2, 9]


def test_there_is_never_more_than_a_day() -> None:
    series = MinuteSeries(BOUNDS_S)
    for minute in range(MINUTES_MAX + 10):
        series.add(second(), None, {}, 60.0 * minute)
    at = series.history((), 0).at
    assert isinstance(at, list)
    assert len(at) == MINUTES_MAX


def test_a_clock_that_is_set_back_a_little_tears_no_minute_apart() -> None:
    series = MinuteSeries(BOUNDS_S)
    for at in (600.0, 630.0, 660.1, 659.9, 661.0, 720.0):
        series.add(second(), None, {}, at)
    told = series.history(("high",), 0)
    assert (told.at, told.served) == ([600, 660], [2, 3])


def test_a_clock_that_is_set_back_by_hours_leaves_no_points_of_the_future() -> None:
    series = MinuteSeries(BOUNDS_S)
    for at in (600.0, 7200.0, 7260.0, 660.0, 720.0, 7200.0, 7260.0):
        series.add(second(), None, {}, at)
    assert series.history(("high",), 0).at == [600, 660, 720, 7200]
    assert [minute for minute, _ in series.take_fresh()] == [10, 11, 12, 120]
