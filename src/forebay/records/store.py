"""The records of a gateway in the database of its jobs.

Writes are additive or replace whole rows, so that several gateways may share a database without
locks: counts are added to what is there, keys are inserted or deleted by name, ended requests and
points of the series are each gateway's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import column, delete, func, insert, inspect, literal, select, table, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite

from forebay.records.history import MINUTES_MAX, REQUESTS_MAX
from forebay.records.keys import REVOKED_MAX, KeyRecord, KeyTable, new_owner
from forebay.records.tables import (
    RECORDS,
    api_keys,
    changes,
    ended_requests,
    minutes,
    revoked_keys,
    usage_hours,
)
from forebay.records.usage import HOUR_S, UsageCounts, UsageKey
from forebay.storage.database import Database
from forebay.storage.slewed_clock import SlewedClock

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from concurrent.futures import Future

    from sqlalchemy import Connection, Table

    from forebay.clock import Clock
    from forebay.records.usage import UsageQuery, UsageRow
    from forebay.storage.database import FileState

CLOSE_S = 5.0
OWNED = (("usage_hours", "key"), ("jobs", "owner"), ("files", "owner"), ("batches", "owner"))
"""The tables, and their columns, that hold the owner of a row."""
CHUNK = 500
"""Rows in one statement: SQLite takes 32,766 parameters at most."""


class RecordStore:
    """Opened once, closed once; `open` and `close` block, the others return futures."""

    def __init__(self, database: str | Database, clock: Clock | None = None) -> None:
        """`database` is a URL, or a database made for `RECORDS` that others use, too."""
        if isinstance(database, str):
            database = Database(database, RECORDS, clock)
        self._database = database
        self._clock = SlewedClock(usage_hours.name)

    def open(self) -> None:
        """Raises StoreFailed or NotAllowed."""
        self._database.open()

    def close(self, limit_s: float = CLOSE_S) -> None:
        self._database.close(limit_s)

    def state_of_file(self) -> FileState | None:
        """Return what stays the same as long as nobody writes; None if that is unknown."""
        return self._database.state_of_file()

    # -- keys

    def keys(self, known: int) -> Future[KeyTable | None]:
        """Return all keys; None where they are those of the change that is known."""

        def work(connection: Connection) -> KeyTable | None:
            number = _change_number(connection)
            if number == known:
                return None
            rows = connection.execute(select(api_keys).order_by(api_keys.c.created_at))
            gone = connection.execute(select(revoked_keys.c.owner, revoked_keys.c.name))
            keys = tuple(_key(dict(row._mapping)) for row in rows)
            return KeyTable(number, keys, {row.owner: row.name for row in gone})

        return self._database.read(work)

    def add_key(self, key: KeyRecord) -> Future[bool]:
        """Store a key; False where the name or the digest is taken."""
        values = {
            **msgspec.structs.asdict(key),
            "settings": msgspec.json.encode(key.settings).decode(),
        }

        def work(connection: Connection) -> bool:
            statement = inserting(connection, api_keys).values(values).on_conflict_do_nothing()
            if connection.execute(statement.returning(api_keys.c.name)).scalar() is None:
                return False
            _count_change(connection)
            return True

        return self._database.write(work)

    def renew_key(self, name: str, sha256: str) -> Future[bool]:
        """Give a key another text; False where there is none of that name."""
        renewed = update(api_keys).where(api_keys.c.name == name).values(sha256=sha256)

        def work(connection: Connection) -> bool:
            found = connection.execute(renewed).rowcount
            if found:
                _count_change(connection)
            return bool(found)

        return self._database.write(work)

    def remove_key(self, name: str) -> Future[bool]:
        """Delete a key, and remember whose it was; False where there is none of that name."""
        number = revoked_keys.c.number

        def work(connection: Connection) -> bool:
            removed = delete(api_keys).where(api_keys.c.name == name).returning(api_keys.c.owner)
            owner = connection.execute(removed).scalar()
            if owner is None:
                return False
            if owner:  # else an older program made it: what has no owner is not of a revoked key
                new = insert(revoked_keys).values(owner=owner, name=name).returning(number)
                newest = int(connection.execute(new).scalar_one())
                connection.execute(delete(revoked_keys).where(number <= newest - REVOKED_MAX))
            _count_change(connection)
            return True

        return self._database.write(work)

    def draw_owners(self, named: Collection[str]) -> Future[int]:
        """Give an id to each key of before there were owners, with what it made under its name.

        What belongs to a name of the settings (`named`) stays theirs. Return how many keys it was.
        """

        def work(connection: Connection) -> int:
            without = select(api_keys.c.name).where(api_keys.c.owner == "").with_for_update()
            names = list(connection.execute(without).scalars())
            there = set(inspect(connection).get_table_names()) if names else set()
            for name in names:
                owner = new_owner()
                connection.execute(
                    update(api_keys).where(api_keys.c.name == name).values(owner=owner)
                )
                for owned, whose in OWNED:
                    if owned in there and name not in named:
                        rows = table(owned, column(whose))
                        connection.execute(
                            update(rows).where(rows.c[whose] == name).values({whose: owner})
                        )
            if names:
                _count_change(connection)
            return len(names)

        return self._database.write(work)

    # -- usage

    def add_usage(self, rows: Sequence[UsageRow]) -> Future[None]:
        """Add counts to those of each hour."""

        def work(connection: Connection) -> None:
            # In this thread, because it takes 60 ms for 20,000 rows; in order, so that no two
            # gateways wait for each other in a ring.
            values = [{**key._asdict(), **counts._asdict()} for key, counts in sorted(rows)]
            for start in range(0, len(values), CHUNK):
                statement = inserting(connection, usage_hours).values(values[start : start + CHUNK])
                new = statement.excluded
                sums = {name: usage_hours.c[name] + new[name] for name in UsageCounts._fields}
                keys = list(UsageKey._fields)
                connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=sums))

        return self._database.write(work)

    def usage(self, query: UsageQuery) -> Future[list[UsageRow]]:
        """Return counts by hour, the oldest first, `query.limit` rows at most."""
        columns = [
            usage_hours.c[name] if name in ("hour", *query.by) else literal("").label(name)
            for name in UsageKey._fields
        ]
        groups = [usage_hours.c[name] for name in ("hour", *query.by)]
        sums = [func.sum(usage_hours.c[name]) for name in UsageCounts._fields]
        hour = usage_hours.c.hour
        wanted = select(*columns, *sums).where(hour >= query.first, hour <= query.last)
        if query.key is not None:
            wanted = wanted.where(usage_hours.c.key == query.key)
        wanted = wanted.group_by(*groups).order_by(*groups).limit(query.limit)

        def work(connection: Connection) -> list[UsageRow]:
            rows = connection.execute(wanted)
            return [(UsageKey(*row[:4]), UsageCounts(*map(int, row[4:]))) for row in rows]

        return self._database.read(work)

    def prune_usage(self, now: float, hours: int, monotonic_s: float) -> Future[int]:
        """Delete some of what is older than so many hours; return how many rows that were.

        The two times are the caller's clock, in seconds since 1970, and one that never leaps.
        """
        primary = [usage_hours.c[name] for name in UsageKey._fields]

        def work(connection: Connection) -> int:
            first = self._clock.move(connection, now, monotonic_s) // HOUR_S - hours
            old = select(*primary).where(usage_hours.c.hour < first).limit(CHUNK)
            statement = delete(usage_hours).where(tuple_(*primary).in_(old))
            return connection.execute(statement).rowcount

        return self._database.write(work)

    # -- ended requests and the series, each gateway's own

    def add_requests(self, replica: str, requests: Sequence[str]) -> Future[None]:
        """Keep requests that have ended, the oldest first."""
        values = {"replica": replica, "request": _array(requests), "count": len(requests)}

        def work(connection: Connection) -> None:
            connection.execute(insert(ended_requests), values)

        return self._database.write(work)

    def requests(self, replica: str) -> Future[list[str]]:
        """Return the last REQUESTS_MAX, the oldest first."""
        own = ended_requests.c.replica == replica
        newest = select(ended_requests.c.request).where(own)
        newest = newest.order_by(ended_requests.c.number.desc()).limit(REQUESTS_MAX)

        def work(connection: Connection) -> list[str]:
            found: list[str] = []
            for text in connection.execute(newest).scalars():
                found[:0] = [bytes(one).decode() for one in _raw(text)]
                if len(found) >= REQUESTS_MAX:
                    break
            return found[-REQUESTS_MAX:]

        return self._database.read(work)

    def prune_requests(self, replica: str) -> Future[int]:
        """Delete those that are older than the last REQUESTS_MAX; return how many."""
        number, own = ended_requests.c.number, ended_requests.c.replica == replica
        newest = select(number, ended_requests.c.count).where(own).order_by(number.desc())

        def work(connection: Connection) -> int:
            kept = 0
            for row in connection.execute(newest.limit(2 * REQUESTS_MAX)).all():
                if kept >= REQUESTS_MAX:
                    gone = delete(ended_requests).where(own, number <= row[0])
                    counts = connection.execute(gone.returning(ended_requests.c.count))
                    return sum(counts.scalars())
                kept += row[1]
            return 0

        return self._database.write(work)

    def add_minutes(self, replica: str, points: Sequence[tuple[int, str]]) -> Future[int]:
        """Keep points; return how many were deleted that are too old now."""
        values = [{"minute": at, "replica": replica, "point": text} for at, text in points]

        def work(connection: Connection) -> int:
            statement = inserting(connection, minutes).values(values)
            new = {"point": statement.excluded.point}
            keys = ["minute", "replica"]
            connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=new))
            oldest = max(at for at, _ in points) - MINUTES_MAX
            old = (minutes.c.replica == replica, minutes.c.minute <= oldest)
            return connection.execute(delete(minutes).where(*old)).rowcount

        return self._database.write(work)

    def minutes(self, replica: str, since: int) -> Future[list[tuple[int, str]]]:
        """Return the points since a minute, the oldest first."""
        wanted = select(minutes.c.minute, minutes.c.point).where(
            minutes.c.replica == replica, minutes.c.minute >= since
        )
        wanted = wanted.order_by(minutes.c.minute).limit(MINUTES_MAX)

        def work(connection: Connection) -> list[tuple[int, str]]:
            return [(int(row.minute), str(row.point)) for row in connection.execute(wanted)]

        return self._database.read(work)


_raw = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _array(texts: Sequence[str]) -> str:
    return f"[{','.join(texts)}]"


def inserting(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Return an insert that may say what to do about a row that is there."""
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table)
    return postgresql.insert(table)


def _change_number(connection: Connection) -> int:
    found = select(changes.c.number).where(changes.c.of == api_keys.name)
    return int(connection.execute(found).scalar() or 0)


def _count_change(connection: Connection) -> None:
    first = inserting(connection, changes).values(of=api_keys.name, number=1)
    one_more = {"number": changes.c.number + 1}
    connection.execute(first.on_conflict_do_update(index_elements=["of"], set_=one_more))


def _key(row: dict[str, Any]) -> KeyRecord:
    """Return a key; one that cannot be read is named, and opens nothing."""
    try:
        values = {str(name): value for name, value in row.items()}  # a quoted name is none
        return msgspec.convert({**values, "settings": _settings(row["settings"])}, KeyRecord)
    except (msgspec.MsgspecError, TypeError):
        return KeyRecord(str(row["name"]), "", None, 0.0, owner=str(row["owner"]))


_settings = msgspec.json.Decoder(dict[str, Any]).decode
