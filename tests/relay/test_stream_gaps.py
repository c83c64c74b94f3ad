"""Streams that have gone silent are found, on time, and without work for every chunk."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.relay.stream_gaps import LOOKS, StreamGaps
from forebay.testing import FakeClock

pytestmark = pytest.mark.interpreted("compiled, it takes nothing but an Attempt")


class Stream:
    """Stands for an attempt: a time is all that is asked of it."""

    heard_s = 0.0


def watched(count: int) -> tuple[FakeClock, StreamGaps, list[Any], list[Any]]:
    clock, late = FakeClock(100.0), list[Any]()
    gaps = StreamGaps(60.0, late.append, clock)
    streams: list[Any] = [Stream() for _ in range(count)]
    for stream in streams:
        gaps.add(stream)
    return clock, gaps, streams, late


def test_a_stream_is_late_when_nothing_was_heard_of_it_for_the_limit_and_not_before() -> None:
    clock, gaps, (silent, lively), late = watched(2)
    clock.advance(10.0)
    lively.heard_s = clock.monotonic_s()
    clock.advance(49.9)
    assert late == []
    clock.advance(0.1)
    assert late == [silent]
    clock.advance(9.9)
    assert late == [silent]
    clock.advance(0.1)
    assert late == [silent, lively]
    assert len(gaps) == 0


def test_one_that_has_ended_is_not_late() -> None:
    clock, gaps, (stream,), late = watched(1)
    gaps.discard(stream)
    clock.advance(100.0)
    assert late == []


def test_those_that_fall_silent_one_by_one_are_all_found_soon() -> None:
    clock, _, streams, late = watched(500)
    for number, stream in enumerate(streams):
        stream.heard_s = 100.0 + number * 0.1
    clock.advance(60.0 + 50.0 + 60.0 / LOOKS)
    assert late == streams


def test_another_limit_holds_for_those_already_in() -> None:
    clock, gaps, (stream,), late = watched(1)
    gaps.change(5.0)
    clock.advance(5.0)
    assert late == [stream]


def test_a_limit_of_zero_is_none() -> None:
    clock, gaps, _, late = watched(1)
    gaps.change(0.0)
    clock.advance(1000.0)
    assert late == []
