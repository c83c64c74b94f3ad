"""How jobs and runners end otherwise: cancelled, lost, shut down, with the database away."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import update

from forebay.errors import NotAllowed
from forebay.jobs import TaskCancelled
from forebay.jobs import running as running_module
from forebay.jobs.database import Database, StoreFailed
from forebay.jobs.recovering import Recovery
from forebay.jobs.schema import jobs
from forebay.jobs.store import JobStore
from forebay.testing.job_store_steps import claimed, expire, found

from .script import LIMIT_S, Script, idle, job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from forebay.jobs import Task
    from forebay.jobs.job import Job


@pytest.fixture
def open_store() -> Iterator[Callable[[str], JobStore]]:
    """Another program's way to the database."""
    opened: list[Database] = []

    def make(url: str) -> JobStore:
        opened.append(Database(url))
        opened[-1].open()
        return JobStore(opened[-1])

    yield make
    for database in opened:
        database.close()


# -- cancelled


def test_a_job_cancelled_while_queued_never_runs(script: Callable[..., Script]) -> None:
    work = script()
    work.add("letter", held=True)
    first, second, third = work.submit("letter", 1, 2, 3)
    work.runner.start()
    work.begun("letter")
    assert work.runner.cancel(second)
    work.end()
    idle(work.runner)
    assert [params for _, params in work.ran] == [1, 3]
    assert not work.runner.cancel(first)
    assert not work.runner.cancel(10**9)
    assert job(work.runner, second).status == "cancelled"
    assert job(work.runner, third).status == "completed"


def test_a_running_async_handler_is_cancelled_for_real(script: Callable[..., Script]) -> None:
    work = script()
    began, ended = threading.Event(), threading.Event()

    @work.runner.task("letter", vram_gb=1.0)
    async def handler(task: Task) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    (job_id,) = work.submit("letter", 1)
    work.runner.start()
    assert began.wait(LIMIT_S)
    assert work.runner.cancel(job_id)
    assert ended.wait(LIMIT_S)
    idle(work.runner)
    assert job(work.runner, job_id).status == "cancelled"
    assert work.runner.reserved_vram_gb == 0


def test_a_running_sync_handler_learns_of_it_at_its_next_stage(
    script: Callable[..., Script],
) -> None:
    work = script()
    began, go = threading.Event(), threading.Event()
    seen: list[Any] = []

    @work.runner.task("letter")
    def handler(task: Task) -> str:
        began.set()
        assert go.wait(LIMIT_S)
        seen.append(task.cancelled)
        try:
            task.stage("further")
        except Exception:
            seen.append("swallowed")
        except TaskCancelled as error:
            seen.append(str(error))
            raise
        return "late"

    (job_id,) = work.submit("letter", 1)
    work.runner.start()
    assert began.wait(LIMIT_S)
    work.runner.cancel(job_id)
    go.set()
    idle(work.runner)
    assert seen == [True, f"job {job_id} was cancelled"]
    assert job(work.runner, job_id).status == "cancelled"


def test_the_late_result_of_a_cancelled_job_is_refused(script: Callable[..., Script]) -> None:
    work = script()
    work.add("letter", held=True)
    (job_id,) = work.submit("letter", 1)
    work.runner.start()
    work.begun("letter")
    work.runner.cancel(job_id)
    work.end()
    idle(work.runner)
    ended = job(work.runner, job_id)
    assert (ended.status, ended.result) == ("cancelled", None)


def test_a_cancellation_by_another_program_arrives_with_the_heartbeat(
    script: Callable[..., Script], open_store: Callable[[str], JobStore], sqlite_url: str
) -> None:
    work = script(lease_seconds=0.03)
    began, ended = threading.Event(), threading.Event()

    @work.runner.task("letter")
    async def handler(task: Task) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    (job_id,) = work.submit("letter", 1)
    work.runner.start()
    assert began.wait(LIMIT_S)
    open_store(sqlite_url).cancel(job_id).result(LIMIT_S)
    assert ended.wait(LIMIT_S)
    idle(work.runner)
    assert job(work.runner, job_id).status == "cancelled"


def test_a_handler_that_raises_cancellation_by_itself_has_failed(
    script: Callable[..., Script],
) -> None:
    work = script()

    @work.runner.task("sync")
    def sync(task: Task) -> None:
        raise TaskCancelled("no")

    @work.runner.task("async")
    async def wait(task: Task) -> None:
        raise asyncio.CancelledError

    @work.runner.task("exits")
    async def exits(task: Task) -> None:
        raise KeyboardInterrupt

    ids = [*work.submit("sync", 1), *work.submit("async", 1), *work.submit("exits", 1)]
    work.runner.start()
    idle(work.runner)
    assert [job(work.runner, one).error for one in ids] == [
        "TaskCancelled: no",
        "CancelledError",
        "KeyboardInterrupt",
    ]
    assert work.runner.submit("exits", 2)[1]  # the loop is still there
    idle(work.runner)


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
    work = script(postgres_url, on_interrupt="retry", lease_seconds=0.05)
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
    work = script(lease_seconds=0.03)
    store = work.runner._store
    honest, lost = store.claim, threading.Event()

    def claim(*given: Any) -> Future[list[Job]]:
        answer = honest(*given)
        if not lost.is_set() and answer.result(LIMIT_S):
            lost.set()
            raise StoreFailed("the connection is gone")
        return answer

    store.claim = claim  # type: ignore[assignment, method-assign] # a fault, injected
    work.add("letter")
    (job_id,) = work.submit("letter", 1)
    work.runner.start()
    work.begun("letter")
    assert lost.is_set()
    idle(work.runner)
    ended = job(work.runner, job_id)
    assert (ended.status, ended.attempt, ended.fence) == ("completed", 1, 2)


