"""A database and the one thread that writes to it, with group commit.

A commit waits for the disk (0.1 to 10 ms) whatever is in it, so the writer takes all work that has
queued up meanwhile, runs it in one transaction, and completes its futures after the one commit.
Work is a function of a connection that changes nothing else: when a piece of a group fails, the
transaction is rolled back and each piece runs again by itself. N callers at once cost about one
commit; a caller alone pays nothing extra.

SQLite has one writer anyway. On PostgreSQL each process has one writing connection, and claims use
`SKIP LOCKED`. Where two groups want each other's rows all the same, neither waits for long: a group
that waits for a lock longer than GROUP_LOCK_MS is rolled back, and each of its pieces runs by
itself. One piece alone takes its locks in one order, so there is no deadlock.

Deferred work: what each piece of a group adds to the same few rows (how many lines of a batch have
ended) is gathered by `defer` and written at the end of the transaction: once for each row instead
of once for each piece, with the rows locked for the shortest time, and by every program in the same
order, so that no two wait for each other.

A SQLite file has one `Database` in a process, however many stores are in it: closing any descriptor
of a file drops all POSIX locks that the process holds on it, and without its locks the next program
that comes by deletes the -wal. So nothing here opens the file beside SQLite, and one connection is
held from `open` to `close`: the file and its -wal stay those that were opened, or something is
wrong (see `has_lost_file`).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, wait
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
)
from sqlalchemy.pool import StaticPool

from forebay.clock import SystemClock
from forebay.errors import ForebayError, InvariantBroken, NotAllowed, StoreFailed

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

    from forebay.clock import Clock
    from forebay.storage.schema import Schema

T = TypeVar("T")
Deferred = TypeVar("Deferred", bound="Callable[[Connection], object]")
Item: TypeAlias = tuple[Callable[["Connection"], Any], "Future[Any]", float]
"""Work, its future, and since when it waits."""
FileState: TypeAlias = tuple[tuple[int, int, int], ...]
WorkQueue: TypeAlias = "SimpleQueue[Item | None]"

GROUP_MAX = 256
"""Pieces of work in one transaction: bounds the latency of the first."""
BUSY_MS = 2000
"""How long SQLite waits for the lock of another process."""
READERS = 2
CONNECT_S = 5
WAIT_S_MAX = 10.0
"""How long work may queue before it fails: its caller has given up by then."""
CLOSE_S = 5.0
STATEMENT_MS, LOCK_MS = 30_000, 2_000
"""How long PostgreSQL may take for a statement, and wait for somebody else's lock."""
IDLE_MS = 10_000
"""How long a transaction may be idle: a frozen program must not keep its row locks, and one on a
host that stalls for seconds should not lose what it was about to write."""
GROUP_LOCK_MS = 100
"""How long a group waits for a lock: well below the second after which PostgreSQL looks for
deadlocks, and above what a commit takes."""
SETTLED_S = 3.0
"""How long ago the last write to a file must be before its time tells it from the next one: some
file systems count in whole seconds, or in two."""
CHECK_S = 1.0
"""How often the file and its -wal are compared with what is at their paths, at most."""
CONTENDED = ("55P03", "40P01")
"""PostgreSQL's codes for lock_not_available and deadlock_detected."""
_DEFERRED = "forebay_deferred"
_creating = threading.Lock()


class _EngineUsers:
    """How many threads use an engine; the last one to end disconnects, even if it hung till now."""

    def __init__(self, engine: Engine, threads: int, opened: contextlib.ExitStack) -> None:
        self.engine = engine
        self._opened = opened
        self._threads = threads
        self._gate = threading.Lock()

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        with self._gate:
            self._threads -= 1
            is_last = self._threads == 0
        if is_last:
            self._opened.close()


