"""What is shown while one waits: a pace, a bar, and patience with a gateway that is away."""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from forebay.cli.batch.progress import Pace, View
from forebay.cli.batch.run import PIECE_BYTES, BadFile, Form
from forebay.cli.gateway_client import GatewayAway, GatewayRefused
from forebay.cli.patience import AWAY_S_MAX, PAUSE_S_MAX, Patience
from forebay.testing import FakeClock

from .batch_server import progress

if TYPE_CHECKING:
    from pathlib import Path


def test_the_pace_is_that_of_the_last_minute() -> None:
    pace = Pace()
    assert (pace.per_second(), pace.left_s(10)) == (0.0, None)
    for second in range(300):
        pace.note(float(second), second if second < 200 else 200 + 3 * (second - 200))
    assert pace.per_second() == pytest.approx(3.0)
    assert pace.left_s(30) == pytest.approx(10.0)


def test_a_pace_of_nothing_promises_nothing() -> None:
    pace = Pace()
    pace.note(1.0, 5)
    pace.note(1.0, 6)  # a clock that stood still
    assert pace.left_s(1) is None
    pace.note(2.0, 0)  # a retry took lines back
    assert pace.per_second() == 0.0


def test_where_nobody_looks_there_is_a_line_for_every_tenth() -> None:
    said, clock = io.StringIO(), FakeClock()
    view = View(clock, Console(file=said, width=200))
    with view.uploading(10**9) as note, view.running():
        note(10**9)
        view.update(progress("validating") | {"request_counts": _counts(0, 0)})
        for done in range(1000):
            clock.advance(1.0)
            view.update(progress() | {"request_counts": _counts(1000, done)})
        view.update(progress("completed", 3))
    lines = said.getvalue().splitlines()
    assert lines[0] == "Checking the file ..."
    assert lines[6] == "Running: 500 of 1,000 done, 1.0/s, 8 min 20 s left"
    assert len(lines) == 11


def test_on_a_terminal_there_is_a_bar_with_all_figures() -> None:
    said, clock = io.StringIO(), FakeClock()
    view = View(clock, Console(file=said, width=200, force_terminal=True))
    with view.uploading(10**9) as note:
        note(10**8)
    with view.running():
        for done in range(10):
            clock.advance(1.0)
            counts = {"total": 1000, "completed": done, "failed": done}
            view.update(progress() | {"request_counts": counts})
        view.say("between")
    text = said.getvalue()
    assert "Uploading" in text
    assert "18 of 1,000 done, 9 failed, 2.0/s, 8 min 11 s left" in text
    assert "between" in text


def _counts(total: int, completed: int) -> dict[str, int]:
    return {"total": total, "completed": completed, "failed": 0}


def test_patience_ends_and_the_pauses_grow_until_then() -> None:
    clock, said, pauses = FakeClock(), list[str](), list[float]()

    def wait(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(seconds)

    def ask() -> None:
        raise GatewayAway("no gateway answers at x (refused). Start one with: forebay serve.")

    with pytest.raises(GatewayAway):
        Patience(clock, said.append, wait).until_answered(ask)
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert max(pauses) == PAUSE_S_MAX
    assert AWAY_S_MAX <= clock.monotonic_s() < AWAY_S_MAX + PAUSE_S_MAX
    assert said == ["No gateway answers at x (refused). Waiting for it to come back."]


@pytest.mark.parametrize(("status", "asked"), [(400, 1), (401, 1), (404, 1), (429, 2), (503, 2)])
def test_only_what_may_pass_is_asked_again(status: int, asked: int) -> None:
    answers = [GatewayRefused(status, "code", "no"), None]

    def ask() -> str:
        answer = answers.pop(0)
        if answer is not None:
            raise answer
        return "yes"

    patience = Patience(FakeClock(), lambda _: None, lambda _: None)
    if asked == 1:
        with pytest.raises(GatewayRefused):
            patience.until_answered(ask)
    else:
        assert patience.until_answered(ask) == "yes"
    assert len(answers) == 2 - asked


def test_a_form_is_made_in_pieces_and_is_as_long_as_it_says(tmp_path: Path) -> None:
    file = tmp_path / 'a "b"\n.jsonl'
    file.write_bytes(b"x" * (3 * PIECE_BYTES + 5))
    sent: list[int] = []
    form = Form(file)
    pieces = list(form.pieces(sent.append))
    assert sum(map(len, pieces)) == int(form.headers["content-length"])
    assert max(map(len, pieces)) == PIECE_BYTES
    assert sum(sent) == file.stat().st_size
    assert b'filename="a %22b%22%0A.jsonl"' in pieces[0]
    assert form.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_file_that_shrinks_while_it_is_sent_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"x" * 10)
    form = Form(file)
    file.write_bytes(b"x" * 9)
    with pytest.raises(BadFile, match="got shorter"):
        list(form.pieces(lambda _: None))
