"""The gateway's records: one writer in the background that never delays a request.

The database is that of the jobs, which join it here. It is opened at the start where there may be
something in it, else when there is something to write: a gateway that nobody uses leaves no file.
Until its keys have been read, nobody is let in without a key of the settings. Twice a second
the writer looks whether keys were made or revoked elsewhere; once a second it writes what was used,
the requests that ended and the points of the series. While the database is away, keys stay as they
are known, and the rest is kept in memory, within bounds. Counts are written at least once: where a
commit is lost on its way, they may be twice.

Of several workers the leading one has the database; the others pass on what was used there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from importlib import import_module
from typing import TYPE_CHECKING

from forebay.errors import ForebayError
from forebay.gateway.http.lazy_open import LazyOpen, database_file, may_hold
from forebay.gateway.http.store_timeout import in_time, store_unavailable
from forebay.gateway.records.made_keys import UNREAD, KeyMark, MadeKeys
from forebay.gateway.records.usage_counter import UsageCounter
from forebay.gateway.records.usage_writer import UsageWriter
from forebay.records.keys import KeyTable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterator
    from typing import Any

    from forebay.clock import TimerHandle, Timers
    from forebay.gateway.records.history_writer import HistoryWriter
    from forebay.records.keys import KeyRecord
    from forebay.records.store import RecordStore
    from forebay.records.usage import UsageQuery, UsageRow
    from forebay.settings import UsageSettings
    from forebay.storage.database import Database, FileState

logger = logging.getLogger("forebay.gateway")

TURN_S = 0.5
"""A key made or revoked elsewhere is in force here within a second."""
START_S = 3.0
"""How long the gateway waits for its stores before it listens; it refuses what needs them then."""
STOP_S = 2.0
"""How long the last writes may take."""


class RecordService:
    """Owns the store; `start` and `stop` once each, on the process that owns the databases."""

    def __init__(
        self,
        url: str,
        settings: UsageSettings,
        clock: Timers,
        history: HistoryWriter,
        *,
        set_names: Callable[[], Collection[str]],
        wants_today: Callable[[], bool],
    ) -> None:
        """`set_names` returns the names of the settings' keys; `used_today` may be wanted."""
        self.settings = settings
        self.keys = MadeKeys()
        self.usage = UsageCounter(lambda owner: self.keys.names.get(owner, owner))
        self.owns: Callable[[], bool] = lambda: True
        """Whether the database is for this process to open."""
        self.pass_on: Callable[[list[UsageRow], list[str]], bool] = lambda rows, requests: False
        """Gives what was used, and the requests that ended, to the worker that has the database;
        False where none has it."""
        self.deleted: Counter[str] = Counter()
        """How many rows were deleted because of their age, by kind."""
        self.history = history
        self._usage = UsageWriter(self.usage.book, clock)
        self.used_today = self._usage.used_today
        self._set_names = set_names
        self._wants_today = wants_today
        self._url = url
        self._mark = KeyMark(database_file(url))
        self._database: Database | None = None
        self._clock = clock
        self._opening = LazyOpen("the database of records", self._open, clock)
        self._timer: TimerHandle | None = None
        self._turn: asyncio.Task[None] | None = None
        self._turns = 0
        self._reason = ""
        """Why the last turn failed; "" where it did not."""
        self._stopped = False
        self._asked = False
        """Whether the database is being opened, or will be tried again."""
        self._reading_keys = asyncio.Lock()
        self._keys_of: FileState | None = None  # of the file of which all keys are known
        self._lost = 0

    def now(self) -> float:
        """Return the time in seconds since 1970."""
        return self._clock.utc().timestamp()

    def is_failing(self) -> bool:
        """Say whether the database could not be opened, read or written at the last attempt."""
        return bool(self._reason) or self._opening.is_failing

    def may_hold(self) -> bool:
        """Say whether there may be something in the database, or should be; blocks."""
        return may_hold(self._url) or self._mark.exists()

    def database(self) -> Database:
        """Return the one database of records, keys and jobs: no file may be opened twice."""
        if self._database is None:
            from forebay.records.tables import RECORDS
            from forebay.storage.database import Database

            self._database = Database(self._url, RECORDS)
        return self._database

    async def opened(self) -> None:
        """Have the database open, and its keys read; raises what opening it does."""
        await self._opening.opened()

    def has_lost_file(self) -> bool:
        """Say whether the file of the database was deleted or replaced while it was in use."""
        return self._database is not None and self._database.has_lost_file()

    async def start(self) -> None:
        """Read the keys, START_S at most; a database that fails is tried again later."""
        self._begin(self._first_turn())
        assert self._turn is not None
        await asyncio.wait({self._turn}, timeout=START_S)
        self.run()

    async def _first_turn(self) -> None:
        """Import the stores, and read the keys where there may be some."""
        holds = await asyncio.to_thread(self.may_hold)
        if not holds and not self.keys.is_known:
            self.keys.take(KeyTable(UNREAD))
        await asyncio.to_thread(_import_stores)
        if holds:
            self._asked = True
            await self._opening.try_now()

    def run(self) -> None:
        """Take turns from now on; may be called twice."""
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
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await self._take_turn(is_last=True)
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
            await asyncio.to_thread(self._mark.write)
            try:
                added = await in_time(store.add_key(key))
            except BaseException:
                if not self.keys.table.keys:
                    self._mark.remove()
                raise
            await self._read_keys(store)
        return added

    async def renew_key(self, name: str, sha256: str) -> bool:
        """Put another text of a key in force; False where there is none of that name."""
        store = await self.ready()
        with _store_errors():
            renewed = await in_time(store.renew_key(name, sha256))
            await self._read_keys(store)
        return renewed

    async def remove_key(self, name: str) -> bool:
        """Delete a key and put that in force; False where there is none of that name."""
        store = await self.ready()
        with _store_errors():
            removed = await in_time(store.remove_key(name))
            await self._read_keys(store)
        return removed

    # -- usage

    async def usage_of(self, query: UsageQuery) -> list[UsageRow]:
        """Return what was used till now; raises HttpError where the database cannot be asked."""
        store = await self.ready()
        await self.usage.count()
        with _store_errors():
            await self._usage.write(store, at_once=True)
            return await in_time(store.usage(query))

    # -- inside

    async def _open(self) -> RecordStore:
        from forebay.records.store import RecordStore

        await asyncio.to_thread(self._mark.check)
        store = RecordStore(self.database())
        try:
            await asyncio.to_thread(store.open)
            await self._read_keys(store)
            await self.history.restore(store, self.now())
            await self._read_today(store)
        except BaseException:
            await asyncio.to_thread(store.close)
            raise
        return store

    async def _read_keys(self, store: RecordStore) -> None:
        """Put the keys of the database in force, where they have changed; raises ForebayError."""
        async with self._reading_keys:  # else an older answer may come last
            table = await in_time(store.keys(self.keys.table.number))
            if table is not None and not all(key.owner for key in table.keys):
                await in_time(store.draw_owners(self._set_names()))
                table = await in_time(store.keys(UNREAD))
            if table is not None:
                await asyncio.to_thread(self._mark.follow, table, self.keys.table.number)
                self.keys.take(table)

    async def _read_changed_keys(self, store: RecordStore) -> None:
        """Read them, unless nobody has written anything since that was last done."""
        state = store.state_of_file()  # before: what is written meanwhile changes it
        if state is None or state != self._keys_of:
            await self._read_keys(store)
            self._keys_of = state

    def _arm(self) -> None:
        self._timer = self._clock.call_at(self._clock.monotonic_s() + TURN_S, self._tick)

    def _tick(self) -> None:
        self._arm()
        if self._turn is None:
            self._begin(self._take_turn())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._turn = asyncio.get_running_loop().create_task(work)
        self._turn.add_done_callback(self._turn_over)

    def _turn_over(self, turn: asyncio.Task[None]) -> None:
        self._turn = None
        if not turn.cancelled() and (error := turn.exception()) is not None:
            logger.error("the writer of records failed", exc_info=error)

    async def _take_turn(self, *, is_last: bool = False) -> None:
        await self.usage.count()
        self._turns += 1
        is_whole_second = is_last or self._turns % 2 == 0
        if self._opening.value is None and is_whole_second:
            await self._without_store(is_last=is_last)
        if (store := self._opening.value) is None:
            return
        try:
            await self._read_changed_keys(store)
            if is_whole_second:
                await self._write(store, is_last=is_last)
        except ForebayError as error:
            if str(error) != self._reason:
                self._reason = str(error)
                logger.warning("the records cannot be read or written, retrying: %s", error)
        else:
            if self._reason:
                self._reason = ""
                logger.info("the records can be read and written again")

    async def _without_store(self, *, is_last: bool) -> None:
        """Pass on what there is, or have the database opened for it."""
        book = self.usage.book
        if book.lost and not self._lost:
            logger.warning("usage counts dropped: the database has been unavailable for too long")
        self._lost = book.lost
        if not self.owns():
            self.history.gather()
            rows, requests = book.take(), self.history.take()
            if (rows or requests) and not self.pass_on(rows, requests):
                self.hear(rows, requests)
        elif book and (is_last or not self._asked):
            self._asked = True
            await self._opening.try_now()

    def hear(self, rows: list[UsageRow], requests: list[str]) -> None:
        """Take what another worker passes on, or what could not be passed on."""
        self.usage.book.put_back(rows)
        self.history.add(requests)

    async def _write(self, store: RecordStore, *, is_last: bool) -> None:
        """Write what is new, delete what is too old, and read what others have written."""
        await self.history.restore(store, self.now())
        await self._usage.write(store, at_once=is_last)
        self.deleted["record"] += await self.history.write(store, is_last=is_last)
        days = self.settings.retention_days
        self.deleted["usage"] += await self._usage.prune(store, days, at_once=is_last)
        await self._read_today(store)

    async def _read_today(self, store: RecordStore) -> None:
        if self._wants_today():
            await self._usage.read_today(store)


@contextlib.contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except ForebayError as error:
        raise store_unavailable("the database of records", error) from error


def _import_stores() -> None:
    """Import them before the port is open: it would hold up live requests for 0.1 to 0.3 s."""
    for name in ("records.store", "gateway.jobs.engine", "sessions.sessions"):
        import_module(f"forebay.{name}")