class Database:
    """Opened once, closed once. `write` and `read` may be called from any thread.

    All waits are bounded: work that has queued for WAIT_S_MAX fails, and `close` does not wait for
    a database that hangs. The threads are daemons, so that the end of the program does not either.
    """

    def __init__(
        self,
        url: str,
        schema: Schema,
        clock: Clock | None = None,
        prepare: Callable[[Connection], None] | None = None,
    ) -> None:
        """`prepare` is called with each new connection for writing, and may refuse it."""
        self._url = _driver(url)
        self._schema = schema
        self._prepare = prepare
        self._clock = clock or SystemClock()
        self.is_sqlite = self._url.get_backend_name() == "sqlite"
        self.path = self._url.database if self.is_sqlite else None
        """The file; None for PostgreSQL and for a database in memory."""
        self._in_memory = self.is_sqlite and self.path in (None, "", ":memory:")
        if self._in_memory:
            self.path = None
        self._identity: tuple[tuple[int, int], ...] = ()  # of the file that is open, and its -wal
        self._checked_s = -CHECK_S
        self._is_lost = False
        self._engine: Engine | None = None
        self._writes: WorkQueue = SimpleQueue()
        self._reads: WorkQueue = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._under_way: set[Future[Any]] = set()
        self._mine = threading.local()  # a writer that hangs keeps its own connection
        self._gate = threading.Lock()  # between `write` and `close`
        self._closed = True

    def open(self) -> None:
        """Connect and bring the schema up to date; raises StoreFailed or NotAllowed."""
        if self._engine is not None:
            return
        engine = _engine(self._url, in_memory=self._in_memory)
        with contextlib.ExitStack() as stack:
            stack.callback(engine.dispose)
            try:
                if self.path is not None:
                    _create_private(self.path)
                first = stack.enter_context(engine.connect())
                with _writing(first).begin():
                    self._schema.migrate(first)
            except SQLAlchemyError as error:
                raise self._failure(error) from error
            except OSError as error:
                raise StoreFailed(f"unable to open database file {self.path}: {error}") from error
            if self.path is None:
                first.close()
            else:  # it is held
                self._identity = _identity(self.path)
            opened = stack.pop_all()
        self._engine = engine
        self._writes, self._reads = SimpleQueue(), SimpleQueue()
        self._closed = False
        readers = 0 if self._in_memory else READERS
        users = _EngineUsers(engine, 1 + readers, opened)
        self._start(self._write_all, users, self._writes, "forebay-write")
        for number in range(readers):
            self._start(self._read_all, users, self._reads, f"forebay-read-{number}")

    def close(self, limit_s: float = CLOSE_S) -> None:
        """Finish queued work, within a limit, and disconnect; may be called twice."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._writes.put(None)
            for _ in self._threads[1:]:
                self._reads.put(None)
        until_s = self._clock.monotonic_s() + limit_s
        for thread in self._threads:
            thread.join(max(0.0, until_s - self._clock.monotonic_s()))
        self._give_up()
        for queue in (self._writes, self._reads):
            for _ in self._threads:  # a thread that hangs now ends as soon as it can
                queue.put(None)
        self._engine, self._threads, self._identity, self._is_lost = None, [], (), False

    def settle(self, limit_s: float) -> None:
        """Wait for what is queued to be written, and fail what is not by then; blocks.

        For one of several stores that share the database, when it stops.
        """
        if wait([self.write(lambda _: None)], limit_s).not_done:
            self._give_up()

    def _give_up(self) -> None:
        """Fail all that waits, as of a database that hangs."""
        for queue in (self._writes, self._reads):
            _refuse_all(queue)
        for future in list(self._under_way):
            _fail(future, StoreFailed("the database did not answer in time"))

    def write(self, work: Callable[[Connection], T]) -> Future[T]:
        """Run work in a transaction; the future is done when that is committed.

        `work` may run more than once and must change nothing but the database. Work whose future is
        cancelled before it begins is never run. Fails with StoreFailed, or with what `work` raises.
        """
        return self._put(self._writes, work)

    def read(self, work: Callable[[Connection], T]) -> Future[T]:
        """Run work on another connection, which sees what is committed."""
        return self._put(self._writes if self._in_memory else self._reads, work)

    def has_lost_file(self) -> bool:
        """Say whether the file was deleted or replaced: what is written to it would be lost.

        Looks at its path every CHECK_S, at most; the file may be put back.
        """
        now_s = self._clock.monotonic_s()
        if self._identity and self.path and now_s - self._checked_s >= CHECK_S:
            self._checked_s = now_s
            self._is_lost = _identity(self.path) != self._identity
        return self._is_lost

    def _check_file(self) -> None:
        if self.has_lost_file():
            raise StoreFailed(
                f"the database file {self.path} (or its -wal) was deleted or replaced in use: put "
                "it back, or restart the gateway; until then nothing is accepted for it"
            )

    def state_of_file(self) -> FileState | None:
        """Return what stays the same as long as nobody writes; None if that is unknown.

        It cannot for PostgreSQL, and not just after a write.
        """
        if self.path is None:
            return None
        try:
            found = os.stat(self.path), os.stat(f"{self.path}-wal")
        except OSError:
            return None
        if max(one.st_mtime for one in found) > self._clock.utc().timestamp() - SETTLED_S:
            return None
        return tuple((one.st_ino, one.st_size, one.st_mtime_ns) for one in found)

    def connect(self) -> Connection:
        """Return a new connection in autocommit mode; raises what the driver does.

        The caller closes it before the database is closed.
        """
        engine = self._engine
        if engine is None:
            raise StoreFailed("the database is not open")
        return engine.connect().execution_options(isolation_level="AUTOCOMMIT")

    # -- inside

    @property
    def _connection(self) -> Connection | None:
        """The connection of the calling thread, which is the writer."""
        return getattr(self._mine, "connection", None)

    @_connection.setter
    def _connection(self, connection: Connection | None) -> None:
        self._mine.connection = connection

    def _start(
        self,
        loop: Callable[[Engine, WorkQueue], None],
        users: _EngineUsers,
        queue: WorkQueue,
        name: str,
    ) -> None:
        def run() -> None:
            with users:
                loop(users.engine, queue)

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _put(self, queue: WorkQueue, work: Callable[[Connection], T]) -> Future[T]:
        future: Future[T] = Future()
        with self._gate:
            if self._closed:
                future.set_exception(StoreFailed("the database is not open"))
            else:
                queue.put((work, future, self._clock.monotonic_s()))
        return future

    def _begins(self, item: Item) -> bool:
        """Say whether work is to run: not cancelled, and not queued for too long."""
        _, future, asked_s = item
        if not future.set_running_or_notify_cancel():
            return False
        if self._clock.monotonic_s() - asked_s > WAIT_S_MAX:
            _fail(future, StoreFailed("the database is too slow: nothing was done"))
            return False
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return True

    def _read_all(self, engine: Engine, queue: WorkQueue) -> None:
        while (item := queue.get()) is not None:
            if not self._begins(item):
                continue
            work, future, _ = item
            try:
                self._check_file()
                with engine.connect() as connection:
                    result = work(connection)
            except Exception as error:
                _fail(future, self._translated(error))
            else:
                _succeed(future, result)

    def _write_all(self, engine: Engine, queue: WorkQueue) -> None:
        while True:
            item = queue.get()
            group: list[Item] = []
            while item is not None:
                if self._begins(item):
                    group.append(item)
                if len(group) >= GROUP_MAX or queue.empty():
                    break
                item = queue.get()
            self._run(engine, group)
            if item is None:
                self._disconnect()
                return

    def _run(self, engine: Engine, group: list[Item]) -> None:
        if not group:
            return
        try:
            results = self._commit(engine, [work for work, _, _ in group])
        except Exception as error:
            if len(group) == 1 or self._is_shared(error):
                for _, future, _ in group:
                    _fail(future, self._translated(error))
            else:
                for one in group:
                    self._run(engine, [one])
            return
        for (_, future, _), result in zip(group, results, strict=True):
            _succeed(future, result)

    def _is_shared(self, error: Exception) -> bool:
        """Say whether a failure concerns all writes of a group; else it may be the fault of one.

        A database that is unavailable, locked or full is so for all of them, and so is a connection
        that `prepare` refuses: to retry each would only make the queue longer.
        """
        if isinstance(error, ForebayError):
            # Else one of the writes was refused.
            return self._connection is None or isinstance(error, StoreFailed)
        return isinstance(error, OperationalError | InterfaceError) and not _is_contended(error)

    def _commit(self, engine: Engine, works: list[Callable[[Connection], Any]]) -> list[Any]:
        self._check_file()
        connection = self._connection = self._connection or self._connected(engine)
        try:
            with connection.begin():
                if len(works) > 1 and not self.is_sqlite:
                    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {GROUP_LOCK_MS}")
                results = [work(connection) for work in works]
                _run_deferred(connection)
                return results
        except DBAPIError as error:
            if _is_contended(error):
                _discard_deferred(connection)
                raise
            if self._in_memory:
                _discard_deferred(connection)
            else:
                connection.invalidate()  # its state is unknown
            self._disconnect()
            raise
        except BaseException:
            _discard_deferred(connection)
            raise

    def _connected(self, engine: Engine) -> Connection:
        connection = _writing(engine.connect())
        try:
            if self._prepare is not None:
                with connection.begin():
                    self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(SQLAlchemyError):
                connection.close()

    def _translated(self, error: Exception) -> Exception:
        """Return what callers see: StoreFailed may be retried, InvariantBroken is a bug."""
        if isinstance(error, DataError | IntegrityError | ProgrammingError):
            return InvariantBroken(f"the database rejected a statement: {type(error).__name__}")
        return self._failure(error) if isinstance(error, DBAPIError) else error

    def _failure(self, error: SQLAlchemyError) -> StoreFailed:
        """Return the error as one line without parameters, which may hold prompts."""
        cause = str(error.orig) if isinstance(error, DBAPIError) else str(error)
        shown = self._url.render_as_string(hide_password=True)
        lines = cause.strip().splitlines() or ["unknown"]
        failure = StoreFailed(f"the database {shown} failed: {lines[0]}")
        failure.__cause__ = error
        return failure


def defer(connection: Connection, key: tuple[str, int], make: Callable[[], Deferred]) -> Deferred:
    """Return what runs at the end of this transaction under a key; made by the first to ask."""
    found: Deferred = connection.info.setdefault(_DEFERRED, {}).setdefault(key, make())
    return found


def _run_deferred(connection: Connection) -> None:
    """Run what was deferred, in the order of the keys."""
    for _, last in sorted(connection.info.pop(_DEFERRED, {}).items(), key=lambda item: item[0]):
        last(connection)


def _discard_deferred(connection: Connection) -> None:
    connection.info.pop(_DEFERRED, None)  # the transaction has failed


def _is_contended(error: Exception) -> bool:
    """Say whether a lock of another transaction was the cause, and the connection is fine."""
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", "") in CONTENDED


def _create_private(path: str) -> None:
    """Create the file, readable by its owner only, unless it is there: it will hold prompts.

    A file that is there is not opened: closing it would drop the locks of connections to it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with _creating, contextlib.suppress(FileExistsError):
        os.close(os.open(os.path.realpath(path), flags, 0o600))


