"""Submitting, stages, results, retries and bypass types, through the runner's front door."""

from __future__ import annotations

import asyncio
import datetime
import math
import threading
from typing import TYPE_CHECKING, Any

import pytest

from forebay.errors import NotAllowed, Rejected
from forebay.jobs import TaskRunner
from forebay.jobs.job import NewJob
from forebay.jobs.store.job_store import JobStore
from forebay.jobs.store.schema import JOBS
from forebay.storage.database import Database
from forebay.testing.job_store_contract import found, submit

from ..script import LIMIT_S, Script, idle, job

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.jobs import Task

# -- submitting


def test_the_same_work_is_one_job_until_it_has_ended(script: Callable[..., Script]) -> None:
    work = script()
    work.add("letter", held=True, vram_gb=1.0)
    first = work.runner.submit("letter", {"a": 1, "b": 2}, 7)
    assert work.runner.submit("letter", {"b": 2, "a": 1}, 7) == (first[0], False)
    assert work.runner.submit("letter", {"a": 1, "b": 2}, 8)[1]
    key = work.runner.submit("letter", 1, idempotency_key="k")
    assert work.runner.submit("letter", 2, idempotency_key="k") == (key[0], False)
    work.runner.start()
    work.end()
    idle(work.runner)
    assert work.runner.submit("letter", {"a": 1, "b": 2}, 7)[1]


def test_an_unknown_type_is_refused_with_the_nearest_name(script: Callable[..., Script]) -> None:
    work = script()
    work.add("cover_letter")
    work.add("research")
    with pytest.raises(NotAllowed, match=r"known are: cover_letter, research; did you mean 'cov"):
        work.runner.submit("cover_leter")
    assert work.runner.list() == []


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"when": datetime.date(2030, 1, 1)}, r"params\.when is not JSON: a date"),
        ([1, {"x": {1}}], r"params\[1\]\.x is not JSON: a set"),
        ({"x": math.nan}, r"params\.x is not JSON: nan"),
        ({"x": "\ud800"}, r"params\.x is not JSON: half a character"),
        ({"x": "y" * (1 << 20)}, r"params has 1048584 bytes of JSON, 1048576 are allowed"),
    ],
)
def test_params_that_are_not_json_are_refused_by_name(
    script: Callable[..., Script], params: Any, named: str
) -> None:
    work = script()
    work.add("letter")
    with pytest.raises(NotAllowed, match=named):
        work.runner.submit("letter", params)
    assert work.runner.list() == []


def test_other_arguments_that_make_no_sense_are_refused_by_name(
    script: Callable[..., Script],
) -> None:
    work = script()
    work.add("letter")
    with pytest.raises(NotAllowed, match="job_id"):
        work.runner.submit("letter", None, 1 << 70)
    with pytest.raises(NotAllowed, match="priority 'urgent'"):
        work.runner.submit("letter", priority="urgent")
    with pytest.raises(NotAllowed, match="idempotency_key"):
        work.runner.submit("letter", idempotency_key="a\x00")
    with pytest.raises(NotAllowed, match="registered already"):
        work.add("letter")
    with pytest.raises(NotAllowed, match="lease_seconds"):
        TaskRunner("sqlite://", lease_seconds=0)


def test_higher_priorities_go_first_and_equal_ones_in_order(
    script: Callable[..., Script],
) -> None:
    work = script()
    work.add("letter", vram_gb=1.0)
    for params, priority in ((1, "low"), (2, "normal"), (3, "high"), (4, "normal")):
        work.runner.submit("letter", params, priority=priority)
    work.runner.start()
    idle(work.runner)
    assert [params for _, params in work.ran] == [3, 2, 4, 1]


def test_jobs_that_another_program_adds_are_seen(
    script: Callable[..., Script], sqlite_url: str
) -> None:
    work = script(poll_seconds=0.01)
    work.add("letter", vram_gb=1.0)
    work.runner.start()
    idle(work.runner)
    elsewhere = TaskRunner(sqlite_url)
    elsewhere.task("letter")(lambda task: None)
    elsewhere.submit("letter", "from afar")
    work.begun("letter")
    elsewhere.shutdown()
    assert work.ran == [("letter", "from afar")]


def test_a_second_runner_on_the_same_file_is_refused_by_its_name(
    script: Callable[..., Script], sqlite_url: str
) -> None:
    work, other = script(), script()
    work.runner.start()
    with pytest.raises(NotAllowed, match=r"another runner \(pid \d+\) works on .*jobs\.db"):
        other.runner.start()
    with pytest.raises(NotAllowed, match="another runner"):
        other.runner.reset_running()
    other.add("letter")
    assert other.runner.submit("letter")[1]
    work.runner.shutdown()
    other.runner.start()
    other.begun("letter")


def test_rows_of_a_type_without_a_handler_fail_at_the_start(
    script: Callable[..., Script], sqlite_url: str
) -> None:
    database = Database(sqlite_url, JOBS)
    database.open()
    (row,) = submit(JobStore(database), NewJob("gone", "{}"))
    work = script()
    work.add("letter")
    work.runner.start()
    assert found(JobStore(database), row).error == "no handler for task type 'gone'"
    database.close()


