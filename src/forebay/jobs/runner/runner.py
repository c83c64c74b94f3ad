"""Durable jobs as a library: register task types, submit jobs, have them run model by model.

Needs neither a gateway nor an event loop. Jobs survive the program; a job that was running when it
died fails, or is retried. `scheduler` says how they are run.

>>> runner = TaskRunner("sqlite://", available_vram_gb=8.0)  # in memory, for once
>>> @runner.task("shout", vram_gb=2.5)
... def shout(task):
...     return task.params["text"].upper()
>>> with runner:
...     job_id, is_new = runner.submit("shout", {"text": "hello"})
...     _ = runner.wait_idle(10)
...     runner.get(job_id).result
'"HELLO"'
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from forebay.clock import Clock, SystemClock
from forebay.errors import NotAllowed, Rejected
from forebay.jobs.job import Failure, Status, StoredJob
from forebay.jobs.retention import Retention
from forebay.jobs.runner.options import RunnerOptions
from forebay.jobs.runner.scheduler import STOP_S, TaskScheduler
from forebay.jobs.runner.task_types import TaskType, TaskTypes
from forebay.jobs.runner.validation import new_job, warn_if_full
from forebay.jobs.store.job_store import JobStore
from forebay.jobs.store.recovery import INTERRUPTED, Recovery
from forebay.jobs.store.schema import JOBS
from forebay.storage.database import CLOSE_S, Database
from forebay.storage.file_lock import FileLock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from forebay.jobs.runner.gpu_memory import ReadGpus
    from forebay.jobs.runner.task_types import Handler

logger = logging.getLogger("forebay.jobs")

H = TypeVar("H", bound="Handler")

SHUTDOWN_S = 30.0


class TaskRunner:
    """Runs jobs, or only submits them: a program that never calls `start` only fills the queue.

    With the URL of a database the runner opens, recovers and closes it. With a `JobStore` it leaves
    that to whoever opened the store. Every method may be called from any thread.
    """

    def __init__(  # noqa: PLR0913 - one keyword for each setting
        self,
        database: str | JobStore,
        *,
        available_vram_gb: float | None = None,
        vram_budgets: Mapping[str, float] | None = None,
        max_queue_depth: int = 500,
        bypass_workers: int = 32,
        max_type_wait_seconds: float = 300.0,
        on_interrupt: Literal["fail", "retry"] = "fail",
        attempts: int = 3,
        lease_seconds: float = 30.0,
        vram_refresh_seconds: float = 10.0,
        poll_seconds: float = 1.0,
        retention_days: float | None = None,
        gpus: ReadGpus | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._options = RunnerOptions(
            available_vram_gb=available_vram_gb,
            vram_budgets=dict(vram_budgets or {}),
            max_queue_depth=max_queue_depth,
            bypass_workers=bypass_workers,
            max_type_wait_seconds=max_type_wait_seconds,
            on_interrupt=on_interrupt,
            attempts=attempts,
            lease_seconds=lease_seconds,
            vram_refresh_seconds=vram_refresh_seconds,
            poll_seconds=poll_seconds,
            retention_days=retention_days,
        )
        self._owns = isinstance(database, str)
        self._store = JobStore(Database(database, JOBS)) if isinstance(database, str) else database
        path = self._store.database.path
        self._file_lock = FileLock(path) if self._owns and path is not None else None
        self._types = TaskTypes(self._options.vram_budgets)
        self._read_gpus = gpus
        self._clock = clock or SystemClock()
        self._lifecycle = (
            threading.RLock()
        )  # held during start and shutdown, however long they take
        self._open_lock = threading.Lock()  # held while the database is opened or closed
        self._scheduler: TaskScheduler | None = None
        self._retention = Retention(
            self._store, retention_days or 0.0, types=self._own_types, clock=self._clock
        )
        self._closed = False
        self._submitted_early: set[int] = set()  # bypass jobs submitted before the start

    # -- task types

    def task(
        self, name: str, *, vram_gb: float | None = None, llm: bool = True
    ) -> Callable[[H], H]:
        """Register a sync or async function of one argument, the `Task`, as what runs a type.

        `vram_gb` is the GPU memory that its model takes. `llm=False` makes it a bypass type: its
        jobs run at once, each in a thread, outside VRAM budgets, and fail on restart. At most
        `bypass_workers` run at once, of all such types together; more are queued.
        """

        def register(handler: H) -> H:
            with self._lifecycle:
                if self._scheduler is not None and not llm and name not in self._types.all():
                    self._fail_queued(name, INTERRUPTED, "interrupted")  # before one can start
                self._types.add(TaskType(name, handler, vram_gb, llm))
                if self._scheduler is not None:
                    self._types.warn_of_missing_budgets()
                    self._scheduler.call_soon(self._scheduler.jobs.look)
            return handler

        return register

    @property
    def task_types(self) -> dict[str, TaskType]:
        """Every registered type, by its name."""
        return self._types.all()

    # -- jobs

    def submit(
        self,
        task_type: str,
        params: Any = None,
        job_id: int = 0,
        *,
        priority: str = "normal",
        idempotency_key: str | None = None,
    ) -> tuple[int, bool]:
        """Store a job, and return its id and whether it is new: the same work is one job.

        Raises NotAllowed for an unknown type, params that are not JSON or over 1 MiB, or another
        argument that makes no sense; StoreFailed when the database is away. Beyond
        `max_queue_depth` the job is stored as failed, and its id returned.
        """
        kind = self._types.get(task_type)
        new = new_job(task_type, params, job_id, priority, idempotency_key)
        # A start in between would take a bypass job for one that an earlier program left.
        early = not kind.llm and self._scheduler is None
        with self._lifecycle if early else contextlib.nullcontext():
            (added,) = self._opened().add([new], self._options.max_queue_depth).result()
            if early and self._scheduler is None and added.is_new:
                self._submitted_early.add(added.id)
        warn_if_full(added, task_type, self._options.max_queue_depth)
        return added.id, added.is_new

    def cancel(self, job_id: int) -> bool:
        """Cancel a job for good, queued or running; False where there is nothing to cancel.

        A queued one never runs. A running async handler is cancelled; a sync one sees it by
        `task.stage()` or `task.cancelled`, and what it returns is refused.
        """
        before = self._opened().cancel(job_id).result()
        if before is None or before.status not in ("queued", "running"):
            return False
        if (scheduler := self._scheduler) is not None:
            scheduler.jobs.claims.revoke((job_id, before.fence), "was cancelled")
        return True

    def retry(self, job_id: int) -> bool:
        """Queue a failed or cancelled job again, at its old place.

        False where it is neither, or the same work is queued or running already. Raises Rejected
        when the queue is full.
        """
        retried = self._opened().retry(job_id, None, self._options.max_queue_depth).result()
        if retried.full:
            raise Rejected(f"the queue of job {job_id}'s type is full")
        return retried.done

    def get(self, job_id: int) -> StoredJob | None:
        """Return a job as it is now."""
        return self._opened().get(job_id).result()

    def list(
        self,
        *,
        status: Status | None = None,
        task_type: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> Sequence[StoredJob]:
        """Return jobs, the newest first, without their params, results and tracebacks."""
        found = self._opened().list(
            status=status, task_type=task_type, before=before, limit=limit
        )  # fmt: skip
        return found.result()

    # -- the life of it

    def start(self) -> None:
        """Recover what was interrupted, then run what is queued; may be called twice.

        Raises NotAllowed when another runner works on the same SQLite file.
        """
        with self._lifecycle:
            if self._scheduler is not None:
                return
            with self._open_lock:
                self._closed = False
            try:
                self._begin()
            except BaseException:
                self._end(self._clock.monotonic_s() + CLOSE_S)
                self._closed = False  # jobs may be submitted all the same
                raise

    def shutdown(self, timeout: float = SHUTDOWN_S) -> None:
        """Take no more jobs, wait for those that run, and leave no thread; may be called twice.

        After `timeout` seconds handlers are interrupted: async ones are cancelled, sync ones see it
        by `task.stage()`; their jobs are requeued. One that does not stop within 0.4 s is
        abandoned, and its job treated as interrupted. Returns within `timeout` + 1 s whatever
        handlers and the database do; threads that are left do not keep the program alive.
        """
        limit_s = max(0.0, timeout) + STOP_S
        until_s = self._clock.monotonic_s() + limit_s
        if not self._lifecycle.acquire(timeout=limit_s):
            logger.error("shutdown timed out: another thread is starting or stopping the runner")
            return
        try:
            if self._scheduler is not None:
                self._scheduler.stop(until_s)
            self._end(until_s)
        finally:
            self._lifecycle.release()

    def drain(self) -> None:
        """Take no more jobs from now on; what runs goes on. `shutdown` does the rest."""
        scheduler = self._scheduler
        if scheduler is not None:
            scheduler.call_soon(scheduler.jobs.drain)

    def wait_drained(self, timeout: float) -> bool:
        """Wait until nothing runs any more after `drain`; False: something still does."""
        scheduler = self._scheduler
        return scheduler is None or scheduler.run(scheduler.jobs.wait_drained(timeout))

    def reset_running(self) -> int:
        """Requeue or fail jobs whose runner is gone, as `on_interrupt` says; return how many.

        On SQLite that is all that are running, so it is only for before `start`, which calls it.
        On PostgreSQL it is those of our types whose lease has expired.
        """
        with self._lifecycle:
            if self._scheduler is not None and self._exclusive:
                raise NotAllowed("reset_running() would end this runner's own jobs")
            store = self._opened()
            self._lock_file()
            return store.recover(self._recovery()).result()

    def wait_idle(self, timeout: float | None = None) -> bool:
        """Wait until nothing is queued for this runner and nothing runs in it; False: not yet."""
        scheduler = self._scheduler
        if scheduler is None:
            raise NotAllowed("start() the runner first")
        return scheduler.run(scheduler.executor.wait_idle(timeout))

    def __enter__(self) -> TaskRunner:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    # -- for metrics

    @property
    def reserved_vram_gb(self) -> float:
        """GPU memory that the running types hold."""
        scheduler = self._scheduler
        return 0.0 if scheduler is None else scheduler.executor.reserved_gb

    @property
    def available_vram_gb(self) -> float | None:
        """GPU memory that types may hold, on all GPUs together; None: no limit, or not started."""
        scheduler = self._scheduler
        return None if scheduler is None else scheduler.executor.available_gb

    # -- inside

    @property
    def _exclusive(self) -> bool:
        """Whether no other program can be running jobs of this database."""
        return self._owns and self._store.database.is_sqlite

    def _opened(self) -> JobStore:
        with self._open_lock:
            if self._closed:
                raise NotAllowed("the runner is shut down; start() it again")
            if self._owns:
                self._store.database.open()
        return self._store

    def _lock_file(self) -> None:
        if self._file_lock is not None:
            self._file_lock.take()

    def _end(self, until_s: float) -> None:
        """Disconnect from the store, by then at the latest."""
        changes = self._store.changes
        self._retention.stop(self._left_s(until_s) / 2)
        if self._owns:
            changes.stop_listening(self._left_s(until_s) / 2)
        self._scheduler = None
        with self._open_lock:
            self._closed = True
            if self._owns:
                self._store.database.close(self._left_s(until_s))
        if self._file_lock is not None:
            self._file_lock.release()

    def _left_s(self, until_s: float) -> float:
        return min(CLOSE_S, max(0.0, until_s - self._clock.monotonic_s()))

    def _begin(self) -> None:
        self._opened()
        self._lock_file()
        if self._owns:
            self.reset_running()
        if self._exclusive:
            self._fail_leftovers()
        self._types.warn_of_missing_budgets()
        scheduler = TaskScheduler(
            self._store, self._types, self._options, self._clock, self._read_gpus
        )
        scheduler.start(self._recovery if self._owns else None)
        self._scheduler = scheduler
        if self._owns:
            self._store.changes.listen(self._store.database)
        self._retention.start()
        self._submitted_early.clear()

    def _own_types(self) -> tuple[str, ...] | None:
        """Return the types that are nobody else's business; None for all, in one's own file."""
        return None if self._exclusive else tuple(self._types.all())

    def _recovery(self) -> Recovery:
        return Recovery(
            retry=self._options.on_interrupt == "retry",
            attempts=self._options.attempts,
            expired_only=not self._exclusive,
            never_again=() if self._exclusive else self._types.bypass(),
            known=self._own_types(),
        )

    def _fail_leftovers(self) -> None:
        """Fail queued jobs that will never run: old ones of bypass types, and without a handler."""
        how = Recovery(
            never_again=self._types.bypass(), spared=tuple(sorted(self._submitted_early))
        )
        self._store.recover(how).result()
        known = self._types.all()
        if not known:  # `get_runner()`: registered after the start
            return
        for name in self._store.depths().result():
            if name not in known:
                self._fail_queued(name, f"no handler for task type {name!r}", "no_handler")

    def _fail_queued(self, name: str, error: str, code: str) -> None:
        if self._exclusive:
            while self._store.fail_queue(name, Failure(error, code)).result():
                pass
