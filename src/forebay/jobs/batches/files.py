"""Stored files: their rows in the database, their contents in a folder or in the database, too.

Contents are written first and the row last: an upload goes piece by piece into a temporary file,
which is synced and renamed before its row is committed, and a deletion removes the row before the
contents. So there is never a row without its file; a crash leaves at worst a file without a row,
which `open` deletes: at once with SQLite, which has one gateway, and after a day in a folder that
several gateways share.

The folder is `<database file>.files/`, or the one that is given. Gateways on one PostgreSQL need
none: the contents are in the database (`file_rows`). A folder that is given must be shared by all
of them. Limits: FILE_BYTES_MAX for each file, OWNER_FILES_MAX and OWNER_BYTES_MAX for all uploads
of an owner; what batches write counts, too, but is never refused.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from sqlalchemy import delete, func, insert, select, text

from forebay.errors import NotAllowed, StoreFailed
from forebay.jobs.batches import file_rows
from forebay.jobs.batches.file import (
    FILE_BYTES_MAX,
    LIST_MAX,
    OWNER_BYTES_MAX,
    OWNER_FILES_MAX,
    FileInUse,
    FilesFull,
    FileTooLarge,
    Listing,
    Page,
    StoredFile,
    is_name,
    new_name,
)
from forebay.jobs.batches.file_rows import RowsUpload
from forebay.jobs.store.schema import batches, files
from forebay.storage.schema import now_s

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

    from sqlalchemy import Connection

    from forebay.storage.database import Database

logger = logging.getLogger("forebay.jobs")

ORPHAN_S = 86_400.0
"""Age at which a file without a row is deleted from a shared folder: no upload lasts as long."""
OPEN = ("validating", "in_progress", "finalizing", "cancelling")
"""The statuses of unfinished batches: their input is still needed."""

FILES_LOCK, BATCHES_LOCK = 7802, 7803
"""Key spaces of the advisory locks, one per owner."""

_PART = ".part"


COLUMNS = [files.c[name] for name in StoredFile.__struct_fields__]


class Files:
    """Every method may be called from any thread."""

    def __init__(self, database: Database, folder: Path | None = None) -> None:
        self._database = database
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if folder is None and database.path is not None:
            folder = Path(f"{database.path}.files")
        self._in_rows = folder is None and not database.is_sqlite
        self._folder = folder

    @property
    def folder(self) -> Path:
        """Where the contents are; for a database in memory, made by `open`."""
        assert self._folder is not None
        return self._folder

    def open(self) -> None:
        """Make the folder, and delete what a crash has left there; blocks."""
        if self._in_rows:
            lost = file_rows.sweep(self._database, ORPHAN_S)
            if lost:
                logger.warning("deleted %d orphaned files", lost)
            return
        if self._folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="forebay-files-")
            self._folder = Path(self._temporary.name)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._sweep(0.0 if self._database.is_sqlite else ORPHAN_S)
        except OSError as error:
            raise StoreFailed(f"the folder {self.folder} cannot be used: {error}") from error

    def close(self) -> None:
        """Delete a temporary folder; may be called twice."""
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = self._folder = None

    # -- storing

    def begin(self) -> FolderUpload | RowsUpload:
        """Start an upload; blocks, as all of its methods do."""
        return RowsUpload(self._database) if self._in_rows else FolderUpload(self.folder)

    def store(
        self, upload: FolderUpload | RowsUpload, owner: str, filename: str, purpose: str
    ) -> StoredFile:
        """Store an upload; raises FilesFull or StoreFailed and stores nothing. Blocks."""
        name = upload.keep()

        def work(connection: Connection) -> StoredFile:
            _check_room(connection, owner, upload.bytes)
            values = {"filename": filename, "purpose": purpose, "bytes": upload.bytes}
            return add_row(connection, name, owner, values)

        try:
            return self._database.write(work).result()
        except NotAllowed:
            self.remove(name)
            raise
        # Any other failure may have come after the commit: the next `open` finds out.

    def remove(self, *names: str | None) -> None:
        """Delete the contents of files that have no row (any more)."""
        for name in names:
            if name is None:
                continue
            with contextlib.suppress(OSError, StoreFailed):  # the next `open` deletes it
                if self._in_rows:
                    file_rows.remove(self._database, name)
                else:
                    self.path(name).unlink(missing_ok=True)

    # -- looking and deleting

    def read(self, name: str) -> BinaryIO:
        """Open a file; raises FileNotFoundError or StoreFailed. Blocks, as reading does."""
        if self._in_rows:
            return file_rows.open_parts(self._database, name)
        return self.path(name).open("rb")

    def path(self, name: str) -> Path:
        """Return the path of a file; the name must be one that we made."""
        assert is_name(name), name
        return self.folder / name

    def get(self, name: str, owner: str) -> Future[StoredFile | None]:
        return self._database.read(lambda connection: find(connection, name, owner))

    def list(self, owner: str, wanted: Listing) -> Future[Page | None]:
        """Return an owner's files; None when `after` is none of them."""

        def work(connection: Connection) -> Page | None:
            query = select(*COLUMNS).where(files.c.owner == owner)
            if wanted.purpose is not None:
                query = query.where(files.c.purpose == wanted.purpose)
            newest_first = wanted.order == "desc"
            if wanted.after is not None:
                last = find(connection, wanted.after, owner)
                if last is None:
                    return None
                column = files.c.id
                query = query.where(column < last.id if newest_first else column > last.id)
            query = query.order_by(files.c.id.desc() if newest_first else files.c.id)
            limit = min(wanted.limit, LIST_MAX)
            found = [_to_file(row) for row in connection.execute(query.limit(limit + 1))]
            return Page(found[:limit], len(found) > limit)

        return self._database.read(work)

    def delete(self, name: str, owner: str) -> bool:
        """Delete a file; say whether it was there. Raises FileInUse. Blocks."""

        def work(connection: Connection) -> bool:
            if find(connection, name, owner, lock=True) is None:
                return False
            if _in_use(connection, name):
                raise FileInUse("a batch that has not ended needs this file")
            connection.execute(delete(files).where(files.c.name == name))
            if self._in_rows:
                file_rows.remove_parts(connection, name)
            return True

        deleted = self._database.write(work).result()
        if deleted and not self._in_rows:
            self.remove(name)
        return deleted

    # -- inside

    def _sweep(self, age_s: float) -> None:
        """Delete files without a row that are at least this old."""
        with tempfile.TemporaryFile(dir=self.folder) as probe:
            now = os.fstat(probe.fileno()).st_mtime  # the clock of the file system, not ours
        for names in _chunks(self.folder):
            known = self._database.read(partial(_known, names)).result()
            for name in set(names) - known:
                path = self.folder / name
                with contextlib.suppress(FileNotFoundError):
                    if path.stat().st_mtime <= now - age_s:
                        path.unlink()
                        logger.warning("deleted an orphaned file", extra={"file": name})


