"""Drives batches through their steps: validate, load, finalize, expire.

It sleeps until something happens: a batch is created or cancelled, a line of one ends, or the next
batch expires. On PostgreSQL other gateways notify of that, too, and it polls every POLL_S all the
same. The work is done in one thread, one batch at a time; a batch whose step fails (a full disk, a
database that is unavailable) is retried after RETRY_S and does not block the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from forebay.errors import Rejected
from forebay.jobs.batches.steps import Interrupted
from forebay.jobs.store.change_bus import call_soon

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.jobs.batches.service import BatchService
    from forebay.jobs.batches.steps import BatchSteps
    from forebay.jobs.job import Change

logger = logging.getLogger("forebay.jobs")

POLL_S = 5.0
RETRY_S = 5.0
EARLY_S = 0.05
"""The shortest sleep: timers may fire a moment early by the database's clock."""
TIMER_S_MAX = 86_400.0
"""The event loop does not take unlimited timers; polling once a day costs nothing."""


class BatchKeeper:
    """Runs the steps of batches in the background of one gateway."""

    def __init__(self, batches: BatchService, steps: BatchSteps) -> None:
        self._batches = batches
        self._steps = steps
        self._woken = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread: ThreadPoolExecutor | None = None
        self.moved: Callable[[], object] = lambda: None
        """Called on the loop when batches may have ended: there is no other event for that."""
        self._failed: dict[int, float] = {}
        """When to retry a batch whose step failed, by the loop's clock."""

    async def start(self) -> None:
        """Continue unfinished batches; may be called twice. Raises StoreFailed."""
        if self._task is not None:
            return
        self._loop = asyncio.get_running_loop()
        self._steps.stopping.clear()
        self._thread = ThreadPoolExecutor(1, "forebay-batches")
        try:
            await self._loop.run_in_executor(self._thread, self._steps.forget_keepers)
        except BaseException:
            self._thread.shutdown(wait=False)
            raise
        self._batches.changed = self.wake
        self._batches.store.changes.listeners.append(self._on_change)
        self._batches.store.changes.batch_listeners.append(self.wake)
        self._task = asyncio.create_task(self._run(), name="batches")

    async def stop(self) -> None:
        """Stop between two lines and wait for that; may be called twice."""
        task, self._task = self._task, None
        if task is None:
            return
        self._batches.store.changes.listeners.remove(self._on_change)
        self._batches.store.changes.batch_listeners.remove(self.wake)
        self._batches.changed = lambda: None
        self._steps.stopping.set()
        self._woken.set()
        await task
        assert self._thread is not None
        self._thread.shutdown()

    def wake(self) -> None:
        """Check for due batches now; from any thread."""
        if self._loop is not None:
            call_soon(self._loop, self._woken.set)

    def _on_change(self, change: Change) -> None:
        """Wake when a line has ended; on the thread that wrote it."""
        ended = change.batch_id is not None and change.status not in ("queued", "running")
        if ended and not self._woken.is_set():  # lines that end together wake us once
            self.wake()

    async def _run(self) -> None:
        stopping = self._steps.stopping
        while not stopping.is_set():
            self._woken.clear()
            wait_s = await self._round()
            self.moved()
            if wait_s <= 0 or stopping.is_set():
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()

    async def _round(self) -> float:
        """Advance all due batches; return how long to sleep."""
        assert self._loop is not None
        try:
            due, expires_s = await asyncio.wrap_future(self._steps.due())
        except Rejected as error:
            logger.warning("reading due batches failed: %s", error)
            return RETRY_S
        now_s = self._loop.time()
        self._failed = {one: at_s for one, at_s in self._failed.items() if at_s > now_s}
        ready = [batch_id for batch_id in due if batch_id not in self._failed]
        for batch_id in ready:
            if not await self._advance(batch_id):
                self._failed[batch_id] = self._loop.time() + RETRY_S
        if ready:
            return 0.0
        waits = [at_s - now_s for at_s in self._failed.values()]
        alone = self._batches.store.database.is_sqlite
        waits += [TIMER_S_MAX if alone else min(POLL_S, self._steps.lease_s)]
        if expires_s is not None and expires_s > 0:  # else another gateway holds it
            waits.append(max(EARLY_S, expires_s))
        return min(waits)

    async def _advance(self, batch_id: int) -> bool:
        """Advance one batch, renewing its lease meanwhile; False where a step failed."""
        assert self._loop is not None
        work = self._loop.run_in_executor(self._thread, self._steps.advance, batch_id)
        while not (await asyncio.wait([work], timeout=self._steps.lease_s / 3))[0]:
            with contextlib.suppress(Rejected):  # the step itself finds a lost lease
                await asyncio.wrap_future(self._steps.renew(batch_id))
        try:
            work.result()
        except Interrupted:
            return True
        except Exception as error:
            expected = isinstance(error, Rejected | OSError)
            logger.error(
                "advancing a batch failed: %s", error, exc_info=None if expected else error,
                extra={"batch": batch_id},
            )  # fmt: skip
            return False
        return True
