"""Writes the last requests and the last day by the minute, and gives them back after a restart."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from msgspec import MsgspecError

from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.http.store_timeout import in_time
from forebay.records.history import MINUTES_MAX, REQUESTS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from forebay.records.history import RequestMemory, SeriesMemory
    from forebay.records.store import RecordStore

logger = logging.getLogger("forebay.gateway")

MANY, MANY_TURNS = 100, 10
"""Over so many requests in a second, they are written every five."""
PRUNE_TURNS = 120
"""How often requests are deleted that are not among the last; in turns."""
MINUTE_S = 60


class HistoryWriter:
    """What is new in both memories, until it is in the database."""

    def __init__(
        self,
        requests: RequestMemory,
        series: Callable[[], SeriesMemory],
        replica: Callable[[], str],
    ) -> None:
        """`replica` returns this gateway's name in its fleet; raises HttpError until it has one."""
        self.requests = requests
        self._series = series
        self._replica = replica
        self._new_requests: deque[str] = deque(maxlen=REQUESTS_MAX)
        self._new_points: deque[tuple[int, str]] = deque(maxlen=MINUTES_MAX)
        self._restored = False
        self._turns = self._write_at = self._prune_at = 0

    def gather(self, *, at_once: bool = False) -> None:
        """Collect what is new; less often while there is much of it: only the last ones count."""
        if at_once or self._turns >= self._write_at:
            fresh = self.requests.take_fresh()
            self._new_requests.extend(fresh)
            self._write_at = self._turns + (MANY_TURNS if len(fresh) > MANY else 0)
        self._new_points.extend(self._series().take_fresh())

    def take(self) -> list[str]:
        """Return the requests that are not written; they are another's to write."""
        requests = list(self._new_requests)
        self._new_requests.clear()
        return requests

    def add(self, requests: Iterable[str]) -> None:
        """Take those of another worker."""
        self._new_requests.extend(requests)

    async def restore(self, store: RecordStore, now: float) -> None:
        """Give back what an earlier process had, once it is known whose it is."""
        if self._restored:
            return
        try:
            name = self._replica()
        except HttpError:
            return  # still joining the others
        requests = await in_time(store.requests(name))
        points = await in_time(store.minutes(name, int(now) // MINUTE_S - MINUTES_MAX))
        self._restored = True
        try:
            self.requests.restore(requests)
            self._series().restore(points)
        except MsgspecError as error:  # of a program that kept other things
            logger.warning("the last requests and the history were not restored: %s", error)

    async def write(self, store: RecordStore, *, is_last: bool) -> int:
        """Write what is new; return how many rows were deleted that are too old."""
        self._turns += 1
        if not self._restored:
            return 0  # what is written would be given back
        self.gather(at_once=is_last)
        name, deleted = self._replica(), 0
        if self._new_requests:
            await self._write_requests(store, name)
        if self._new_points:
            deleted += await in_time(store.add_minutes(name, list(self._new_points)))
            self._new_points.clear()
        if self._turns >= self._prune_at:
            deleted += await in_time(store.prune_requests(name))
            self._prune_at = self._turns + PRUNE_TURNS
        return deleted

    async def _write_requests(self, store: RecordStore, name: str) -> None:
        requests = self.take()  # others may be added meanwhile
        try:
            await in_time(store.add_requests(name, requests))
        except BaseException:
            room = REQUESTS_MAX - len(self._new_requests)
            self._new_requests.extendleft(reversed(requests[:room]))
            raise
