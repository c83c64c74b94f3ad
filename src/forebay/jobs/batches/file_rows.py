"""The contents of files stored in PostgreSQL, where every gateway finds them.

A file is split into parts of PART_BYTES, each a row of its own, so that neither writing nor reading
holds more than a part in memory and no statement takes long. Parts are inserted before the file's
row and deleted with it; parts that a crash left without a row are deleted after a day.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from sqlalchemy import delete, func, insert, select

from forebay.jobs.batches.file import FILE_BYTES_MAX, FileTooLarge, new_name
from forebay.jobs.store.schema import file_parts, files
from forebay.storage.schema import now_s

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from forebay.storage.database import Database

PART_BYTES = 256 * 1024
"""Small enough not to delay claims that wait for the same writer."""
REMOVED_PARTS = 64
"""Parts that are deleted in one transaction: 16 MiB."""


class RowsUpload:
    """A file under way into rows; used by one thread at a time. Raises StoreFailed."""

    def __init__(self, database: Database) -> None:
        self.name = new_name()
        self.bytes = 0
        self._database = database
        self._left = bytearray()
        self._parts = 0
        self._open = True

    def write(self, data: bytes | bytearray, bytes_max: int | None = FILE_BYTES_MAX) -> None:
        """Add a piece; raises FileTooLarge before it is written."""
        self.bytes += len(data)
        if bytes_max is not None and self.bytes > bytes_max:
            raise FileTooLarge(f"the file is larger than {bytes_max} bytes")
        self._left += data
        while len(self._left) >= PART_BYTES:
            self._add(bytes(self._left[:PART_BYTES]))
            del self._left[:PART_BYTES]

    def keep(self) -> str:
        """Make the contents durable, and return the file's name."""
        if self._left:
            self._add(bytes(self._left))
            self._left.clear()
        self._open = False
        return self.name

    def discard(self) -> None:
        """Delete what was written; no effect once it is kept."""
        if self._open:
            self._open = False
            remove(self._database, self.name)

    def _add(self, data: bytes) -> None:
        values = {"name": self.name, "part": self._parts, "data": data, "created_at": now_s()}
        statement = insert(file_parts).values(values)
        self._database.write(lambda connection: connection.execute(statement).rowcount).result()
        self._parts += 1


class _Parts(io.RawIOBase):
    """Reads a file part by part."""

    def __init__(self, database: Database, name: str, size: int) -> None:
        super().__init__()
        self._database = database
        self._name = name
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self.read(PART_BYTES) or b"", b""))

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # what io passes
        if self._at >= self._size:
            return 0
        part, skipped = divmod(self._at, PART_BYTES)
        wanted = select(func.substr(file_parts.c.data, skipped + 1, len(buffer))).where(
            file_parts.c.name == self._name, file_parts.c.part == part
        )
        found = self._database.read(
            lambda connection: connection.execute(wanted).scalar_one_or_none()
        ).result()
        if not found:
            raise FileNotFoundError(f"{self._name} was deleted")
        data = bytes(found)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def open_parts(database: Database, name: str) -> io.BufferedReader:
    """Open a file for reading; raises FileNotFoundError where it has no row."""
    wanted = select(files.c.bytes).where(files.c.name == name)
    size = database.read(
        lambda connection: connection.execute(wanted).scalar_one_or_none()
    ).result()
    if size is None:
        raise FileNotFoundError(name)
    return io.BufferedReader(_Parts(database, name, int(size)), PART_BYTES)


def remove(database: Database, name: str) -> None:
    """Delete the parts of a file that has no row (any more), some at a time."""
    c = file_parts.c
    some = select(c.part).where(c.name == name).limit(REMOVED_PARTS)
    gone = delete(file_parts).where(c.name == name, c.part.in_(some.scalar_subquery()))
    while database.write(lambda connection: connection.execute(gone).rowcount).result():
        pass


def remove_parts(connection: Connection, name: str) -> None:
    """Delete the parts of a file within a transaction."""
    connection.execute(delete(file_parts).where(file_parts.c.name == name))


def sweep(database: Database, age_s: float) -> int:
    """Delete old parts without a file's row; return of how many files."""

    def work(connection: Connection) -> int:
        c = file_parts.c
        lost = (
            select(c.name)
            .distinct()
            .where(c.created_at < now_s() - age_s, c.name.not_in(select(files.c.name)))
        )
        names = list(connection.execute(lost).scalars())
        for name in names:
            remove_parts(connection, name)
        return len(names)

    return database.write(work).result()
