"""Following one job: who waits for its next change is woken by it, whichever program made it.

Notifications of other gateways (PostgreSQL) may get lost; so whoever waits looks again after a
while all the same, which is why `next_change` has a limit.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from forebay.jobs.store.change_bus import LoopListener

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.jobs.job import Change
    from forebay.jobs.store.job_store import JobStore

FOLLOWERS_MAX = 1000


class ChangeWaiter:
    """Waits for changes of one job."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def wake(self) -> None:
        self._changed.set()

    async def next_change(self, limit_s: float) -> None:
        """Wait for a change, or for a while; changes while nobody waited are not missed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._changed.wait()
        self._changed.clear()


class JobFollowers:
    """Who follows which job."""

    def __init__(self, store: JobStore) -> None:
        self._waiters: dict[int, list[ChangeWaiter]] = {}
        self._count = 0
        self._listener = LoopListener(store, self._wake, self._wake_all)
        self.stopped = False
        """Whether nobody should wait any longer."""

    @property
    def is_full(self) -> bool:
        """Whether nobody more may follow."""
        return self._count >= FOLLOWERS_MAX

    def start(self) -> None:
        self.stopped = False
        self._listener.start()

    def stop(self) -> None:
        """Wake everyone for the last time."""
        self.stopped = True
        self._listener.stop()
        self._wake_all()

    @contextlib.contextmanager
    def follow(self, job_id: int) -> Iterator[ChangeWaiter]:
        """Follow a job, unless it `is_full`."""
        waiter = ChangeWaiter()
        self._count += 1
        self._waiters.setdefault(job_id, []).append(waiter)
        try:
            yield waiter
        finally:
            self._count -= 1
            waiters = self._waiters[job_id]
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[job_id]

    def _wake_all(self) -> None:
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.wake()

    def _wake(self, changes: list[Change]) -> None:
        for change in changes:
            for waiter in self._waiters.get(change.id, ()):
                waiter.wake()
