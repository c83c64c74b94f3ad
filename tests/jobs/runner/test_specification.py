"""The thirteen tests that specification 3 names, by its names."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from forebay.jobs import TaskRunner, get_runner, reset_runner
from forebay.jobs.job import NewJob
from forebay.jobs.store.job_store import JobStore
from forebay.jobs.store.schema import JOBS
from forebay.storage.database import Database
from forebay.testing.job_store_contract import claimed, submit

from ..script import LIMIT_S, Script, idle, job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from forebay.jobs import Task


@pytest.fixture
def earlier(sqlite_url: str) -> Iterator[JobStore]:
    """The database as an earlier program left it."""
    database = Database(sqlite_url, JOBS)
    database.open()
    yield JobStore(database)
    database.close()


def test_deepest_queue_wins_first_slot(script: Callable[..., Script]) -> None:
    work = script(available_vram_gb=6.0)
    work.add("company_research", vram_gb=5.0)
    work.add("cover_letter", vram_gb=2.5)
    work.submit("company_research", 1, 2)
    work.submit("cover_letter", 1, 2, 3)
    work.runner.start()
    idle(work.runner)
    assert [name for name, _ in work.ran] == ["cover_letter"] * 3 + ["company_research"] * 2


def test_fifo_within_type(script: Callable[..., Script]) -> None:
    work = script()
    work.add("cover_letter", vram_gb=2.5)
    work.submit("cover_letter", *range(20))
    work.runner.start()
    idle(work.runner)
    assert [params for _, params in work.ran] == list(range(20))


def test_concurrent_batches_when_vram_allows(script: Callable[..., Script]) -> None:
    work = script(available_vram_gb=8.0)
    for name in ("cover_letter", "company_research"):
        work.add(name, vram_gb=4.0, held=True)
        work.submit(name, 1)
    work.runner.start()
    work.begun("cover_letter")
    work.begun("company_research")
    assert work.runner.reserved_vram_gb == 8.0


def test_new_tasks_picked_up_mid_batch(script: Callable[..., Script]) -> None:
    work = script(available_vram_gb=4.0)
    workers = set()
    work.add("other", vram_gb=4.0)

    @work.runner.task("cover_letter", vram_gb=4.0)
    def handler(task: Task) -> None:
        workers.add(threading.current_thread())
        if task.params == 1:
            work.submit("cover_letter", 2, 3)
            work.submit("other", 1)
        else:
            work.ran.append(("cover_letter", task.params))

    work.submit("cover_letter", 1)
    work.runner.start()
    idle(work.runner)
    assert work.ran == [("cover_letter", 2), ("cover_letter", 3), ("other", 1)]
    assert len(workers) == 1


def test_worker_crash_releases_vram(script: Callable[..., Script]) -> None:
    work = script(available_vram_gb=4.0)
    work.add("after", vram_gb=4.0)

    @work.runner.task("crash", vram_gb=4.0)
    def crash(task: Task) -> None:
        raise SystemExit(3) if task.params == 1 else ValueError("boom")

    first, second = work.submit("crash", 1, 2)
    work.runner.start()
    idle(work.runner)
    work.submit("after", 1)
    idle(work.runner)
    assert work.ran == [("after", 1)]
    assert work.runner.reserved_vram_gb == 0
    assert job(work.runner, first).error == "SystemExit: 3"
    failed = job(work.runner, second)
    assert (failed.status, failed.error, failed.attempt) == ("failed", "ValueError: boom", 1)
    assert 'raise SystemExit(3) if task.params == 1 else ValueError("boom")' in str(
        failed.traceback
    )


def test_non_llm_tasks_bypass_scheduler(script: Callable[..., Script]) -> None:
    work = script(available_vram_gb=4.0)
    work.add("cover_letter", vram_gb=4.0, held=True)
    work.add("email_sync", held=True, llm=False)
    work.runner.start()
    work.submit("cover_letter", 1)
    work.begun("cover_letter")
    work.submit("email_sync", *range(5))
    for _ in range(5):  # all at once, beside a GPU that is full
        work.begun("email_sync")
    assert work.runner.reserved_vram_gb == 4.0


def test_durability_llm_tasks_on_startup(script: Callable[..., Script], earlier: JobStore) -> None:
    submit(earlier, *(NewJob("cover_letter", str(n)) for n in range(3)))
    work = script()
    work.add("cover_letter", vram_gb=1.0)
    work.runner.start()
    idle(work.runner)
    assert [params for _, params in work.ran] == [0, 1, 2]


def test_durability_excludes_non_llm(script: Callable[..., Script], earlier: JobStore) -> None:
    ids = submit(earlier, NewJob("discovery", "1"), NewJob("discovery", "2"))
    claimed(earlier, "discovery")
    work = script(on_interrupt="retry")
    work.add("discovery", llm=False)
    (own,) = work.submit("discovery", 3)
    work.runner.start()
    idle(work.runner)
    assert work.ran == [("discovery", 3)]
    assert {job(work.runner, one).error for one in ids} == {"Interrupted by restart"}
    assert job(work.runner, own).status == "completed"


def test_running_rows_reset_before_scheduler(
    script: Callable[..., Script], earlier: JobStore
) -> None:
    ids = submit(earlier, NewJob("cover_letter", "1"), NewJob("cover_letter", "2"))
    claimed(earlier, "cover_letter")
    work = script()
    work.add("cover_letter", vram_gb=1.0)
    assert work.runner.reset_running() == 1
    assert work.runner.reset_running() == 0
    first = job(work.runner, ids[0])
    assert (first.status, first.error) == ("failed", "Interrupted by restart")
    assert job(work.runner, ids[1]).status == "queued"
    work.runner.start()
    idle(work.runner)
    assert work.ran == [("cover_letter", 2)]


def test_max_queue_depth_marks_failed(
    script: Callable[..., Script], caplog: pytest.LogCaptureFixture
) -> None:
    work = script(max_queue_depth=2)
    work.add("cover_letter", vram_gb=1.0)
    *_, last = work.submit("cover_letter", 1, 2, 3)
    assert "the queue of task type 'cover_letter' is full (2)" in caplog.text
    work.runner.start()
    idle(work.runner)
    full = job(work.runner, last)
    assert (full.status, full.error_code) == ("failed", "job_queue_full")
    assert work.ran == [("cover_letter", 1), ("cover_letter", 2)]


def test_missing_budget_logs_warning(
    script: Callable[..., Script], caplog: pytest.LogCaptureFixture
) -> None:
    work = script(vram_budgets={"configured": 3.0})
    for name in ("bare", "configured"):
        work.add(name)
    work.add("sync", llm=False)
    work.runner.start()
    warned = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert warned == ["no VRAM budget for task type 'bare': counts as 0"]


def test_singleton_thread_safe(sqlite_url: str) -> None:
    together = threading.Barrier(20)

    def ask(_: int) -> TaskRunner:
        together.wait(LIMIT_S)
        return get_runner(sqlite_url, gpus=list)

    try:
        with ThreadPoolExecutor(20) as pool:
            runners = set(pool.map(ask, range(20)))
        assert len(runners) == 1
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("forebay-scheduler") == 1
    finally:
        reset_runner()


def test_reset_scheduler_cleans_up(sqlite_url: str) -> None:
    before = set(threading.enumerate())
    runner = get_runner(sqlite_url, gpus=list)

    @runner.task("later", vram_gb=1.0)
    async def later(task: Task) -> int:
        return 1

    job_id, _ = runner.submit("later")
    idle(runner)
    assert job(runner, job_id).result == "1"
    assert set(threading.enumerate()) - before
    reset_runner()
    reset_runner()
    assert set(threading.enumerate()) <= before
    again = get_runner(sqlite_url, gpus=list)
    assert again is not runner
    reset_runner()
