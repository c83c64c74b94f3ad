"""How jobs and runners end otherwise: cancelled, or shut down."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from forebay.errors import NotAllowed, StoreFailed
from forebay.jobs import TaskCancelled
from forebay.testing.job_store_contract import found

from ..script import LIMIT_S, Script, idle, job

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.jobs import Task
    from forebay.jobs.store.job_store import JobStore


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
    work = script(lease_seconds=0.3)
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
) -> None:
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
