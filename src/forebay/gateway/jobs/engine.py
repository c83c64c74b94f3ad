"""The job store and everything that works on it, from open to close.

Imported before the port is open, by the worker that leads: the database's library takes 17 MB and
a tenth of a second, which the other workers need not pay.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.jobs.batches.files import Files
from forebay.jobs.batches.keeper import BatchKeeper
from forebay.jobs.batches.service import BatchService
from forebay.jobs.batches.steps import BatchSteps
from forebay.jobs.builtin import ROUTES, model_of
from forebay.jobs.idle.tickets import SlotSource, TicketExecutor
from forebay.jobs.job import Failure
from forebay.jobs.loop import JobLoop
from forebay.jobs.retention import Retention
from forebay.jobs.runner.runner import TaskRunner
from forebay.jobs.runner.singleton import disown_runner, load_task_types
from forebay.jobs.store.change_bus import JobFollowers, LoopListener, call_soon
from forebay.jobs.store.job_store import JobStore
from forebay.jobs.store.recovery import Recovery
from forebay.jobs.store.schema import JOBS
from forebay.jobs.webhooks import Webhooks
from forebay.storage.file_lock import FileLock

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from concurrent.futures import Future

    from forebay.clock import TimerHandle
    from forebay.gateway.jobs.service import JobDeps
    from forebay.jobs.idle.backlog import ModelBacklog
    from forebay.jobs.job import Change, Status
    from forebay.settings import JobsSettings

logger = logging.getLogger("forebay.jobs")

CLOSE_S = 5.0
"""How long the store may take to record outcomes when the gateway stops."""
STOP_S = 3.0
"""How long interrupted jobs have to be recorded."""
POLL_S = 2.0
"""How often the store is asked what other gateways have added or left, should a notification be
lost."""
RECOUNT_S = 60.0


class JobEngine:
    """Made once; opened again after a failure."""

    def __init__(self, deps: JobDeps) -> None:
        self._deps = deps
        self._settings = settings = deps.settings
        self._database = deps.records.database()
        self._lock = FileLock(self._database.path) if self._database.path is not None else None
        self.store = JobStore(self._database)
        self.store.in_force = deps.in_force
        folder = Path(settings.files_folder) if settings.files_folder else None
        self.files = Files(self._database, folder)
        self.batches = BatchService(self.store, webhook=bool(settings.webhook_url))
        keeper = secrets.token_hex(8)
        steps = BatchSteps(
            self.batches, self.files, deps.may_use, keeper, settings.lease_seconds
        )  # fmt: skip
        self._keeper = BatchKeeper(self.batches, steps)
        self.followers = JobFollowers()
        self._listener = LoopListener(self.store, self._take_in, self.followers.wake_all)
        self._retention = Retention(
            self.store, settings.retention_days, self.files, types=self._own_types
        )
        self._recounting: TimerHandle | None = None
        self.loop: JobLoop[ModelBacklog] | None = None
        self.tickets: TicketExecutor | None = None
        self.webhooks: Webhooks | None = None
        self._runner = _runner(settings, self.store) if settings.modules else None

    def _take_in(self, changes: list[Change]) -> None:
        self._deps.figures.take_in(changes)
        self.followers.wake(changes)
        if self.webhooks is not None:
            self.webhooks.take_in(changes)

    def _own_types(self) -> tuple[str, ...]:
        """Return the types of jobs that this gateway runs: others' are for others to delete."""
        return (*ROUTES, *(self._runner.task_types if self._runner is not None else ()))

    def load_modules(self) -> None:
        """Import an app's own task types; blocks. Raises BadModule."""
        if self._runner is not None:
            load_task_types(self._runner, self._settings.modules)

    async def open(self) -> None:
        """Start everything in the database of the records; raises StoreFailed or NotAllowed."""
        await self._deps.records.opened()
        await asyncio.wrap_future(self._database.write(JOBS.migrate))
        await asyncio.to_thread(self._take_files)
        try:
            await self._start()
        except BaseException:  # half open is no use: the next try begins anew
            await self.close()
            raise

    async def _start(self) -> None:
        deps = self._deps
        await self._recover()
        deps.figures.recount(await asyncio.wrap_future(self.store.counts()))
        self.followers.stopped = False
        self._listener.start()
        await self._start_loop()
        await self._keeper.start()
        if self._runner is not None:
            await asyncio.to_thread(self._runner.start)
            runner = self._runner
            deps.figures.vram_reserved_gb = lambda: runner.reserved_vram_gb
        url = self._settings.webhook_url
        if url:
            self.webhooks = Webhooks(self.store, url, deps.webhook_secret, deps.clock)
            self.webhooks.start()
            self._keeper.moved = self.webhooks.wake
        if not self._database.is_sqlite:
            self._count_again()
        self.store.changes.listen(self._database)
        loop = asyncio.get_running_loop()
        self._retention.on_deleted = partial(call_soon, loop, deps.figures.discount)
        self._retention.on_step = partial(call_soon, loop, deps.figures.count_deleted)
        self._retention.start()

    def _take_files(self) -> None:
        """Open the folder of files; with SQLite, take the lock of the runner before."""
        if self._lock is not None:
            self._lock.take()
        self.files.open()

    async def _recover(self) -> None:
        """Recover what the last program left running, and fail what has no handler."""
        await asyncio.wrap_future(self.store.recover(self._recovery()))
        if not self._database.is_sqlite:
            return  # others may know the types that we do not
        ours = self.task_types()
        for queue in await asyncio.wrap_future(self.store.depths()):
            if model_of(queue) is None and queue not in ours:
                failure = Failure(f"no handler for task type {queue!r}", "no_handler")
                while await asyncio.wrap_future(self.store.fail_queue(queue, failure)):
                    pass

    async def _start_loop(self) -> None:
        deps, settings = self._deps, self._settings
        loop: JobLoop[ModelBacklog] = JobLoop(
            self.store, f"gateway-{secrets.token_hex(8)}", settings.lease_seconds, POLL_S,
            deps.clock, self._recovery,
        )  # fmt: skip
        self.loop = loop
        loop.end_revoked = self._end_revoked
        slots = SlotSource(
            deps.relay, deps.resolve, deps.clock, deps.explain, deps.paced, deps.shares_nodes
        )
        self.tickets = TicketExecutor(loop, slots)
        await loop.start(self.tickets)

    async def _end_revoked(self, owners: set[str]) -> bool:
        """End what is queued in the name of revoked keys; say whether there was any job."""
        revoked = self._deps.revoked()
        if not revoked:
            return False
        await asyncio.to_thread(self.batches.cancel_of, revoked)
        gone = owners & revoked.keys()
        left = len(gone)
        while left:
            left = await asyncio.wrap_future(self.store.cancel_of(gone))
        return bool(gone)

    def keys_changed(self) -> None:
        """End what was queued for keys that are revoked; go on with those that are back."""
        self._keeper.wake()  # batches wait to be validated
        if self.loop is not None:
            self.loop.look()

    def drain(self) -> None:
        """Start nothing more and disconnect followers; what runs may finish."""
        self.followers.stop()
        if self.loop is not None:
            self.loop.drain()
        if self._runner is not None:
            self._runner.drain()

    async def finished(self, limit_s: float) -> None:
        """Wait until no handler of an app runs any more, at most `limit_s`."""
        runner, over = self._runner, asyncio.Event()
        if runner is None:
            return
        loop = asyncio.get_running_loop()

        def wait() -> None:
            runner.wait_drained(limit_s)
            call_soon(loop, over.set)

        # A daemon thread: it must not delay the end of the program.
        threading.Thread(target=wait, name="forebay-drain", daemon=True).start()
        await over.wait()

    async def close(self) -> None:
        """Record outcomes and close; the relay has ended what was running.

        A store that hangs is not waited for: all futures that are left fail.
        """
        self.followers.stop()
        if self._recounting is not None:
            self._recounting.cancel()
        await asyncio.to_thread(self._retention.stop)
        await asyncio.to_thread(self.store.changes.stop_listening)
        stopping = asyncio.ensure_future(self._stop_workers())
        await asyncio.wait({stopping}, timeout=CLOSE_S)
        await asyncio.to_thread(self._database.settle, CLOSE_S if stopping.done() else 0.5)
        await stopping
        self._listener.stop()
        self.files.close()
        if self._lock is not None:
            self._lock.release()

    async def _stop_workers(self) -> None:
        works: list[Awaitable[object]] = [self._keeper.stop()]
        if self.loop is not None:
            works.append(self.loop.stop(0.0, STOP_S))
        if self._runner is not None:
            works.append(asyncio.to_thread(self._runner.shutdown, 0.0))
        if self.webhooks is not None:
            works.append(self.webhooks.stop())
        for failed in await asyncio.gather(*works, return_exceptions=True):
            if isinstance(failed, BaseException):
                logger.error("stopping a part of the job engine failed", exc_info=failed)

    def _count_again(self) -> None:
        """Count all jobs every RECOUNT_S: other gateways change them, too (PostgreSQL)."""
        clock = self._deps.clock

        def begin(counted: Future[dict[tuple[str, Status], int]]) -> None:
            if counted.exception() is None:
                call_soon(loop, self._deps.figures.recount, counted.result())

        loop = asyncio.get_running_loop()
        self.store.counts().add_done_callback(begin)
        self._recounting = clock.call_at(clock.monotonic_s() + RECOUNT_S, self._count_again)

    def forget(self) -> None:
        """Unregister the program-wide runner."""
        if self._runner is not None:
            disown_runner(self._runner)

    # -- an app's own types

    def task_types(self) -> list[str]:
        """Return the types that jobs may have here."""
        own = self._runner.task_types if self._runner is not None else {}
        return [*ROUTES, *own]

    def _recovery(self) -> Recovery:
        """Return what becomes of jobs whose program died; bypass types fail."""
        alone, settings = self._database.is_sqlite, self._settings
        own = self._runner.task_types if self._runner is not None else {}
        return Recovery(
            settings.on_interrupt == "retry",
            settings.attempts,
            expired_only=not alone,
            never_again=tuple(name for name, kind in own.items() if not kind.llm),
            known=None if alone else tuple(self.task_types()),
        )


def _runner(settings: JobsSettings, store: JobStore) -> TaskRunner:
    return TaskRunner(
        store,
        available_vram_gb=settings.available_vram_gb or None,
        vram_budgets=settings.vram_budgets,
        max_queue_depth=settings.max_queue_depth,
        bypass_workers=settings.bypass_workers,
        max_type_wait_seconds=settings.max_type_wait_seconds,
        on_interrupt=settings.on_interrupt,
        attempts=settings.attempts,
        lease_seconds=settings.lease_seconds,
        vram_refresh_seconds=settings.vram_refresh_seconds,
    )
