"""The gateway's durable work: the store and everything that lives on it.

Opened at the start where there may be work (a database file that exists, or PostgreSQL), else when
the first job comes: a gateway that is never given a job leaves no file behind. A database that
cannot be opened costs the jobs, not the live requests: the routes say so, and it is tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import TYPE_CHECKING, TypeVar

from forebay.errors import ForebayError
from forebay.gateway.asking import Refused
from forebay.gateway.job_figures import JobFigures
from forebay.jobs.builtin import ROUTES
from forebay.jobs.database import Database, StoreFailed
from forebay.jobs.feed import Feed
from forebay.jobs.filling import Filler, FillOptions
from forebay.jobs.hearing import Hearing
from forebay.jobs.recovering import Recovery
from forebay.jobs.store import JobStore
from forebay.jobs.webhooks import Webhooks
from forebay.relay.problem import Problem

if TYPE_CHECKING:
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
    """One gateway's jobs; `ready()` before anything else is touched."""

    store: JobStore
    feed: Feed

    def __init__(
        self,
        settings: JobsSettings,
        relay: Relay,
        resolve: Resolve,
        clock: Timers,
        webhook_secret: str | None = None,
    ) -> None:
        self.settings = settings
        self._webhook_secret = webhook_secret
        self.webhooks: Webhooks | None = None
        self._relay = relay
        self._resolve = resolve
        self._clock = clock
        self._database = Database(settings.database)
        self._opening: asyncio.Task[None] | None = None
        self._open = False
        self._stopped = False
        self._again: TimerHandle | None = None
        self._trying: asyncio.Task[None] | None = None
        self._filler: Filler | None = None
        self._hearing: Hearing | None = None
        self.figures = JobFigures()

    # -- the life of it

    async def start(self) -> None:
        """Go on with what is there; a database that fails is tried again later."""
        if await asyncio.to_thread(self._database.may_hold_something):
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
        await asyncio.to_thread(self._database.open)
        store = JobStore(self._database)
        settings = self.settings
        retry = settings.on_interrupt == "retry"
        how = Recovery(retry, settings.attempts, expired_only=not self._database.is_sqlite)
        await asyncio.wrap_future(store.recover(how))
        self.figures.counts.begin(await asyncio.wrap_future(store.counts()))
        self.store, self.feed = store, Feed(store)
        self.feed.start()
        self._hearing = Hearing(store, self.figures.counts.take_in)
        self._hearing.start()
        options = FillOptions(settings.lease_seconds, settings.attempts, retry)
        self._filler = Filler(
            store, self._relay, self._resolve, self._clock, random.SystemRandom(), options
        )
        await self._filler.start()
        if settings.webhook_url:
            self.webhooks = Webhooks(store, settings.webhook_url, self._webhook_secret, self._clock)
            self.webhooks.start()
        self._open = True

    def drain(self) -> None:
        """Let followers go; running jobs may finish."""
        self._stopped = True
        if self._open:
            self.feed.stop()
        if self._filler is not None:
            self._filler.drain()

    async def stop(self) -> None:
        """Record what has ended, and close; the relay has ended what was running."""
        self._stopped = True
        if self._again is not None:
            self._again.cancel()
        if self._opening is not None:
            with contextlib.suppress(ForebayError):
                await self._opening
        if self._filler is not None:
            await self._filler.stop()
        if self.webhooks is not None:
            await self.webhooks.stop()
        if self._hearing is not None:
            self._hearing.stop()
        if self._open:
            self.feed.stop()
        await asyncio.to_thread(self._database.close)

    def task_types(self) -> list[str]:
        """Return the types that jobs may have here."""
        return list(ROUTES)


async def from_store(future: Future[T]) -> T:
    """Wait for the store; raises Refused where it fails."""
    try:
        return await asyncio.wrap_future(future)
    except StoreFailed as error:
        logger.warning("%s", error)
        words = "the job database cannot be used now; the log has the details"
        raise Refused(Problem("store_unavailable", words)) from error