def _identity(path: str) -> tuple[tuple[int, int], ...]:
    """Return device and inode of a file and of its -wal; () where one of them is not there."""
    try:
        found = os.stat(path), os.stat(f"{os.path.realpath(path)}-wal")  # SQLite follows links
    except OSError:
        return ()
    return tuple((one.st_dev, one.st_ino) for one in found)


def _succeed(future: Future[Any], result: Any) -> None:
    with contextlib.suppress(InvalidStateError):  # `close` has failed it
        future.set_result(result)


def _fail(future: Future[Any], error: Exception) -> None:
    with contextlib.suppress(InvalidStateError):
        future.set_exception(error)


def _refuse_all(queue: WorkQueue) -> None:
    while not queue.empty():
        item = queue.get()
        if item is not None and item[1].set_running_or_notify_cancel():
            _fail(item[1], StoreFailed("the database was closed"))


def _driver(url: str) -> URL:
    try:
        made = make_url(url)
    except ArgumentError as error:
        raise NotAllowed(f"{url!r} is not the URL of a database") from error
    if made.drivername in ("postgres", "postgresql"):
        made = made.set(drivername="postgresql+psycopg")
    if made.get_backend_name() not in ("sqlite", "postgresql"):
        raise NotAllowed("only SQLite and PostgreSQL are supported: sqlite:///forebay.db")
    return made


def _engine(url: URL, *, in_memory: bool) -> Engine:
    options: dict[str, Any] = {"hide_parameters": True}  # those hold prompts and answers
    if url.get_backend_name() == "sqlite":
        options["connect_args"] = {"timeout": BUSY_MS / 1000, "check_same_thread": False}
        if in_memory:
            options["poolclass"] = StaticPool
    else:
        limits = (
            f"-c statement_timeout={STATEMENT_MS} -c lock_timeout={LOCK_MS} "
            f"-c idle_in_transaction_session_timeout={IDLE_MS}"
        )
        options["connect_args"] = {
            "connect_timeout": CONNECT_S,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 15_000,
            **({} if "options" in url.query else {"options": limits}),
        }
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
    """Have SQLite lock at once: of two transactions that have read, only one could write."""
    return connection.execution_options(writes=True)


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
