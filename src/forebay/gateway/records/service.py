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
from collections import Counter, deque
from typing import TYPE_CHECKING

from msgspec import MsgspecError

from forebay.errors import ForebayError
from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.http.lazy_open import LazyOpen, database_file, may_hold
from forebay.gateway.http.store_timeout import in_time, store_unavailable
from forebay.gateway.records.made_keys import UNREAD, KeyMark, MadeKeys
from forebay.gateway.records.usage_counter import UsageCounter
from forebay.records.history import MINUTES_MAX, REQUESTS_MAX
from forebay.records.keys import KeyTable
from forebay.records.usage import HOUR_S, UsageQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterator
    from typing import Any

    from forebay.clock import TimerHandle, Timers
    from forebay.records.history import RequestMemory, SeriesMemory
    from forebay.records.keys import KeyRecord
    from forebay.records.store import RecordStore
    from forebay.records.usage import UsageRow
    from forebay.settings import UsageSettings
    from forebay.storage.database import Database, FileState

logger = logging.getLogger("forebay.gateway")

TURN_S = 0.5
"""A key made or revoked elsewhere is in force here within a second."""
START_S = 3.0
"""How long the gateway waits for its stores before it listens; it refuses what needs them then."""
MANY, MANY_TURNS = 100, 10
"""Over so many requests in a second, they are written every five."""
PRUNE_TURNS = 120
"""How often requests are deleted that are not among the last; in turns."""
MINUTE_S = 60
STOP_S = 2.0
"""How long the last writes may take."""
USAGE_PAUSE_S, USAGE_PAUSE_S_MAX = 1.0, 30.0
"""How long usage is not written again after a failure; doubled each time."""
TODAY_S = 30.0
DAY_S, HOURS_A_DAY = 86_400, 24


