"""What is shown while one waits: a pace and a bar."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from forebay.api.batches import RequestCounts
from forebay.cli.batch.progress import BatchProgressBar, Throughput
from forebay.sdk import Batch
from forebay.testing import FakeClock


def test_the_pace_is_that_of_the_last_minute() -> None:
    pace = Throughput()
    assert (pace.per_second(), pace.left_s(10)) == (0.0, None)
    for second in range(300):
        pace.note(float(second), second if second < 200 else 200 + 3 * (second - 200))
    assert pace.per_second() == pytest.approx(3.0)
    assert pace.left_s(30) == pytest.approx(10.0)


def test_a_pace_of_nothing_promises_nothing() -> None:
    pace = Throughput()
    pace.note(1.0, 5)
    pace.note(1.0, 6)  # a clock that stood still
    assert pace.left_s(1) is None
    pace.note(2.0, 0)  # a retry took lines back
    assert pace.per_second() == 0.0


def test_where_nobody_looks_there_is_a_line_for_every_tenth() -> None:
    said, clock = io.StringIO(), FakeClock()
    view = BatchProgressBar(clock, Console(file=said, width=200))
    with view.running():
        view.update(shown(0, 0, status="validating"))
        for done in range(1000):
            clock.advance(1.0)
            view.update(shown(1000, done))
        view.update(shown(3, 3, status="completed"))
    lines = said.getvalue().splitlines()
    assert lines[0] == "Checking the file ..."
    assert lines[6] == "Running: 500 of 1,000 done, 1.0/s, 8 min 20 s left"
    assert len(lines) == 11


def test_on_a_terminal_there_is_a_bar_with_all_figures() -> None:
    said, clock = io.StringIO(), FakeClock()
    view = BatchProgressBar(clock, Console(file=said, width=200, force_terminal=True))
    with view.running():
        for done in range(10):
            clock.advance(1.0)
            view.update(shown(1000, done, failed=done))
        view.say("between")
    text = said.getvalue()
    assert "18 of 1,000 done, 9 failed, 2.0/s, 8 min 11 s left" in text
    assert "between" in text


def shown(total: int, completed: int, failed: int = 0, status: str = "in_progress") -> Batch:
    return Batch("b", status, request_counts=RequestCounts(total, completed, failed))
