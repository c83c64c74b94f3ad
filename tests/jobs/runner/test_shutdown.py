"""A shutdown ends in its time, whatever handlers and the database do, and the rows say so."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING, Any

import pytest

from forebay.testing.job_store_contract import found

from ..script import LIMIT_S, Script, job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from forebay.jobs import Task
    from forebay.jobs.store.job_store import JobStore

TOO_LATE_S = 4.0
"""When handlers are let go that hold up everything: long after a shutdown(0) must have ended."""


class Wall:
    """What handlers run against. It opens by itself, too late, lest a failing test never end."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.opened = threading.Event()
        self._opening = threading.Timer(TOO_LATE_S, self.opened.set)

    def arm(self) -> None:
        self._opening.start()

    def open(self) -> None:
        self._opening.cancel()
        self.opened.set()

    # -- handlers that do not stop

    def blocks(self, task: Task) -> None:
        self.began.release()
        self.opened.wait()

    async def blocks_the_loop(self, task: Task) -> None:
        self.began.release()
        self.opened.wait()

    async def swallows_its_cancellation(self, task: Task) -> None:
        self.began.release()
        while not self.opened.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    async def waits_for_a_thread(self, task: Task) -> None:
        self.began.release()
        await asyncio.shield(asyncio.to_thread(self.opened.wait))

    def ends_its_own_runner(self, task: Task) -> None:
        self.began.release()
        WORK[0].runner.shutdown(TOO_LATE_S)
        self.opened.wait()


WORK: list[Script] = []


@pytest.fixture
def wall() -> Iterator[Wall]:
    made = Wall()
    yield made
    made.open()


@pytest.mark.parametrize(
    ("kind", "jobs", "options"),
    [
        ("blocks", 1, {}),
        ("blocks", 32, {"llm": False}),
        ("blocks_the_loop", 2, {"llm": False}),
        ("swallows_its_cancellation", 1, {}),
        ("waits_for_a_thread", 1, {}),
        ("ends_its_own_runner", 1, {}),
    ],
)
def test_a_shutdown_does_not_wait_for_handlers_that_do_not_stop(
    script: Callable[..., Script],
    open_store: Callable[[str], JobStore],
    sqlite_url: str,
    wall: Wall,
    kind: str,
    jobs: int,
    options: dict[str, Any],
) -> None:
    work = script()
    WORK[:] = [work]
    work.runner.task("stubborn", **options)(getattr(wall, kind))
    ids = work.submit("stubborn", *range(jobs))
    work.runner.start()
    for _ in range(1 if kind == "blocks_the_loop" else jobs):
        assert wall.began.acquire(timeout=LIMIT_S)
    wall.arm()
    work.runner.shutdown(0)
    assert not wall.opened.is_set()
    store = open_store(sqlite_url)
    ended = [found(store, one) for one in ids]
    allowed: set[tuple[str, str | None]] = {("failed", "Interrupted by shutdown")}
    if kind == "waits_for_a_thread":  # it stops waiting, and goes back to its place
        allowed = {("queued", None)}
    if kind == "blocks_the_loop":  # the other one may not have begun
        allowed |= {("queued", None)}
    if kind == "ends_its_own_runner":  # whoever was first to end the runner goes on with it
        allowed |= {("running", None)}
    assert {(one.status, one.error) for one in ended} <= allowed


def test_what_a_handler_says_after_it_was_left_to_itself_is_not_recorded(
    script: Callable[..., Script], wall: Wall, caplog: pytest.LogCaptureFixture
) -> None:
    work = script(on_interrupt="retry")
    work.runner.task("stubborn")(wall.blocks)
    (job_id,) = work.submit("stubborn", 1)
    work.runner.start()
    assert wall.began.acquire(timeout=LIMIT_S)
    left = [one for one in threading.enumerate() if one.name == "forebay-job-stubborn"]
    work.runner.shutdown(0)
    wall.open()
    for thread in left:
        thread.join(LIMIT_S)
    assert "outcome lost" not in caplog.text
    work.runner.start()
    assert wall.began.acquire(timeout=LIMIT_S)  # tried again: the first time counted
    assert work.runner.wait_idle(LIMIT_S)
    again = job(work.runner, job_id)
    assert (again.status, again.attempt) == ("completed", 2)


def test_a_shutdown_does_not_wait_for_a_database_that_is_locked(
    script: Callable[..., Script], sqlite_url: str, wall: Wall
) -> None:
    work = script()
    work.runner.task("stubborn")(wall.blocks)
    (job_id,) = work.submit("stubborn", 1)
    work.runner.start()
    assert wall.began.acquire(timeout=LIMIT_S)
    path = sqlite_url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        wall.arm()
        work.runner.shutdown(0)
        assert not wall.opened.is_set()
        other.execute("ROLLBACK")
    wall.open()
    work.runner.start()  # finds it running, or interrupted after all
    ended = job(work.runner, job_id)
    assert (ended.status, ended.error_code) == ("failed", "interrupted")


def test_a_job_that_is_claimed_while_the_runner_stops_goes_back(
    script: Callable[..., Script], open_store: Callable[[str], JobStore], sqlite_url: str
) -> None:
    work = script()
    work.add("letter", held=True)
    work.runner.start()
    ids = work.submit("letter", *range(20))
    work.runner.shutdown(0)
    store = open_store(sqlite_url)
    begun = {params for _, params in work.ran}
    for number, one in enumerate(ids):
        expected = "failed" if number in begun else "queued"
        assert found(store, one).status == expected


PROGRAM = """
    import asyncio, sys, threading, time
    from forebay.jobs import TaskRunner

    runner = TaskRunner(sys.argv[1], gpus=list)
    began = {name: threading.Event() for name in ("sync", "thread", "loop")}

    @runner.task("sync")
    def sync(task):
        began["sync"].set()
        while True:
            time.sleep(60)

    @runner.task("thread")
    async def thread(task):
        began["thread"].set()
        await asyncio.to_thread(time.sleep, 3600)

    @runner.task("loop")
    async def loop(task):
        while not began["thread"].is_set():
            await asyncio.sleep(0.01)
        began["loop"].set()
        time.sleep(3600)

    runner.start()
    for name in began:
        runner.submit(name)
    for event in began.values():
        event.wait()
    runner.shutdown(0)
    print("over")
"""


def test_no_handler_keeps_the_program_alive(sqlite_url: str) -> None:
    given = [sys.executable, "-c", textwrap.dedent(PROGRAM), sqlite_url]
    ended = subprocess.run(given, timeout=LIMIT_S, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, b"over\n"), ended.stderr