class RecordService:
    """Owns the store; `start` and `stop` once each, on the process that owns the databases."""

    def __init__(self, url: str, settings: UsageSettings, clock: Timers) -> None:
        self.settings = settings
        self.keys = MadeKeys()
        self.usage = UsageCounter(lambda owner: self.keys.names.get(owner, owner))
        self.load: Callable[[], None] = lambda: None  # imports what the stores need; blocks
        self.owns: Callable[[], bool] = lambda: True
        """Whether the database is for this process to open."""
        self.pass_on: Callable[[list[UsageRow], list[str]], bool] = lambda rows, requests: False
        """Gives what was used, and the requests that ended, to the worker that has the database;
        False where none has it."""
        self.replica: Callable[[], str] = lambda: ""
        """The gateway's name among those that share a queue; raises HttpError until it has one."""
        self.set_names: Callable[[], Collection[str]] = tuple
        """Returns the names of the keys of the settings."""
        self.wants_today: Callable[[], bool] = lambda: False
        """Whether somebody needs `today`."""
        self.today: dict[str, int] = {}
        """The tokens of each key since 00:00 UTC, as the database knew them TODAY_S ago or less."""
        self.deleted: Counter[str] = Counter()
        """How many rows were deleted because of their age, by kind."""
        self.requests: RequestMemory | None = None
        self.series: SeriesMemory | None = None
        self._requests: deque[str] = deque(maxlen=REQUESTS_MAX)  # not written yet
        self._points: deque[tuple[int, str]] = deque(maxlen=MINUTES_MAX)
        self._restored = False
        self._write_requests_at = 0  # in turns
        self._prune_requests_at = 0
        self._url = url
        self._mark = KeyMark(database_file(url))
        self._database: Database | None = None
        self._clock = clock
        self._opening = LazyOpen("the database of records", self._open, clock)
        self._timer: TimerHandle | None = None
        self._turn: asyncio.Task[None] | None = None
        self._reason = ""
        """Why the last turn failed; "" where it did not."""
        self._stopped = False
        self._asked = False
        """Whether the database is being opened, or will be tried again."""
        self._turns = 0
        self._prune_at_s = 0.0
        self._usage_at_s = self._usage_pause_s = 0.0
        self._today_at_s = 0.0
        self._today_day = 0
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
        await asyncio.to_thread(self.load)
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
            await self._write_usage(store, at_once=True)
            return await in_time(store.usage(query))

    # -- inside

    async def _open(self) -> RecordStore:
        from forebay.records.store import RecordStore

        await asyncio.to_thread(self._mark.check)
        store = RecordStore(self.database())
        try:
            await asyncio.to_thread(store.open)
            await self._read_keys(store)
            await self._restore(store)
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
                await in_time(store.draw_owners(self.set_names()))
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
                await self._restore(store)
                await self._write_usage(store, at_once=is_last)
                await self._write_history(store, is_last=is_last)
                await self._prune(store, at_once=is_last)
                await self._read_today(store)
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
            self._gather()
            rows, requests = book.take(), list(self._requests)
            self._requests.clear()
            if (rows or requests) and not self.pass_on(rows, requests):
                self.hear(rows, requests)
        elif book and (is_last or not self._asked):
            self._asked = True
            await self._opening.try_now()

    def hear(self, rows: list[UsageRow], requests: list[str]) -> None:
        """Take what another worker passes on, or what could not be passed on."""
        self.usage.book.put_back(rows)
        self._requests.extend(requests)

    async def _read_today(self, store: RecordStore) -> None:
        """Sum up what each key has used since midnight: other gateways may have served it."""
        now_s = self._clock.monotonic_s()
        if now_s < self._today_at_s or not self.wants_today():
            return
        self._today_at_s = now_s + TODAY_S
        first = int(self.now()) // DAY_S * HOURS_A_DAY
        query = UsageQuery(first, first + HOURS_A_DAY - 1, by=("key",))
        today: dict[str, int] = {}
        for key, counts in await in_time(store.usage(query)):
            today[key.key] = today.get(key.key, 0) + counts.prompt_tokens + counts.output_tokens
        self.today, self._today_day = today, first // HOURS_A_DAY

    def used_today(self) -> dict[str, int]:
        """Return `today`, or nothing where it was read on another day."""
        return self.today if int(self.now()) // DAY_S == self._today_day else {}

    # -- ended requests, and the series

    async def _restore(self, store: RecordStore) -> None:
        """Give back what an earlier process had, once it is known whose it is."""
        if self._restored or self.requests is None or self.series is None:
            return
        try:
            name = self.replica()
        except HttpError:
            return  # still joining the others
        requests = await in_time(store.requests(name))
        since = int(self.now()) // MINUTE_S - MINUTES_MAX
        points = await in_time(store.minutes(name, since))
        self._restored = True
        try:
            self.requests.restore(requests)
            self.series.restore(points)
        except MsgspecError as error:  # of a program that kept other things
            logger.warning("the last requests and the history were not restored: %s", error)

    def _gather(self) -> None:
        """Collect what is new; less often while there is much of it: only the last ones count."""
        if self.requests is not None and self._turns >= self._write_requests_at:
            fresh = self.requests.take_fresh()
            self._requests.extend(fresh)
            self._write_requests_at = self._turns + (MANY_TURNS if len(fresh) > MANY else 0)
        if self.series is not None:
            self._points.extend(self.series.take_fresh())

    async def _write_history(self, store: RecordStore, *, is_last: bool) -> None:
        if not self._restored:
            return  # what is written would be given back
        if is_last:
            self._write_requests_at = 0
        self._gather()
        name = self.replica()
        if self._requests:
            await self._write_requests(store, name)
        if self._points:
            self.deleted["record"] += await in_time(store.add_minutes(name, list(self._points)))
            self._points.clear()
        if self._turns >= self._prune_requests_at:
            self.deleted["record"] += await in_time(store.prune_requests(name))
            self._prune_requests_at = self._turns + PRUNE_TURNS

    async def _write_requests(self, store: RecordStore, name: str) -> None:
        requests = list(self._requests)
        self._requests.clear()  # `hear` may add others meanwhile
        try:
            await in_time(store.add_requests(name, requests))
        except BaseException:
            self._requests.extendleft(reversed(requests[: REQUESTS_MAX - len(self._requests)]))
            raise

    async def _write_usage(self, store: RecordStore, *, at_once: bool) -> None:
        """Write what was counted; what fails is counted again with the next, after a pause."""
        book = self.usage.book
        if not book or (not at_once and self._clock.monotonic_s() < self._usage_at_s):
            return
        rows = book.take()
        try:
            # Without a limit of ours: whether it was written must be known. The database has some.
            await asyncio.wrap_future(store.add_usage(rows))
        except BaseException:
            book.put_back(rows)
            pause_s = min(max(USAGE_PAUSE_S, 2 * self._usage_pause_s), USAGE_PAUSE_S_MAX)
            self._usage_pause_s = pause_s
            self._usage_at_s = self._clock.monotonic_s() + pause_s
            raise
        self._usage_pause_s = 0.0

    async def _prune(self, store: RecordStore, *, at_once: bool) -> None:
        """Delete a little of what is too old; once an hour, and as long as there is more.

        At the end, too: short runs also count for how far it may go.
        """
        now_s = self._clock.monotonic_s()
        if now_s < self._prune_at_s and not at_once:
            return
        hours = self.settings.retention_days * HOURS_A_DAY
        gone = await in_time(store.prune_usage(self.now(), hours, now_s))
        self.deleted["usage"] += gone
        if not gone:
            self._prune_at_s = now_s + HOUR_S


@contextlib.contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except ForebayError as error:
        raise store_unavailable("the database of records", error) from error
