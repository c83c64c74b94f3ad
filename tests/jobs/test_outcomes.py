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
    Requeued,
    record,
)

if TYPE_CHECKING:
    import pytest

    from forebay.jobs.outcomes import Outcome
    from forebay.jobs.store.job_store import JobStore

UNSTORABLE = Failure("unstorable", "internal_error")


class AnsweringStore:
    """Notes what is asked, and gives the answers of a test in turn."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.asked: list[Any] = []
        self._answers = list(answers)

    def complete(self, _: StoredJob, result: str) -> Future[bool]:
        return self._answer(result)

    def fail(self, _: StoredJob, failure: Failure) -> Future[bool]:
        return self._answer(failure)

    def give_back(self, _: StoredJob, *, tried: bool) -> Future[bool]:
        return self._answer(tried)

    def cancel_held(self, _: StoredJob) -> Future[bool]:
        return self._answer("cancel")

    def _answer(self, asked: Any) -> Future[bool]:
        self.asked.append(asked)
        future: Future[bool] = Future()
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future


async def written(
    outcome: Outcome, *answers: bool | Exception, retries: int = 100
) -> tuple[list[Any], list[float]]:
    """Record an outcome; return what the store was asked, and how long was waited in between."""
    given = dict.fromkeys(StoredJob.__struct_fields__) | {"id": 7}
    store, claimed = AnsweringStore(*answers), ClaimedJob(StoredJob(**cast("Any", given)))
    waits: list[float] = []

    async def wait(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) <= retries

    await record(cast("JobStore", store), claimed, outcome, lambda _: UNSTORABLE, wait)
    return store.asked, waits


async def test_each_outcome_is_written_its_own_way() -> None:
    failure = Failure("no")
    outcomes = (Completed("1"), failure, Requeued(), CancelledHere())
    asked = [(await written(outcome, True))[0] for outcome in outcomes]
    assert asked == [["1"], [failure], [False], ["cancel"]]


async def test_an_unavailable_store_is_asked_again_ever_more_slowly_until_the_end() -> None:
    away = [StoreFailed("away")] * 20
    asked, waits = await written(Completed("1"), *away, retries=19)
    assert asked == ["1"] * 20
    assert (waits[0], waits[1], waits[-1]) == (RETRY_S_FIRST, 2 * RETRY_S_FIRST, RETRY_S_MAX)


async def test_what_cannot_be_stored_is_replaced_by_a_failure_once() -> None:
    broken = InvariantBroken("no such column")
    asked, _ = await written(Completed("1"), broken, broken)
    assert asked == ["1", UNSTORABLE]


async def test_a_refusal_is_logged_unless_an_earlier_write_may_have_got_through(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    await written(Completed("1"), False)
    assert "job 7: outcome refused, it was taken over" in caplog.text
    caplog.clear()
    await written(Completed("1"), StoreFailed("away"), False)
    assert "refused" not in caplog.text
