"""Recording an outcome: until it is stored, refused, or replaced by the reason it cannot be."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, cast

from forebay.errors import InvariantBroken, StoreFailed
from forebay.jobs.claims import ClaimedJob
from forebay.jobs.job import Failure, StoredJob
from forebay.jobs.outcomes import (
    RETRY_S_FIRST,
    RETRY_S_MAX,
    CancelledHere,
    Completed,
    Recording,
    Requeued,
)

if TYPE_CHECKING:
    import pytest

    from forebay.jobs.outcomes import Outcome
    from forebay.jobs.store.job_store import JobStore

UNSTORABLE = Failure("unstorable", "internal_error")


class NotingStore:
    """Notes what is asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def complete(self, _: StoredJob, result: str) -> None:
        self.asked.append(result)

    def fail(self, _: StoredJob, failure: Failure) -> None:
        self.asked.append(failure)

    def give_back(self, _: StoredJob, *, tried: bool) -> None:
        self.asked.append(tried)

    def cancel_held(self, _: StoredJob) -> None:
        self.asked.append("cancel")


def recording(outcome: Outcome) -> tuple[Recording, NotingStore]:
    given = dict.fromkeys(StoredJob.__struct_fields__) | {"id": 7}
    store, claimed = NotingStore(), ClaimedJob(StoredJob(**cast("Any", given)))
    return Recording(cast("JobStore", store), claimed, outcome, lambda _: UNSTORABLE), store


def answer(value: bool | Exception) -> Future[bool]:
    future: Future[bool] = Future()
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


def test_each_outcome_is_written_its_own_way() -> None:
    failure = Failure("no")
    written = []
    for outcome in (Completed("1"), failure, Requeued(), CancelledHere()):
        one, store = recording(outcome)
        one.write()
        assert one.retry_s(answer(True)) is None
        written += store.asked
    assert written == ["1", failure, False, "cancel"]


def test_an_unavailable_store_is_asked_again_ever_more_slowly() -> None:
    one, _ = recording(Completed("1"))
    pauses = [one.retry_s(answer(StoreFailed("away"))) for _ in range(20)]
    assert (pauses[0], pauses[1], pauses[-1]) == (RETRY_S_FIRST, 2 * RETRY_S_FIRST, RETRY_S_MAX)


def test_what_cannot_be_stored_is_replaced_by_a_failure_once() -> None:
    one, store = recording(Completed("1"))
    one.write()
    assert one.retry_s(answer(InvariantBroken("no such column"))) == 0.0
    one.write()
    assert one.retry_s(answer(InvariantBroken("nor that"))) is None
    assert store.asked == ["1", UNSTORABLE]


def test_a_refusal_is_logged_unless_an_earlier_write_may_have_got_through(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    first, _ = recording(Completed("1"))
    first.write()
    assert first.retry_s(answer(False)) is None
    assert "job 7: outcome refused, it was taken over" in caplog.text
    caplog.clear()
    second, _ = recording(Completed("1"))
    second.write()
    second.retry_s(answer(StoreFailed("away")))
    second.write()
    caplog.clear()
    assert second.retry_s(answer(False)) is None
    assert caplog.text == ""
