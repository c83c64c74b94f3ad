"""Writes what was used, reads what was used today, and forgets what is too old."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.gateway.http.store_timeout import in_time
from forebay.records.usage import HOUR_S, UsageQuery

if TYPE_CHECKING:
    from forebay.clock import Timers
    from forebay.records.store import RecordStore
    from forebay.records.usage import UsageBook

PAUSE_S, PAUSE_S_MAX = 1.0, 30.0
"""How long nothing is written again after a failure; doubled each time."""
TODAY_S = 30.0
DAY_S, HOURS_A_DAY = 86_400, 24


class UsageWriter:
    """Between the counts in memory and the table of usage."""

    def __init__(self, book: UsageBook, clock: Timers) -> None:
        self._book = book
        self._clock = clock
        self._write_at_s = self._pause_s = self._prune_at_s = self._today_at_s = 0.0
        self._today: dict[str, int] = {}
        self._today_day = 0

    async def write(self, store: RecordStore, *, at_once: bool) -> None:
        """Write what was counted; what fails is counted again with the next, after a pause."""
        book = self._book
        if not book or (not at_once and self._clock.monotonic_s() < self._write_at_s):
            return
        rows = book.take()
        try:
            # Without a limit of ours: whether it was written must be known. The database has some.
            await asyncio.wrap_future(store.add_usage(rows))
        except BaseException:
            book.put_back(rows)
            self._pause_s = min(max(PAUSE_S, 2 * self._pause_s), PAUSE_S_MAX)
            self._write_at_s = self._clock.monotonic_s() + self._pause_s
            raise
        self._pause_s = 0.0

    async def prune(self, store: RecordStore, days: int, *, at_once: bool) -> int:
        """Delete a little of what is older; once an hour, and as long as there is more.

        At the end, too: short runs also count for how far it may go.
        """
        now_s = self._clock.monotonic_s()
        if now_s < self._prune_at_s and not at_once:
            return 0
        gone = await in_time(store.prune_usage(self._utc_s(), days * HOURS_A_DAY, now_s))
        if not gone:
            self._prune_at_s = now_s + HOUR_S
        return gone

    async def read_today(self, store: RecordStore) -> None:
        """Sum up what each key has used since midnight: other gateways may have served it."""
        now_s = self._clock.monotonic_s()
        if now_s < self._today_at_s:
            return
        self._today_at_s = now_s + TODAY_S
        day = int(self._utc_s()) // DAY_S
        first = day * HOURS_A_DAY
        query = UsageQuery(first, first + HOURS_A_DAY - 1, by=("key",))
        today: dict[str, int] = {}
        for key, counts in await in_time(store.usage(query)):
            today[key.key] = today.get(key.key, 0) + counts.prompt_tokens + counts.output_tokens
        self._today, self._today_day = today, day

    def used_today(self) -> dict[str, int]:
        """Return the tokens of each key since 00:00 UTC, as the database knew them last.

        That was TODAY_S ago or less; nothing where it was on another day.
        """
        return self._today if int(self._utc_s()) // DAY_S == self._today_day else {}

    def _utc_s(self) -> float:
        return self._clock.utc().timestamp()