def test_a_row_whose_params_are_not_json_fails(
    script: Callable[..., Script], sqlite_url: str
) -> None:
    database = Database(sqlite_url, JOBS)
    database.open()
    (row,) = submit(JobStore(database), NewJob("letter", "{broken"))
    database.close()
    work = script()
    work.add("letter")
    work.runner.start()
    idle(work.runner)
    assert str(job(work.runner, row).error).startswith("NotAllowed: params is not JSON")


# -- handlers


def test_async_handlers_share_one_loop(script: Callable[..., Script]) -> None:
    work = script()
    together = asyncio.Barrier(2)
    loops = []

    async def handler(task: Task) -> Any:
        loops.append(asyncio.get_running_loop())
        async with together:
            task.stage("together")
        return {"n": task.params}

    work.runner.task("a")(handler)
    work.runner.task("b")(handler)
    ids = [*work.submit("a", 1), *work.submit("b", 2)]
    work.runner.start()
    idle(work.runner)
    assert [job(work.runner, one).result for one in ids] == ['{"n":1}', '{"n":2}']
    assert len(set(loops)) == 1


def test_a_handler_knows_its_job_and_says_how_far_it_is(script: Callable[..., Script]) -> None:
    work = script()
    seen: list[Any] = []

    @work.runner.task("letter")
    def handler(task: Task) -> None:
        seen.append((task.id, task.job_id, task.attempt, task.params, task.cancelled))
        task.stage("half\x00way")
        seen.append(job(work.runner, task.id).stage)

    job_id, _ = work.runner.submit("letter", {"n": 1}, 42)
    work.runner.start()
    idle(work.runner)
    assert seen == [(job_id, 42, 1, {"n": 1}, False), "half\\x00way"]


def test_a_result_that_is_not_json_fails_and_says_so(script: Callable[..., Script]) -> None:
    work = script()
    work.runner.task("letter")(lambda task: {"made": object()})
    (job_id,) = work.submit("letter", 1)
    work.runner.start()
    idle(work.runner)
    failed = job(work.runner, job_id)
    assert failed.error == "NotAllowed: result.made is not JSON: a object"


@pytest.mark.parametrize(("options", "workers"), [({}, 32), ({"bypass_workers": 3}, 3)])
def test_bypass_jobs_are_bounded_and_shared_out_evenly(
    script: Callable[..., Script], options: dict[str, int], workers: int
) -> None:
    work = script(**options)
    for name in ("crowd", "few"):
        work.add(name, llm=False, held=True)
    work.runner.start()
    work.submit("crowd", *range(workers + 8))
    for _ in range(workers):
        work.begun("crowd")
    work.submit("few", 1)
    threads = [one.name for one in threading.enumerate()].count("forebay-job-crowd")
    assert threads == workers
    work.let("crowd")
    work.begun("few")
    work.end()
    idle(work.runner)
    assert len(work.ran) == workers + 9


def test_bypass_jobs_beyond_their_workers_are_queued_up_to_the_depth(
    script: Callable[..., Script],
) -> None:
    work = script(bypass_workers=2, max_queue_depth=3)
    work.add("sync", llm=False, held=True)
    work.runner.start()
    running = work.submit("sync", 1, 2)
    for _ in running:
        work.begun("sync")
    *queued, refused = work.submit("sync", 3, 4, 5, 6)
    assert [job(work.runner, one).status for one in queued] == ["queued"] * 3
    assert job(work.runner, refused).error_code == "job_queue_full"
    work.end()
    idle(work.runner)
    assert {job(work.runner, one).status for one in (*running, *queued)} == {"completed"}


def test_a_failed_job_is_retried_by_hand_only(script: Callable[..., Script]) -> None:
    work = script(on_interrupt="retry", max_queue_depth=1)
    tries: list[int] = []

    @work.runner.task("letter")
    def handler(task: Task) -> int:
        tries.append(task.attempt)
        if len(tries) == 1:
            raise ValueError("not yet")
        return 5

    (job_id,) = work.submit("letter", 1)
    work.runner.start()
    idle(work.runner)
    assert (job(work.runner, job_id).status, tries) == ("failed", [1])
    assert work.runner.retry(job_id)
    idle(work.runner)
    assert (job(work.runner, job_id).result, tries) == ("5", [1, 1])
    assert not work.runner.retry(job_id)
    work.runner.shutdown()


def test_a_retry_into_a_full_queue_is_rejected(script: Callable[..., Script]) -> None:
    work = script(max_queue_depth=1)
    work.add("letter")
    first, _ = work.submit("letter", 1, 2)
    assert work.runner.cancel(first)
    work.submit("letter", 3)
    with pytest.raises(Rejected):
        work.runner.retry(first)


def test_a_store_that_is_handed_in_is_neither_opened_nor_closed_nor_recovered(
    script: Callable[..., Script], sqlite_url: str
) -> None:
    database = Database(sqlite_url, JOBS)
    database.open()
    store = JobStore(database)
    ids = submit(store, NewJob("letter", "1"), NewJob("others", "2"))
    running = store.claim("others", "someone", 30.0).result(LIMIT_S)
    work = script(store)
    work.add("letter")
    with work.runner:
        work.begun("letter")
        idle(work.runner)
    assert found(store, ids[0]).status == "completed"
    assert found(store, running[0].id).status == "running"
    assert store.changes.listeners == []
    database.close()
