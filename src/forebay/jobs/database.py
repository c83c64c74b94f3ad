"""A database and the one thread that writes to it, committing for many at once.

Group commit: a commit waits for the disk (0.1 to 10 ms) whatever is in it, so the writer takes
everything that has gathered while it waited, runs it in one transaction, and answers all of it
after the one commit. Work is therefore a function of a connection that touches nothing else: when
one of a group fails, the transaction is rolled back and each runs again by itself, so that the
others do not suffer. N callers at once cost about one commit; a caller alone pays nothing extra.

SQLite has one writer anyway. On PostgreSQL each process has one writing connection; `SKIP LOCKED`
keeps the processes out of each other's way.
"""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from forebay.errors import NotAllowed, StoreFailed
from forebay.jobs.schema import migrate

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import URL, Connection, Engine

T = TypeVar("T")

GROUP_MAX = 256
"""Pieces of work in one transaction: bounds how long the first waits for the last."""
BUSY_MS = 5000
"""How long SQLite waits for another process that writes."""
READERS = 2
CONNECT_S = 5


class Database:
    """Opened once, closed once. `write` and `read` may be called from any thread."""

    def __init__(self, url: str) -> None:
        self._url = _driver(url)
        self.is_sqlite = self._url.get_backend_name() == "sqlite"
        self.path = self._url.database if self.is_sqlite else None
        """The file; None for PostgreSQL and for a database in memory."""
        self._in_memory = self.is_sqlite and self.path in (None, "", ":memory:")
        if self._in_memory:
            self.path = None
        self._engine: Engine | None = None
        self._work: SimpleQueue[tuple[Callable[[Connection], Any], Future[Any]] | None]
        self._work = SimpleQueue()
        self._writer: threading.Thread | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._connection: Connection | None = None
        self._gate = threading.Lock()  # between `write` and `close`
        self._closed = True

    def open(self) -> None:
        """Connect and bring the schema up to date; raises StoreFailed or NotAllowed."""
        if self._engine is not None:
            return
        engine = _engine(self._url, in_memory=self._in_memory)
        try:
            with engine.connect() as connection, _writing(connection).begin():
                migrate(connection)
        except SQLAlchemyError as error:
            engine.dispose()
            raise self._failure(error) from error
        except BaseException:
            engine.dispose()
            raise
        self._engine = engine
        self._closed = False
        if not self._in_memory:
            self._readers = ThreadPoolExecutor(READERS, "forebay-read")
        self._writer = threading.Thread(target=self._write_all, name="forebay-write", daemon=True)
        self._writer.start()

    def close(self) -> None:
        """Finish what was asked for, and let go; may be called twice."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._work.put(None)
        if self._writer is not None:
            self._writer.join()
        if self._readers is not None:
            self._readers.shutdown()
        if self._engine is not None:
            self._engine.dispose()
        self._engine = self._writer = self._readers = None

    def write(self, work: Callable[[Connection], T]) -> Future[T]:
        """Run it in a transaction; the future is done when that is committed.

        `work` may run more than once and must change nothing but the database. A future that is
        cancelled before its turn is never run. Fails with StoreFailed, or with what `work` raises.
        """
        future: Future[T] = Future()
        with self._gate:
            if self._closed:
                future.set_exception(StoreFailed("the database is not open"))
            else:
                self._work.put((work, future))
        return future

    def read(self, work: Callable[[Connection], T]) -> Future[T]:
        """Run it beside the writer; it sees what is committed."""
        if self._readers is None:
            return self.write(work)
        try:
            return self._readers.submit(self._read, work)
        except RuntimeError:  # closed meanwhile
            future: Future[T] = Future()
            future.set_exception(StoreFailed("the database is not open"))
            return future

    # -- inside

    def _read(self, work: Callable[[Connection], T]) -> T:
        assert self._engine is not None
        try:
            with self._engine.connect() as connection:
                return work(connection)
        except DBAPIError as error:
            raise self._failure(error) from error

    def _write_all(self) -> None:
        while True:
            item = self._work.get()
            group: list[tuple[Callable[[Connection], Any], Future[Any]]] = []
            while item is not None:
                if item[1].set_running_or_notify_cancel():
                    group.append(item)
                if len(group) >= GROUP_MAX or self._work.empty():
                    break
                item = self._work.get()
            self._run(group)
            if item is None:
                self._disconnect()
                return

    def _run(self, group: list[tuple[Callable[[Connection], Any], Future[Any]]]) -> None:
        if not group:
            return
        try:
            results = self._commit([work for work, _ in group])
        except Exception as error:
            if len(group) == 1:
                group[0][1].set_exception(self._translated(error))
            else:
                for one in group:
                    self._run([one])
            return
        for (_, future), result in zip(group, results, strict=True):
            future.set_result(result)

    def _commit(self, works: list[Callable[[Connection], Any]]) -> list[Any]:
        connection = self._connected()
        try:
            with connection.begin():
                return [work(connection) for work in works]
        except DBAPIError:
            if not self._in_memory:
                connection.invalidate()  # whatever state it is in, the next one starts afresh
            self._disconnect()
            raise

    def _connected(self) -> Connection:
        if self._connection is None:
            assert self._engine is not None
            self._connection = _writing(self._engine.connect())
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(SQLAlchemyError):
                connection.close()

    def _translated(self, error: Exception) -> Exception:
        return self._failure(error) if isinstance(error, DBAPIError) else error

    def _failure(self, error: SQLAlchemyError) -> StoreFailed:
        """Return the failure in a line that names no parameter, for those hold prompts."""
        cause = str(error.orig) if isinstance(error, DBAPIError) else str(error)
        shown = self._url.render_as_string(hide_password=True)
        failure = StoreFailed(f"the database {shown} failed: {cause.strip().splitlines()[0]}")
        failure.__cause__ = error
        return failure


def _driver(url: str) -> URL:
    try:
        made = make_url(url)
    except ArgumentError as error:
        raise NotAllowed(f"{url!r} is not the URL of a database") from error
    if made.drivername in ("postgres", "postgresql"):
        made = made.set(drivername="postgresql+psycopg")
    if made.get_backend_name() not in ("sqlite", "postgresql"):
        raise NotAllowed("jobs are kept in SQLite or PostgreSQL: sqlite:///forebay.db")
    return made


def _engine(url: URL, *, in_memory: bool) -> Engine:
    options: dict[str, Any] = {}
    if url.get_backend_name() == "sqlite":
        options["connect_args"] = {"timeout": BUSY_MS / 1000, "check_same_thread": False}
        if in_memory:
            options["poolclass"] = StaticPool
    else:
        options["connect_args"] = {"connect_timeout": CONNECT_S}
        options["pool_pre_ping"] = True
    try:
        engine = create_engine(url, **options)
    except (ImportError, NoSuchModuleError) as error:
        raise NotAllowed("PostgreSQL needs a driver: pip install 'forebay[postgres]'") from error
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # the driver's own BEGINs come too late; see _begin_sqlite
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _writing(connection: Connection) -> Connection:
    """Have SQLite take its lock at once: of two that have read, only one could go on to write."""
    return connection.execution_options(writes=True)


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
