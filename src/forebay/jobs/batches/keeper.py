"""Keeps batches moving: validated, loaded, finalized, expired, one step after the other.

It sleeps until something happens: a batch is made or cancelled, a line of one ends, or the next
batch expires. Beside PostgreSQL other gateways tell of that, too, and it looks every POLL_S all the
same, for what they left behind. The work is done in one thread, one batch at a time; a batch that
fails to move (a full disk, a database that is away) rests for RETRY_S and does not hold up the
others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from forebay.errors import Rejected
from forebay.jobs.batches.steps import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.jobs.batches.service import BatchService
    from forebay.jobs.batches.steps import BatchSteps
    from forebay.jobs.job import Change

logger = logging.getLogger("forebay.jobs")

POLL_S = 5.0
RETRY_S = 5.0
EARLY_S = 0.05
"""The shortest sleep: timers may fire a moment before the database's clock is there."""
TIMER_S_MAX = 86_400.0
"""Loops do not take timers for ever; looking once a day costs nothing."""


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
        """Called on the loop when batches may have ended: nothing else tells of that."""
        self._resting: dict[int, float] = {}
        """Until when a batch is left alone that failed to move, by the loop's clock."""

    async def start(self) -> None:
        """Go on with whatever is unfinished; may be called twice. Raises StoreFailed."""
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
        self._batches.store.changes.listeners.append(self._hear)
        self._batches.store.changes.batch_listeners.append(self.wake)
        self._task = asyncio.create_task(self._run(), name="batches")

    async def stop(self) -> None:
        """Stop between two lines; returns when nothing works any more. May be called twice."""
        task, self._task = self._task, None
        if task is None:
            return
        self._batches.store.changes.listeners.remove(self._hear)
        self._batches.store.changes.batch_listeners.remove(self.wake)
        self._batches.changed = lambda: None
        self._steps.stopping.set()
        self._woken.set()
        await task
        assert self._thread is not None
        self._thread.shutdown()

    def wake(self) -> None:
        """Look what is to be done; from any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: so are we
                self._loop.call_soon_threadsafe(self._woken.set)

    def _hear(self, change: Change) -> None:
        """Look when a line has ended; on the thread that wrote it."""
        ended = change.batch_id is not None and change.status not in ("queued", "running")
        if ended and not self._woken.is_set():  # many lines that end together wake us once
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
        """Move on whatever can be; return how long nothing will happen by itself."""
        assert self._loop is not None
        try:
            due, expires_s = await asyncio.wrap_future(self._steps.due())
        except Rejected as error:
            logger.warning("batches cannot be looked at: %s", error)
            return RETRY_S
        now_s = self._loop.time()
        self._resting = {one: at_s for one, at_s in self._resting.items() if at_s > now_s}
        ready = [batch_id for batch_id in due if batch_id not in self._resting]
        for batch_id in ready:
            if not await self._move_on(batch_id):
                self._resting[batch_id] = self._loop.time() + RETRY_S
        if ready:
            return 0.0
        waits = [at_s - now_s for at_s in self._resting.values()]
        alone = self._batches.store.database.is_sqlite
        waits += [TIMER_S_MAX if alone else min(POLL_S, self._steps.lease_s)]
        if expires_s is not None and expires_s > 0:  # else another gateway is at it
            waits.append(max(EARLY_S, expires_s))
        return min(waits)

    async def _move_on(self, batch_id: int) -> bool:
        """Do what can be done about a batch, lengthening the lease on it; say whether it went."""
        assert self._loop is not None
        work = self._loop.run_in_executor(self._thread, self._steps.advance, batch_id)
        while not (await asyncio.wait([work], timeout=self._steps.lease_s / 3))[0]:
            with contextlib.suppress(Rejected):  # the step itself finds out that it lost
                await asyncio.wrap_future(self._steps.renew(batch_id))
        try:
            work.result()
        except Interrupted:
            return True
        except Exception as error:
            expected = isinstance(error, Rejected | OSError)
            logger.error(
                "a batch does not move: %s", error, exc_info=None if expected else error,
                extra={"batch": batch_id},
            )  # fmt: skip
            return False
        return True
