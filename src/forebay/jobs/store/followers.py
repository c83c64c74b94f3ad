"""Following one job: who waits for its next change is woken by it, wherever it was made.

Changes of other gateways (PostgreSQL) come by notes, which may get lost; so the caller looks again
after a while all the same, which is why `next_change` has a limit.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from forebay.jobs.store.loop_listener import Hearing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.jobs.job import Change
    from forebay.jobs.store.job_store import JobStore

FOLLOWERS_MAX = 1000


class Follower:
    """One who waits for changes of one job."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Tell that something changed."""
        self._changed.set()

    async def next_change(self, limit_s: float) -> None:
        """Wait for a change, or for a while; changes while nobody waited are not missed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._changed.wait()
        self._changed.clear()


class Feed:
    """Who follows what."""

    def __init__(self, store: JobStore) -> None:
        self._followers: dict[int, list[Follower]] = {}
        self._count = 0
        self._hearing = Hearing(store, self._tell, self._wake_all)
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether nobody should wait any longer."""
        return self._stopped

    @property
    def is_full(self) -> bool:
        """Whether nobody more may follow."""
        return self._count >= FOLLOWERS_MAX

    def start(self) -> None:
        """Listen to the store."""
        self._stopped = False
        self._hearing.start()

    def stop(self) -> None:
        """Wake everyone for the last time."""
        self._stopped = True
        self._hearing.stop()
        self._wake_all()

    @contextlib.contextmanager
    def follow(self, job_id: int) -> Iterator[Follower]:
        """Follow a job, unless it `is_full`."""
        follower = Follower()
        self._count += 1
        self._followers.setdefault(job_id, []).append(follower)
        try:
            yield follower
        finally:
            self._count -= 1
            followers = self._followers[job_id]
            followers.remove(follower)
            if not followers:
                del self._followers[job_id]

    def _wake_all(self) -> None:
        for followers in self._followers.values():
            for follower in followers:
                follower.wake()

    def _tell(self, changes: list[Change]) -> None:
        for change in changes:
            for follower in self._followers.get(change.id, ()):
                follower.wake()
