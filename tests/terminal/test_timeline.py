"""The last minutes: each second is counted once, and columns stay where they are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from forebay.sdk.status import read_hello, read_snapshot
from forebay.terminal.view import Timeline

from .scripted_gateway import hello

if TYPE_CHECKING:
    from forebay.api.events import DashboardSnapshot


def sampled(number: int, waiting: int, served: int = 0) -> DashboardSnapshot:
    sample = {"depth": {"normal": waiting}, "served": served}
    return read_snapshot(json.dumps({"sample": sample, "sample_number": number}))


def begun(depth: list[int], number: int) -> Timeline:
    timeline = Timeline()
    history = {"depth": {"normal": depth}, "served": [1] * len(depth), "sample_number": number}
    timeline.begin(read_hello(json.dumps(hello(history=history))))
    return timeline


def test_a_sample_that_two_snapshots_share_is_taken_once() -> None:
    timeline = begun([], 0)
    for number in (1, 1, 2, 2):
        timeline.add(sampled(number, 5, served=1))
    assert timeline.served(300) == [1.0, 1.0]


def test_history_and_snapshots_make_one_line() -> None:
    timeline = begun([1, 2, 3], 10)
    timeline.add(sampled(10, 99))
    timeline.add(sampled(11, 4))
    assert timeline.depth(300) == [1, 2, 3, 4]


def test_samples_that_were_missed_leave_the_line_where_it_was() -> None:
    timeline = begun([7], 10)
    timeline.add(sampled(14, 2))
    assert timeline.depth(300) == [7, 7, 7, 7, 2]


def test_a_column_shows_the_deepest_and_all_that_were_served() -> None:
    timeline = begun([0] * 300, 299)  # places 0 to 299: thirty columns of ten seconds
    for number in range(300, 310):
        timeline.add(sampled(number, number - 300, served=1))
    assert timeline.depth(30)[-1] == 9
    assert timeline.served(30) == [10.0] * 30


@given(st.lists(st.integers(0, 50), max_size=400), st.integers(0, 10_000), st.integers(1, 200))
def test_a_column_that_is_full_does_not_change_any_more(
    depth: list[int], newest: int, columns: int
) -> None:
    timeline = begun(depth, newest)
    before = timeline.depth(columns)
    timeline.add(sampled(newest + 1, 3))
    after = timeline.depth(columns)
    assert len(after) <= columns
    settled = before[:-1]
    assert settled == after[: len(settled)] or settled[1:] == after[: len(settled) - 1]


def test_another_connection_replaces_what_was_known() -> None:
    timeline = begun([9, 9, 9], 50)
    history = {"depth": {"normal": [1]}, "served": [0], "sample_number": 1}
    timeline.begin(read_hello(json.dumps(hello(history=history))))
    timeline.add(sampled(2, 2))
    assert timeline.depth(300) == [1, 2]
    assert timeline.peak_by_priority == 2
