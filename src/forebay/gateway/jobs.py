"""The gateway's durable work: the store and everything that lives on it.

Opened at the start where there may be work (a database file that exists, PostgreSQL, or an app's
own task types), else when the first job comes: a gateway that is never given a job leaves no file
behind. A database that cannot be opened costs the jobs, not the live requests: the routes say so,
and it is tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import threading
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from forebay.errors import ForebayError
from forebay.gateway.asking import Refused
from forebay.gateway.job_figures import JobFigures
from forebay.jobs.batch_keeper import BatchKeeper
from forebay.jobs.batch_steps import BatchSteps
from forebay.jobs.batches import Batches
from forebay.jobs.builtin import ROUTES, model_of
from forebay.jobs.database import Database, StoreFailed
from forebay.jobs.feed import Feed
from forebay.jobs.file_lock import FileLock
from forebay.jobs.files import Files
from forebay.jobs.filling import Filler, FillOptions
from forebay.jobs.hearing import Hearing
from forebay.jobs.job import Failure
from forebay.jobs.modules import load_task_types
from forebay.jobs.recovering import Recovery
from forebay.jobs.runner import TaskRunner
from forebay.jobs.singleton import disown_runner
from forebay.jobs.store import JobStore
from forebay.jobs.webhooks import Webhooks
from forebay.relay.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from forebay.clock import TimerHandle, Timers
    from forebay.jobs.builtin import Resolve
    from forebay.relay.relay import Relay
    from forebay.settings import JobsSettings

logger = logging.getLogger("forebay.jobs")

T = TypeVar("T")

AGAIN_S = 5.0
"""How long after a failure the database is tried again."""


class Jobs:
    """One gateway's jobs; `ready()` before anything of the store is touched."""

    def __init__(
        self,
        settings: JobsSettings,
        relay: Relay,
        resolve: Resolve,
        clock: Timers,
        may_use: Callable[[str, str], bool],
        webhook_secret: str | None = None,
    ) -> None:
        self.settings = settings
        self.figures = JobFigures()
        self.feed: Feed | None = None
        self.webhooks: Webhooks | None = None
        self._relay = relay
        self._resolve = resolve
        self._clock = clock
        self._webhook_secret = webhook_secret
        self._database = Database(settings.database)
        self._lock = FileLock(self._database.path) if self._database.path is not None else None
        self.store = JobStore(self._database)
        self.files = Files(self._database, _folder(settings, self._database))
        self.batches = Batches(self.store, webhook=bool(settings.webhook_url))
        steps = BatchSteps(self.batches, self.files, may_use, secrets.token_hex(8))
        self._keeper = BatchKeeper(self.batches, steps)
        self._runner: TaskRunner | None = None
        self._opening: asyncio.Task[None] | None = None
        self._trying: asyncio.Task[None] | None = None
        self._again: TimerHandle | None = None
        self._open = self._stopped = False
        self._filler: Filler | None = None
        self._hearing: Hearing | None = None

    # -- the life of it

    async def start(self) -> None:
        """Go on with what is there; a database that fails is tried again later.

        Raises BadModule where an app's own task types cannot be imported.
        """
        if self.settings.modules:
            self._runner = self._make_runner()
            await asyncio.to_thread(load_task_types, self._runner, self.settings.modules)
        wanted = self._runner is not None
        if wanted or await asyncio.to_thread(self._database.may_hold_something):
            await self._try()

    async def _try(self) -> None:
        try:
            await self._opened()
        except ForebayError as error:
            logger.warning("jobs wait for their database: %s", error)
            if not self._stopped:
                at_s = self._clock.monotonic_s() + AGAIN_S
                self._again = self._clock.call_at(at_s, self._try_soon)

    def _try_soon(self) -> None:
        self._trying = asyncio.get_running_loop().create_task(self._try())

    async def ready(self) -> None:
        """Open the database unless that has been done; raises Refused where it cannot be."""
        if self._open:
            return
        if self._stopped:
            raise Refused(Problem("shutting_down", "the gateway is shutting down"))
        try:
            await self._opened()
        except ForebayError as error:
            logger.warning("%s", error)
            words = "the job database cannot be opened; the log has the details"
            raise Refused(Problem("store_unavailable", words)) from error

    async def _opened(self) -> None:
        """Open once, however many ask at the same time."""
        if self._open:
            return
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._do_open())
            self._opening.add_done_callback(self._no_longer_opening)
        await asyncio.shield(self._opening)

    def _no_longer_opening(self, task: asyncio.Task[None]) -> None:
        self._opening = None
        if not task.cancelled():
            task.exception()  # whoever waits has it; it is not forgotten

    async def _do_open(self) -> None:
        await asyncio.to_thread(self._take_database)
        try:
            await self._start_all()
        except BaseException:  # half of it is no use; the next try begins anew
            await self._close()
            raise
        self._open = True

    async def _start_all(self) -> None:
        await self._recover()
        self.figures.counts.begin(await asyncio.wrap_future(self.store.counts()))
        self.feed = Feed(self.store)
        self.feed.start()
        self._hearing = Hearing(self.store, self.figures.counts.take_in)
        self._hearing.start()
        await self._start_filling()
        await self._keeper.start()
        if self._runner is not None:
            await asyncio.to_thread(self._runner.start)
            runner = self._runner
            self.figures.vram_reserved_gb = lambda: runner.reserved_vram_gb
        url = self.settings.webhook_url
        if url:
            self.webhooks = Webhooks(self.store, url, self._webhook_secret, self._clock)
            self.webhooks.start()

    def _take_database(self) -> None:
        """Open it, as the only one where only one may."""
        self._database.open()
        try:
            if self._lock is not None:
                self._lock.take()
            self.files.open()
        except BaseException:
            self._database.close()
            raise

    async def _recover(self) -> None:
        """Deal with what the last program left: what was running, and what nobody can run."""
        alone = self._database.is_sqlite
        how = Recovery(self._retry, self.settings.attempts, not alone, self._never_again())
        await asyncio.wrap_future(self.store.recover(how))
        if not alone:
            return  # others may know the types that we do not
        known = self.task_types()
        for queue in await asyncio.wrap_future(self.store.depths()):
            if model_of(queue) is None and queue not in known:
                failure = Failure(f"no handler for task type {queue!r}", "no_handler")
                while await asyncio.wrap_future(self.store.fail_queue(queue, failure)):
                    pass

    async def _start_filling(self) -> None:
        settings = self.settings
        options = FillOptions(
            settings.lease_seconds, settings.attempts, self._retry, self._never_again()
        )
        self._filler = Filler(
            self.store, self._relay, self._resolve, self._clock, random.SystemRandom(), options
        )
        await self._filler.start()

    def drain(self) -> None:
        """Let followers go; running jobs may finish."""
        self._stopped = True
        if self.feed is not None:
            self.feed.stop()
        if self._filler is not None:
            self._filler.drain()
        if self._runner is not None:
            self._runner.drain()

    async def finished(self, limit_s: float) -> None:
        """Wait until no handler of an app runs any more, for a while."""
        runner, over = self._runner, asyncio.Event()
        if runner is None:
            return
        loop = asyncio.get_running_loop()

        def wait() -> None:
            runner.wait_drained(limit_s)
            with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits
                loop.call_soon_threadsafe(over.set)

        # A daemon: whoever is in a hurry must not wait for it.
        threading.Thread(target=wait, name="forebay-drain", daemon=True).start()
        await over.wait()

    async def stop(self) -> None:
        """Record what has ended, and close; the relay has ended what was running."""
        self._stopped = True
        if self._again is not None:
            self._again.cancel()
        if self._opening is not None:
            with contextlib.suppress(ForebayError):
                await self._opening
        await self._close()
        if self._runner is not None:
            disown_runner(self._runner)

    async def _close(self) -> None:
        self._open = False
        await self._stop_workers()
        if self._hearing is not None:
            self._hearing.stop()
        await asyncio.to_thread(self._database.close)
        self.files.close()
        if self._lock is not None:
            self._lock.release()

    async def _stop_workers(self) -> None:
        await self._keeper.stop()
        if self._filler is not None:
            await self._filler.stop()
        if self._runner is not None:
            await asyncio.to_thread(self._runner.shutdown, 0.0)
        if self.webhooks is not None:
            await self.webhooks.stop()
        if self.feed is not None:
            self.feed.stop()

    # -- an app's own types

    def task_types(self) -> list[str]:
        """Return the types that jobs may have here."""
        own = self._runner.task_types if self._runner is not None else {}
        return [*ROUTES, *own]

    @property
    def _retry(self) -> bool:
        return self.settings.on_interrupt == "retry"

    def _never_again(self) -> tuple[str, ...]:
        """Return the types whose jobs do not survive a restart."""
        own = self._runner.task_types if self._runner is not None else {}
        return tuple(name for name, kind in own.items() if not kind.llm)

    def _make_runner(self) -> TaskRunner:
        settings = self.settings
        return TaskRunner(
            self.store,
            available_vram_gb=settings.available_vram_gb or None,
            vram_budgets=settings.vram_budgets,
            max_queue_depth=settings.max_queue_depth,
            max_type_wait_seconds=settings.max_type_wait_seconds,
            on_interrupt=settings.on_interrupt,
            attempts=settings.attempts,
            lease_seconds=settings.lease_seconds,
            vram_refresh_seconds=settings.vram_refresh_seconds,
        )


def _folder(settings: JobsSettings, database: Database) -> Path | None:
    """Return where files are kept; None where that is beside the database."""
    if settings.files_folder:
        return Path(settings.files_folder)
    return None if database.is_sqlite else Path("forebay.files")


async def from_store(future: Future[T]) -> T:
    """Wait for the store; raises Refused where it fails."""
    try:
        return await asyncio.wrap_future(future)
    except StoreFailed as error:
        logger.warning("%s", error)
        words = "the job database cannot be used now; the log has the details"
        raise Refused(Problem("store_unavailable", words)) from error