# -- the database away


def test_an_outcome_is_recorded_once_the_database_is_back(script: Callable[..., Script]) -> None:
    work = script()
    store = work.runner._store
    honest, away = store.complete, [3]

    def complete(*given: Any) -> Future[bool]:
        if away[0]:
            away[0] -= 1
            raise StoreFailed("the database is away")
        return honest(*given)

    store.complete = complete  # type: ignore[method-assign] # a fault, injected
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
        raise RuntimeError("not in this column")

    work.runner._store.complete = complete  # type: ignore[method-assign] # a fault, injected
    work.add("letter")
    (job_id,) = work.submit("letter", 1)
    work.runner.start()
    idle(work.runner)
    assert job(work.runner, job_id).error == "RuntimeError: not in this column"


# -- shut down


def test_a_shutdown_waits_for_what_runs_and_leaves_the_rest_queued(
    script: Callable[..., Script], open_store: Callable[[str], JobStore], sqlite_url: str
) -> None:
    before = set(threading.enumerate())
    work = script()
    work.add("letter", held=True)
    first, second = work.submit("letter", 1, 2)
    work.runner.start()
    work.begun("letter")
    ending = threading.Thread(target=work.runner.shutdown)
    ending.start()
    work.let("letter")
    ending.join(LIMIT_S)
    assert set(threading.enumerate()) <= before
    work.runner.shutdown()
    with pytest.raises(NotAllowed, match="shut down"):
        work.runner.submit("letter", 3)
    store = open_store(sqlite_url)
    assert [found(store, one).status for one in (first, second)] == ["completed", "queued"]
    work.end()
    work.runner.start()
    idle(work.runner)
    assert [params for _, params in work.ran] == [1, 2]


def test_a_handler_may_submit_while_the_runner_shuts_down(
    script: Callable[..., Script], open_store: Callable[[str], JobStore], sqlite_url: str
) -> None:
    work = script()
    began, go = threading.Event(), threading.Event()

    @work.runner.task("letter")
    def handler(task: Task) -> int:
        began.set()
        assert go.wait(LIMIT_S)
        return work.runner.submit("letter", "next")[0]

    (job_id,) = work.submit("letter", 1)
    work.runner.start()
    assert began.wait(LIMIT_S)
    ending = threading.Thread(target=work.runner.shutdown)
    ending.start()
    go.set()
    ending.join(LIMIT_S)
    store = open_store(sqlite_url)
    done = found(store, job_id)
    assert done.status == "completed"
    assert found(store, int(str(done.result))).status == "queued"


def test_at_the_end_of_patience_async_handlers_are_cancelled_and_given_back(
    script: Callable[..., Script], open_store: Callable[[str], JobStore], sqlite_url: str
) -> None:
    before = set(threading.enumerate())
    work = script()
    began = threading.Event()

    @work.runner.task("letter", vram_gb=1.0)
    async def handler(task: Task) -> None:
        began.set()
        await asyncio.Event().wait()

    (job_id,) = work.submit("letter", 1)
    work.runner.start()
    assert began.wait(LIMIT_S)
    work.runner.shutdown(timeout=0)
    assert set(threading.enumerate()) <= before
    given_back = found(open_store(sqlite_url), job_id)
    assert (given_back.status, given_back.attempt) == ("queued", 0)


def test_a_sync_handler_that_does_not_listen_is_left_to_itself(
    script: Callable[..., Script],
    open_store: Callable[[str], JobStore],
    sqlite_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running_module, "GRACE_S", 0.05)
    work = script()
    work.add("letter", held=True)
    (job_id,) = work.submit("letter", 1)
    work.runner.start()
    work.begun("letter")
    work.runner.shutdown(timeout=0)
    left = found(open_store(sqlite_url), job_id)
    assert (left.status, left.error) == ("failed", "Interrupted by shutdown")
    work.end()


def test_a_runner_that_cannot_open_its_database_says_so(script: Callable[..., Script]) -> None:
    work = script("sqlite:////nowhere/at/all/jobs.db")
    work.add("letter")
    with pytest.raises(StoreFailed, match="unable to open"):
        work.runner.start()


def test_resetting_under_a_running_runner_is_refused(script: Callable[..., Script]) -> None:
    work = script()
    work.runner.start()
    with pytest.raises(NotAllowed, match="own jobs"):
        work.runner.reset_running()


def test_leases_are_renewed_while_a_handler_runs(
    script: Callable[..., Script], open_store: Callable[[str], JobStore], postgres_url: str
) -> None:
    work = script(postgres_url, lease_seconds=0.05)
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

    work.runner._store.heartbeat = heartbeat  # type: ignore[method-assign] # listened to
    assert beaten.wait(LIMIT_S)
    assert float(found(store, job_id).lease_until or 0) < 2.0**40
    work.end()
    idle(work.runner)
    assert found(store, job_id).status == "completed"