class FolderUpload:
    """A file under way into the folder; used by one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self.name = new_name()
        self.bytes = 0
        self._folder = folder
        self._path = folder / f"{self.name}{_PART}"
        self._file: BinaryIO | None = self._path.open("xb")

    def write(self, data: bytes | bytearray, bytes_max: int | None = FILE_BYTES_MAX) -> None:
        """Add a piece; raises FileTooLarge before it is written."""
        assert self._file is not None
        self.bytes += len(data)
        if bytes_max is not None and self.bytes > bytes_max:
            raise FileTooLarge(f"the file is larger than {bytes_max} bytes")
        self._file.write(data)

    def keep(self) -> str:
        """Make the contents durable under the file's name, and return that."""
        assert self._file is not None
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._path.rename(self._folder / self.name)
        self._file = None
        folder = os.open(self._folder, os.O_RDONLY)  # or the rename may be lost
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return self.name

    def discard(self) -> None:
        """Delete what was written; no effect once it is kept."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._path.unlink(missing_ok=True)


def add_row(
    connection: Connection, name: str, owner: str, values: dict[str, Any]
) -> StoredFile:  # fmt: skip
    """Insert the row of a file whose contents are stored."""
    statement = insert(files).values(name=name, owner=owner, created_at=now_s(), **values)
    return _to_file(connection.execute(statement.returning(*COLUMNS)).one())


def find(
    connection: Connection, name: str, owner: str, *, lock: bool = False
) -> StoredFile | None:  # fmt: skip
    """Return one of an owner's files; locked, it stays until the transaction ends."""
    query = select(*COLUMNS).where(files.c.name == name, files.c.owner == owner)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    return None if row is None else _to_file(row)


def _to_file(row: Any) -> StoredFile:
    return StoredFile(**row._mapping)


def _in_use(connection: Connection, name: str) -> bool:
    query = select(batches.c.id).where(batches.c.input_file == name, batches.c.status.in_(OPEN))
    return connection.execute(query.limit(1)).first() is not None


def lock_owner(connection: Connection, space: int, owner: str) -> None:
    """Make counting and inserting atomic, where several processes write."""
    if connection.dialect.name == "postgresql":
        connection.execute(
            text("SELECT pg_advisory_xact_lock(:space, hashtext(:owner))"),
            {"space": space, "owner": owner},
        )


def _check_room(connection: Connection, owner: str, more: int) -> None:
    lock_owner(connection, FILES_LOCK, owner)
    query = select(func.count(), func.coalesce(func.sum(files.c.bytes), 0))
    count, total = connection.execute(query.where(files.c.owner == owner)).one()
    if count >= OWNER_FILES_MAX:
        raise FilesFull(f"there are {count} files already; delete some first")
    if int(total) + more > OWNER_BYTES_MAX:
        raise FilesFull(f"the files would exceed {OWNER_BYTES_MAX} bytes; delete some")


def _known(names: list[str], connection: Connection) -> set[str]:
    return set(connection.execute(select(files.c.name).where(files.c.name.in_(names))).scalars())


def _chunks(folder: Path, size: int = 500) -> Iterable[list[str]]:
    """Yield the names of our files in a folder, some at a time."""
    names = [
        entry.name
        for entry in os.scandir(folder)
        if is_name(entry.name.removesuffix(_PART)) and entry.is_file()
    ]
    for start in range(0, len(names), size):
        yield names[start : start + size]
