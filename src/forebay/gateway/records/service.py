"""The gateway's records: one writer that follows at its own pace, and never holds up a request.

The database is that of the jobs. It is opened at the start where there may be something in it, else
when there is something to write: a gateway that nobody uses leaves no file behind. Twice a second
the writer looks whether keys were made or revoked elsewhere. While the database is away, what is in
force stays in force.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from forebay.errors import ForebayError
from forebay.gateway.http.lazy_open import LazyOpen, may_hold
from forebay.gateway.http.store_timeout import in_time, store_unavailable
from forebay.gateway.records.made_keys import MadeKeys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.clock import TimerHandle, Timers
    from forebay.records.keys import KeyRecord
    from forebay.records.store import RecordStore

logger = logging.getLogger("forebay.gateway")

TURN_S = 0.5
"""A key made or revoked elsewhere is in force here within a second."""
START_S = 3.0
"""How long the gateway waits for the keys in the database before it listens without them."""
STOP_S = 2.0
"""How long the last writes may take."""


class RecordService:
    """Owns the store; `start` and `stop` once each, on the process that owns the databases."""

    def __init__(self, url: str, clock: Timers) -> None:
        self.keys = MadeKeys()
        self._url = url
        self._clock = clock
        self._opening = LazyOpen("the database of records", self._open, clock)
        self._timer: TimerHandle | None = None
        self._turn: asyncio.Task[None] | None = None
        self._reason = ""
        """Why the last turn failed; "" where it did not."""
        self._stopped = False

    def now(self) -> float:
        """Return the time in seconds since 1970."""
        return self._clock.utc().timestamp()

    def may_hold_keys(self) -> bool:
        return may_hold(self._url)

    async def start(self) -> None:
        """Read the keys, START_S at most; a database that fails is tried again later."""
        if await asyncio.to_thread(may_hold, self._url):
            self._turn = asyncio.get_running_loop().create_task(self._opening.try_now())
            self._turn.add_done_callback(self._turn_over)
            await asyncio.wait({self._turn}, timeout=START_S)
        if self._timer is None and not self._stopped:
            self._arm()

    async def stop(self) -> None:
        """Write the last, within a limit, and close; may be called twice."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._turn is not None:
            _, late = await asyncio.wait({self._turn}, timeout=STOP_S)
            if late:
                self._turn.cancel()
        if (store := await self._opening.stop()) is not None:
            await asyncio.to_thread(store.close)

    async def ready(self) -> RecordStore:
        """Return the store; raises HttpError where it cannot be opened."""
        return await self._opening.ready()

    # -- keys

    async def add_key(self, key: KeyRecord) -> bool:
        """Store a key and put it in force; False where its name or its text is taken."""
        store = await self.ready()
        with _store_errors():
            added = await in_time(store.add_key(key))
            await self._read_keys(store)
        return added

    async def remove_key(self, name: str) -> bool:
        """Delete a key and put that in force; False where there is none of that name."""
        store = await self.ready()
        with _store_errors():
            removed = await in_time(store.remove_key(name))
            await self._read_keys(store)
        return removed

    # -- inside

    async def _open(self) -> RecordStore:
        store = await asyncio.to_thread(_store, self._url)
        try:
            await asyncio.to_thread(store.open)
            await self._read_keys(store)
        except BaseException:
            await asyncio.to_thread(store.close)
            raise
        return store

    async def _read_keys(self, store: RecordStore) -> None:
        """Put the keys of the database in force, where they have changed; raises ForebayError."""
        table = await in_time(store.keys(self.keys.table.number))
        if table is not None:
            self.keys.take(table)

    def _arm(self) -> None:
        self._timer = self._clock.call_at(self._clock.monotonic_s() + TURN_S, self._tick)

    def _tick(self) -> None:
        self._arm()
        if self._turn is None and (store := self._opening.value) is not None:
            self._turn = asyncio.get_running_loop().create_task(self._take_turn(store))
            self._turn.add_done_callback(self._turn_over)

    def _turn_over(self, turn: asyncio.Task[None]) -> None:
        self._turn = None
        if not turn.cancelled() and (error := turn.exception()) is not None:
            logger.error("the writer of records failed", exc_info=error)

    async def _take_turn(self, store: RecordStore) -> None:
        try:
            await self._read_keys(store)
        except ForebayError as error:
            if str(error) != self._reason:
                self._reason = str(error)
                logger.warning("the records cannot be read or written, retrying: %s", error)
        else:
            if self._reason:
                self._reason = ""
                logger.info("the records are read and written again")


def _store(url: str) -> RecordStore:
    """Load what is not needed before there is anything to keep."""
    from forebay.records.store import RecordStore

    return RecordStore(url)


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except ForebayError as error:
        raise store_unavailable("the database of records", error) from error
