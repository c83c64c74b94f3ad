"""Batches that end before they are done: cancelled or expired."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forebay.jobs.batches import steps as batch_steps
from forebay.jobs.batches.batch import NotCancellable

from ..desk import Desk, counts, line

if TYPE_CHECKING:
    from forebay.jobs.job import Change


# -- cancelling


def test_a_cancelled_batch_keeps_what_is_done_and_says_what_is_not(desk: Desk) -> None:
    made = desk.create([line(f"c{i}") for i in range(6)])
    desk.move_on()
    desk.run(2)
    desk.fail()
    (running,) = desk.claim()
    heard: list[Change] = []
    desk.store.changes.listeners.append(heard.append)
    desk.aborted.clear()
    cancelled = desk.batches.cancel(made.name, "")
    assert cancelled is not None
    assert cancelled.status == "cancelling"
    assert desk.aborted == [running.id]
    assert sorted(one.before or "" for one in heard) == ["queued", "queued", "running"]
    assert not desk.store.complete(running, "{}").result()
    assert desk.claim() == []
    desk.move_on()
    done = desk.get(made)
    assert counts(done) == ("cancelled", 6, 2, 4)
    assert [answer["custom_id"] for answer in desk.content(done.output_file)] == ["c0", "c1"]
    codes = [answer["error"]["code"] for answer in desk.content(done.error_file)]
    assert codes == ["node_failed", *["batch_cancelled"] * 3]
    assert None not in (done.cancelling_at, done.cancelled_at)
    assert done.completed_at is None
    assert desk.rows() == []


def test_a_batch_that_is_not_validated_yet_is_cancelled_at_once(desk: Desk) -> None:
    made = desk.create([line("a")])
    cancelled = desk.batches.cancel(made.name, "")
    assert cancelled is not None
    assert counts(cancelled) == ("cancelled", 0, 0, 0)
    desk.move_on()
    assert desk.get(made) == cancelled
    assert desk.rows() == []


def test_a_batch_that_is_cancelled_while_it_is_validated_stays_so(desk: Desk) -> None:
    made = desk.create([line("a")])

    def cancel(owner: str, model: str) -> bool:
        desk.batches.cancel(made.name, "")
        return True

    desk.steps._may_use = cancel
    desk.move_on()
    assert desk.get(made).status == "cancelled"
    assert desk.rows() == []


def test_a_batch_that_is_cancelled_while_it_is_loaded_tells_of_every_line(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_steps, "CHUNK_LINES", 2)
    made = desk.stop_while_loading(7, chunks=2)
    desk.run(1)
    desk.batches.cancel(made.name, "")
    desk.steps.stopping.clear()
    desk.move_on()
    done = desk.get(made)
    assert counts(done) == ("cancelled", 7, 1, 6)
    ids = [answer["custom_id"] for answer in desk.content(done.error_file)]
    assert ids == [f"c{i}" for i in range(1, 7)]


def test_cancelling_twice_changes_nothing_and_too_late_is_refused(desk: Desk) -> None:
    made, other = desk.create([line("a")]), desk.create([line("b")])
    desk.move_on()
    first = desk.batches.cancel(made.name, "")
    assert desk.batches.cancel(made.name, "") == desk.get(made)
    desk.move_on()
    again = desk.batches.cancel(made.name, "")
    assert first is not None
    assert again is not None
    assert (again.status, again.cancelling_at) == ("cancelled", first.cancelling_at)
    desk.run()
    desk.move_on()
    with pytest.raises(NotCancellable):
        desk.batches.cancel(other.name, "")


# -- expiring


def test_what_is_unfinished_when_time_is_up_is_expired(desk: Desk) -> None:
    made = desk.create([line("a"), line("b"), line("c")])
    desk.move_on()
    desk.run(1)
    (running,) = desk.claim()
    desk.expire(made)
    desk.move_on()
    done = desk.get(made)
    assert counts(done) == ("expired", 3, 1, 2)
    assert desk.aborted == [running.id]
    assert not desk.store.complete(running, "{}").result()
    assert [answer["custom_id"] for answer in desk.content(done.output_file)] == ["a"]
    codes = [answer["error"]["code"] for answer in desk.content(done.error_file)]
    assert codes == ["batch_expired"] * 2
    assert done.expired_at is not None


def test_a_batch_that_was_never_looked_at_expires_too(desk: Desk) -> None:
    made = desk.create([line("a")])
    desk.expire(made)
    desk.move_on()
    assert counts(desk.get(made)) == ("expired", 0, 0, 0)


def test_a_batch_whose_last_line_is_done_completes_however_late_it_is(desk: Desk) -> None:
    made = desk.create([line("a")])
    desk.move_on()
    desk.run()
    desk.expire(made)
    desk.move_on()
    assert desk.get(made).status == "completed"


def test_the_next_expiry_is_known(desk: Desk) -> None:
    assert desk.steps.due().result() == ([], None)
    desk.create([line("a")])
    desk.move_on()
    due, left_s = desk.steps.due().result()
    assert due == []
    assert left_s == pytest.approx(86_400, abs=600)
