"""Leases that end, answers that are lost, and a database that is away for a while."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from sqlalchemy import update

from forebay.errors import StoreFailed
from forebay.jobs.job import NewJob
from forebay.jobs.store.recovery import Recovery
from forebay.jobs.store.schema import jobs
from forebay.testing.job_store_contract import claimed, expire, found, submit

from ..script import LIMIT_S, Script, idle, job

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.jobs.job import StoredJob
    from forebay.jobs.store.job_store import JobStore


def failed(error: Exception) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


# -- lost


def test_a_runner_that_lost_its_lease_has_its_result_refused(
    script: Callable[..., Script], open_store: Callable[[str], JobStore], postgres_url: str
) -> None:
    work = script(postgres_url, on_interrupt="retry")
    work.add("letter", held=True)
    (job_id,) = work.submit("letter", "mine")
    work.runner.start()
    work.begun("letter")
    store = open_store(postgres_url)
    expire(store)
    store.recover(Recovery(retry=True, attempts=3, expired_only=True)).result(LIMIT_S)
    other = claimed(store, worker="other")
    assert (other.id, other.attempt) == (job_id, 2)
    work.end()
    idle(work.runner)
    assert found(store, job_id).status == "running"
    assert store.complete(other, '"theirs"').result(LIMIT_S)
    assert found(store, job_id).result == '"theirs"'


def test_an_ended_lease_is_taken_over_by_a_running_runner(
    script: Callable[..., Script], open_store: Callable[[str], JobStore], postgres_url: str
) -> None:
    work = script(postgres_url, on_interrupt="retry", lease_seconds=1.0)
    work.add("letter")
    (job_id,) = work.submit("letter", 1)
    store = open_store(postgres_url)
    claimed(store, worker="dead")
    work.runner.start()
    idle(work.runner)
    expire(store)
    work.begun("letter")
    idle(work.runner)
    assert (found(store, job_id).status, found(store, job_id).attempt) == ("completed", 2)


def test_a_job_claimed_without_our_knowing_is_given_back(
    script: Callable[..., Script], open_store: Callable[[str], JobStore], sqlite_url: str
) -> None:
    """The answer to a claim is lost with the connection, but the claim was committed."""
    work = script(lease_seconds=0.3)
    store = work.runner._store
    honest, lost = store.claim, threading.Event()

    def claim(*given: Any, **options: Any) -> Future[list[StoredJob]]:
        answer = honest(*given, **options)
        if not lost.is_set() and answer.result(LIMIT_S):
            lost.set()
            return failed(StoreFailed("the connection is gone"))
        return answer

    store.claim = claim  # type: ignore[method-assign] # a fault, injected
    work.add("letter")
    (job_id,) = work.submit("letter", 1)
    work.runner.start()
    work.begun("letter")
    assert lost.is_set()
    idle(work.runner)
    ended = job(work.runner, job_id)
    assert (ended.status, ended.attempt, ended.fence) == ("completed", 1, 2)


def test_a_runner_that_may_have_missed_a_notification_asks_the_store(
    script: Callable[..., Script], open_store: Callable[[str], JobStore], sqlite_url: str
) -> None:
    work = script()
    work.add("letter")
    work.runner.start()
    submit(open_store(sqlite_url), NewJob("letter", "1"))
    work.runner._store.changes.resync()
    work.begun("letter")


# -- the database away


def test_an_outcome_is_recorded_once_the_database_is_back(script: Callable[..., Script]) -> None:
    work = script()
    store = work.runner._store
    honest, away = store.complete, [3]

    def complete(*given: Any) -> Future[bool]:
        if away[0]:
            away[0] -= 1
            return failed(StoreFailed("the database is away"))
        return honest(*given)

    store.complete = complete  # type: ignore[assignment, method-assign] # a fault, injected
    work.add("letter", vram_gb=1.0)
    (job_id,) = work.submit("letter", 1)
    work.runner.start()
    idle(work.runner)
    assert job(work.runner, job_id).result == "1"
    assert work.ran == [("letter", 1)]


def test_an_outcome_that_cannot_be_written_at_all_is_a_failure(
    script: Callable[..., Script],
) -> None:
    work = script()

    def complete(*given: Any) -> Future[bool]:
        return failed(RuntimeError("not in this column"))

    work.runner._store.complete = complete  # type: ignore[assignment, method-assign] # a fault, injected
    work.add("letter")
    (job_id,) = work.submit("letter", 1)
    work.runner.start()
    idle(work.runner)
    assert job(work.runner, job_id).error == "RuntimeError: not in this column"


def test_leases_are_renewed_while_a_handler_runs(
    script: Callable[..., Script], open_store: Callable[[str], JobStore], postgres_url: str
) -> None:
    work = script(postgres_url, lease_seconds=2.0)
    work.add("letter", held=True)
    (job_id,) = work.submit("letter", 1)
    work.runner.start()
    work.begun("letter")
    store = open_store(postgres_url)
    far = update(jobs).where(jobs.c.id == job_id).values(lease_until=2.0**40)
    store.database.write(lambda connection: connection.execute(far).rowcount).result(LIMIT_S)
    beaten = threading.Event()
    honest = work.runner._store.heartbeat

    def heartbeat(*given: Any) -> Any:
        answer = honest(*given)
        answer.add_done_callback(lambda _: beaten.set())
        return answer

    work.runner._store.heartbeat = heartbeat  # type: ignore[assignment, method-assign] # listened to
    assert beaten.wait(LIMIT_S)
    assert float(found(store, job_id).lease_until or 0) < 2.0**40
    work.end()
    idle(work.runner)
    assert found(store, job_id).status == "completed"
