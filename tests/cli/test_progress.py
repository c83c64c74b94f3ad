"""What is shown while one waits: a pace, a bar, and patience with a gateway that is away."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from forebay.api.batches import RequestCounts
from forebay.cli.batch.progress import BatchProgressBar, Throughput
from forebay.cli.batch.run import BadFile, SentFile
from forebay.cli.gateway import AWAY_S_MAX, PAUSE_S_MAX, OutageRetry
from forebay.sdk import Batch, GatewayAway, GatewayError
from forebay.sdk.errors import error_of
from forebay.testing import FakeClock

if TYPE_CHECKING:
    from pathlib import Path


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
    with view.uploading(10**9) as note, view.running():
        note(10**9)
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
    with view.uploading(10**9) as note:
        note(10**8)
    with view.running():
        for done in range(10):
            clock.advance(1.0)
            view.update(shown(1000, done, failed=done))
        view.say("between")
    text = said.getvalue()
    assert "Uploading" in text
    assert "18 of 1,000 done, 9 failed, 2.0/s, 8 min 11 s left" in text
    assert "between" in text


def shown(total: int, completed: int, failed: int = 0, status: str = "in_progress") -> Batch:
    return Batch("b", status, request_counts=RequestCounts(total, completed, failed))


def test_patience_ends_and_the_pauses_grow_until_then() -> None:
    clock, said, pauses = FakeClock(), list[str](), list[float]()

    def wait(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(seconds)

    def ask() -> None:
        raise GatewayAway("no gateway answers at x (refused)", sent=False)

    with pytest.raises(GatewayAway):
        OutageRetry(clock, said.append, wait).until_answered(ask)
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert max(pauses) == PAUSE_S_MAX
    assert AWAY_S_MAX <= clock.monotonic_s() < AWAY_S_MAX + PAUSE_S_MAX
    assert said == ["No gateway answers at x (refused). Waiting for it to come back."]


@pytest.mark.parametrize(("status", "asked"), [(400, 1), (401, 1), (404, 1), (429, 2), (503, 2)])
def test_only_what_may_pass_is_asked_again(status: int, asked: int) -> None:
    answers = [error_of(status, {"error": {"code": "c", "message": "no"}}), None]

    def ask() -> str:
        answer = answers.pop(0)
        if answer is not None:
            raise answer
        return "yes"

    patience = OutageRetry(FakeClock(), lambda _: None, lambda _: None)
    if asked == 1:
        with pytest.raises(GatewayError):
            patience.until_answered(ask)
    else:
        assert patience.until_answered(ask) == "yes"
    assert len(answers) == 2 - asked


def test_of_a_file_what_was_read_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"x" * 35)
    sent: list[int] = []
    with SentFile(file) as opened:
        opened.note = sent.append
        pieces = list(iter(lambda: opened.read(10), b""))
    assert b"".join(pieces) == file.read_bytes()
    assert sum(sent) == opened.size == file.stat().st_size


def test_a_file_that_grows_while_it_is_sent_is_sent_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"x" * 10)
    with SentFile(file) as opened:
        file.write_bytes(b"x" * 11)
        assert opened.read() == b"x" * 10


def test_a_file_that_shrinks_while_it_is_sent_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"x" * 10)
    with SentFile(file) as opened:
        file.write_bytes(b"x" * 9)
        assert opened.read(9)
        with pytest.raises(BadFile, match="got shorter"):
            opened.read(9)
