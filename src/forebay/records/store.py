"""The records of a gateway in the database of its jobs.

Writes are additive or replace whole rows, so that several gateways may share a database without
locks: counts are added to what is there, keys are inserted or deleted by name, ended requests and
points of the series are each gateway's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import delete, select
from sqlalchemy.dialects import postgresql, sqlite

from forebay.records.keys import KeyRecord, KeyTable
from forebay.records.tables import RECORDS, api_keys, changes
from forebay.storage.database import Database

if TYPE_CHECKING:
    from concurrent.futures import Future

    from sqlalchemy import Connection, Table

    from forebay.clock import Clock

CLOSE_S = 5.0


class RecordStore:
    """Opened once, closed once; `open` and `close` block, the others return futures."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self._database = Database(url, RECORDS, clock)

    def open(self) -> None:
        """Raises StoreFailed or NotAllowed."""
        self._database.open()

    def close(self, limit_s: float = CLOSE_S) -> None:
        self._database.close(limit_s)

    # -- keys

    def keys(self, known: int) -> Future[KeyTable | None]:
        """Return all keys; None where they are those of the change that is known."""

        def work(connection: Connection) -> KeyTable | None:
            number = _change_number(connection)
            if number == known:
                return None
            rows = connection.execute(select(api_keys).order_by(api_keys.c.created_at))
            return KeyTable(number, tuple(_key(dict(row._mapping)) for row in rows))

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

    def remove_key(self, name: str) -> Future[bool]:
        """Delete a key; False where there is none of that name."""

        def work(connection: Connection) -> bool:
            gone = connection.execute(delete(api_keys).where(api_keys.c.name == name)).rowcount
            if gone:
                _count_change(connection)
            return bool(gone)

        return self._database.write(work)


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
    return KeyRecord(**{**row, "settings": msgspec.json.decode(row["settings"])})
