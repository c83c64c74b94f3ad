"""The steps of one batch; each may be repeated after a crash.

- *validate* reads the whole input; with an error the batch fails and nothing runs.
- *load* inserts lines as rows of the jobs table, CHUNK_LINES or CHUNK_BYTES at a time, and moves
  the cursor in the same transaction: no line is lost or loaded twice, whenever the power fails.
- *finalize* writes the output files, then in one transaction inserts their rows, ends the batch
  and deletes its lines. A crash before that leaves files without rows; the next start deletes them.
  There is one file of answers and one of errors, each in the order of the input. Lines are read in
  pages of PAGE_BYTES_MAX, with one line at least, so that 50,000 long answers are never in memory
  at once. What is written depends on the rows alone: repeated, it is the same, ids included.

Of several gateways on one database one works on a batch at a time: it holds a lease on the row
(`keeper`, `keeper_until`, by the database's clock), renews it while it works, and every transaction
here fails once another has the lease. All of this blocks: it runs in a thread, and `stopping` ends
it between two lines.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct
from sqlalchemy import and_, delete, func, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from forebay.errors import Rejected
from forebay.jobs.batches import lines as batch_lines
from forebay.jobs.batches.batch import ENDED_EARLY, StoredBatch
from forebay.jobs.batches.files import OPEN, add_row
from forebay.jobs.batches.lines import BatchLine, LineError, Validation
from forebay.jobs.batches.service import COLUMNS, to_batch
from forebay.jobs.builtin import TYPES
from forebay.jobs.job import PRIORITIES, Change
from forebay.jobs.store.schema import batch_models, batches, jobs
from forebay.storage.schema import now_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from sqlalchemy import Connection

    from forebay.jobs.batches.file_rows import RowsUpload
    from forebay.jobs.batches.files import Files, FolderUpload
    from forebay.jobs.batches.lines import RawLine
    from forebay.jobs.batches.service import BatchService
    from forebay.storage.database import Database

CHUNK_LINES = 500
CHUNK_BYTES = 4 * 1024 * 1024
"""Input in one transaction; a longer line is loaded alone."""
LEASE_S = 30.0
PAGE_LINES = 500
PAGE_BYTES_MAX = 4 * 1024 * 1024
LINE_BREAKS = (
    (b"\n", b" "),
    (b"\r", b" "),
    ("\x85".encode(), rb"\u0085"),
    ("\u2028".encode(), rb"\u2028"),
    ("\u2029".encode(), rb"\u2029"),
)
"""Where readers of text end a line (`str.splitlines`), and what means the same in JSON.

The first two are only between tokens, the others only in strings.
"""
FILENAMES = {"output": "{name}_output.jsonl", "error": "{name}_error.jsonl"}
_SIZE = (
    func.length(func.coalesce(jobs.c.result, ""))
    + func.length(func.coalesce(jobs.c.error, ""))
)  # fmt: skip


class Interrupted(Rejected):
    """The work ended in the middle: another gateway continues it, or the next start."""

    code = "interrupted"


class _Chunk(Struct, frozen=True):
    """Lines that are loaded in one transaction."""

    lines: list[BatchLine]
    end: int
    """Offset of the next line, in bytes."""
    number: int
    """How many lines lie before that."""
    is_last: bool


class BatchSteps:
    """Advances batches, one at a time."""

    def __init__(
        self,
        batches: BatchService,
        files: Files,
        may_use: Callable[[str, str], bool],
        keeper: str,
        lease_s: float = LEASE_S,
    ) -> None:
        self._batches = batches
        self._database = batches.store.database
        self._files = files
        self._may_use = may_use
        self._keeper = keeper
        self.lease_s = lease_s
        """How long a gateway holds a batch without renewing."""
        self.stopping = threading.Event()

    # -- leases

    def forget_keepers(self) -> None:
        """Release every batch: with SQLite there is one gateway, and a crash leaves leases."""
        if self._database.is_sqlite:
            self._write(lambda connection: connection.execute(update(batches).values(keeper="")))

    def due(self) -> Future[tuple[list[int], float | None]]:
        """Return the batches to advance now, and in how many seconds the next expires."""

        def work(connection: Connection) -> tuple[list[int], float | None]:
            c = batches.c
            is_open = c.status.in_(OPEN)
            todo = or_(
                c.status != "in_progress",
                c.loaded_at.is_(None),
                c.completed + c.failed >= c.total,
                c.expires_at <= now_s(),
            )
            wanted = select(c.id, c.owner, c.status).where(is_open, todo, self._is_free())
            found = [
                int(one.id)
                for one in connection.execute(wanted.order_by(c.id))
                if one.status != "validating" or self._batches.store.in_force(one.owner)
            ]
            running = c.status.in_(("validating", "in_progress"))
            soonest = select(func.min(c.expires_at) - now_s()).where(running)
            return found, connection.execute(soonest).scalar()

        return self._database.read(work)

    def renew(self, batch_id: int) -> Future[bool]:
        """Renew the lease; False when it is lost."""
        statement = (
            update(batches)
            .where(batches.c.id == batch_id, batches.c.keeper == self._keeper)
            .values(keeper_until=now_s() + self.lease_s)
        )
        return self._database.write(lambda connection: connection.execute(statement).rowcount == 1)

    def advance(self, batch_id: int) -> None:
        """Do all steps that are possible now; raises Interrupted, StoreFailed, OSError."""
        batch = self._take(batch_id)
        try:
            while batch is not None:
                batch = self._step(batch)
        finally:
            mine = and_(batches.c.id == batch_id, batches.c.keeper == self._keeper)
            self._write(
                lambda connection: connection.execute(update(batches).where(mine).values(keeper=""))
            )

    def _step(self, batch: StoredBatch) -> StoredBatch | None:
        """Do one step; return the batch after it, or None when there is nothing more to do."""
        expired = self._expire(batch)
        if expired is not None:
            return expired
        match batch.status:
            case "validating":
                return self._validate(batch)
            case "finalizing" | "cancelling" if batch.outcome in ENDED_EARLY:
                self._batches.end_lines(batch)
            case "in_progress" | "finalizing":
                pass
            case _:
                return None
        if batch.loaded_at is None:
            return self._load(batch)
        if batch.status == "in_progress":
            return self._begin_finalizing(batch)
        self._finalize(batch)
        return None

    # -- the steps

    def _expire(self, batch: StoredBatch) -> StoredBatch | None:
        """Expire a batch whose time is up; None where it is not."""
        values: dict[str, Any] = {"outcome": "expired"}
        if batch.status == "validating":
            values |= {"status": "expired", "expired_at": now_s()}
        elif batch.status == "in_progress":
            values |= {"status": "finalizing", "finalizing_at": now_s()}
        else:
            return None
        unfinished = or_(
            batches.c.loaded_at.is_(None),
            batches.c.completed + batches.c.failed < batches.c.total,
        )
        return self._change(batch, values, and_(batches.c.expires_at <= now_s(), unfinished))

    def _validate(self, batch: StoredBatch) -> StoredBatch | None:
        checked = Validation(batch.endpoint, partial(self._may_use, batch.owner))
        try:
            with self._files.read(batch.input_file) as file:
                errors = checked.run(batch_lines.raw_lines(file), self._check_stopping)
        except FileNotFoundError:
            errors = [_gone()]
        if errors:
            return self._fail(batch, errors)
        values = {"status": "in_progress", "in_progress_at": now_s(), "total": checked.total}
        return self._change(batch, values)

    def _load(self, batch: StoredBatch) -> StoredBatch | None:
        """Load one chunk after the other; notice when the batch is cancelled meanwhile."""
        try:
            with self._files.read(batch.input_file) as file:
                file.seek(batch.cursor_bytes)
                found = batch_lines.raw_lines(file, batch.cursor_line)
                while batch.loaded_at is None:
                    self._check_stopping()
                    batch = self._add(batch, _next_chunk(batch, found))
        except FileNotFoundError:
            return self._fail(batch, [_gone()])
        except batch_lines.WrongLine as wrong:  # it was right when it was validated
            return self._fail(batch, [LineError("file_changed", f"The file has changed: {wrong}")])
        return batch

    def _add(self, batch: StoredBatch, chunk: _Chunk) -> StoredBatch:
        """Insert rows and move the cursor past them; the batch's row is locked first."""
        values: dict[str, Any] = {"cursor_bytes": chunk.end, "cursor_line": chunk.number}
        if chunk.is_last:
            values["loaded_at"] = now_s()

        def work(connection: Connection) -> tuple[StoredBatch, list[Change]]:
            where = and_(self._is_ours(batch.id), batches.c.cursor_bytes == batch.cursor_bytes)
            moved = update(batches).where(where, batches.c.status.in_(OPEN)).values(values)
            row = connection.execute(moved.returning(*COLUMNS)).one_or_none()
            if row is None:
                raise Interrupted("the lease on the batch is lost")
            after, changes = _add_lines(connection, to_batch(row), chunk.lines)
            self._batches.store.changes.notify(connection, changes)
            return after, changes

        after, changes = self._database.write(work).result()
        self._batches.store.changes.announce(changes)
        return after

    def _begin_finalizing(self, batch: StoredBatch) -> StoredBatch | None:
        """Continue when every line has ended; until then, the end of the last one wakes us."""
        all_done = batches.c.completed + batches.c.failed >= batches.c.total
        values = {"status": "finalizing", "finalizing_at": now_s()}
        return self._change(batch, values, all_done)

    def _finalize(self, batch: StoredBatch) -> None:
        written = write_output(self._database, self._files, batch, self._check_stopping)
        # If the commit fails, whether it took place is not known: the next start finds out.
        done = self._write(lambda connection: self._finish(connection, batch, written))
        if not done:
            discard_output(self._files, written)
            raise Interrupted("the lease on the batch is lost")

    def _finish(self, connection: Connection, batch: StoredBatch, written: Written) -> bool:
        """End the batch in one transaction; False when its lease is lost."""
        values: dict[str, Any] = {
            "status": batch.outcome,
            f"{batch.outcome}_at": now_s(),
            "output_file": None if written.output is None else written.output.name,
            "error_file": None if written.error is None else written.error.name,
        }
        where = and_(self._is_ours(batch.id), batches.c.status == batch.status)
        if connection.execute(update(batches).where(where).values(values)).rowcount != 1:
            return False
        for kind, upload in (("output", written.output), ("error", written.error)):
            if upload is not None:
                filename = FILENAMES[kind].format(name=batch.name)
                row = {"filename": filename, "purpose": "batch_output", "bytes": upload.bytes}
                add_row(connection, upload.name, batch.owner, row)
        connection.execute(delete(jobs).where(jobs.c.batch_id == batch.id))
        return True

    def _fail(self, batch: StoredBatch, errors: list[LineError]) -> StoredBatch | None:
        encoded = msgspec.json.encode({"object": "list", "data": errors}).decode()
        values = {"status": "failed", "failed_at": now_s(), "errors": encoded}
        lines = delete(jobs).where(jobs.c.batch_id == batch.id)
        return self._change(batch, values, also=lines)

    # -- inside

    def _take(self, batch_id: int) -> StoredBatch | None:
        """Take the lease; None when another has it, or there is no such batch."""
        taken = (
            update(batches)
            .where(batches.c.id == batch_id, self._is_free())
            .values(keeper=self._keeper, keeper_until=now_s() + self.lease_s)
            .returning(*COLUMNS)
        )
        row = self._write(lambda connection: connection.execute(taken).one_or_none())
        return None if row is None else to_batch(row)

    def _change(
        self, batch: StoredBatch, values: dict[str, Any], where: Any = None, also: Any = None
    ) -> StoredBatch | None:
        """Change a batch whose lease we hold, unless its status has changed; None then."""
        same = and_(self._is_ours(batch.id), batches.c.status == batch.status)
        changed = update(batches).where(same if where is None else and_(same, where))

        def work(connection: Connection) -> StoredBatch | None:
            done = connection.execute(changed.values(values).returning(*COLUMNS))
            row = done.one_or_none()
            if row is not None and also is not None:
                connection.execute(also)
            return None if row is None else to_batch(row)

        return self._database.write(work).result()

    def _write(self, work: Callable[[Connection], Any]) -> Any:
        return self._database.write(work).result()

    def _check_stopping(self) -> None:
        if self.stopping.is_set():
            raise Interrupted("the gateway is stopping")

    def _is_ours(self, batch_id: int) -> Any:
        return and_(batches.c.id == batch_id, batches.c.keeper == self._keeper)

    def _is_free(self) -> Any:
        keeper = batches.c.keeper
        return or_(keeper.in_(("", self._keeper)), batches.c.keeper_until < now_s())


def _next_chunk(batch: StoredBatch, found: Iterator[RawLine]) -> _Chunk:
    """Read enough lines for one transaction, or all that are left."""
    end, number = batch.cursor_bytes, batch.cursor_line
    lines: list[BatchLine] = []
    for raw in found:
        line = batch_lines.read(raw, batch.endpoint)
        end, number = raw.end, raw.number
        if line is not None:
            lines.append(line)
        if len(lines) >= CHUNK_LINES or end - batch.cursor_bytes >= CHUNK_BYTES:
            return _Chunk(lines, end, number, False)
    return _Chunk(lines, end, number, True)


def _add_lines(
    connection: Connection, batch: StoredBatch, lines: list[BatchLine]
) -> tuple[StoredBatch, list[Change]]:
    """Insert lines as rows: queued, or ended already where the batch is ending."""
    task_type = TYPES[batch.endpoint]
    early = ENDED_EARLY.get(batch.outcome)
    status: Any = "queued" if early is None else early[0]
    same: dict[str, Any] = {
        "task_type": task_type,
        "owner": batch.owner,
        "job_id": 0,
        "priority": PRIORITIES["low"],
        "status": status,
        "batch_id": batch.id,
        "error_code": None if early is None else early[1],
        "error": None if early is None else early[2],
        "created_at": now_s(),
        "finished_at": None if early is None else now_s(),
    }
    rows = [
        {
            "queue": f"model:{line.model}",
            "model": line.model,
            "params": line.body,
            "custom_id": line.custom_id,
            "fingerprint": f"batch:{batch.id}:{line.number}",
            "line": line.number,
        }
        for line in lines
    ]
    if not rows:
        return batch, []
    _note_models(connection, batch.id, {line.model for line in lines})
    added = insert(jobs).values(same).returning(jobs.c.id, jobs.c.queue)
    changes = [
        Change(row.id, task_type, row.queue, status, None, None, batch.id, owner=batch.owner)
        for row in connection.execute(added, rows)
    ]
    if early is not None:
        failed = batches.c.failed + len(rows)
        connection.execute(update(batches).where(batches.c.id == batch.id).values(failed=failed))
        batch = msgspec.structs.replace(batch, failed=batch.failed + len(rows))
    return batch, changes


def _note_models(connection: Connection, batch_id: int, models: set[str]) -> None:
    """Remember which models a batch asks for: its lines go when it ends."""
    insert_new = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    rows = [{"model": model, "batch_id": batch_id} for model in sorted(models)]
    connection.execute(insert_new(batch_models).on_conflict_do_nothing(), rows)


def _gone() -> LineError:
    return LineError("file_not_found", "The input file no longer exists.", None, "input_file")


class _LineFailure(Struct, frozen=True):
    code: str
    message: str


class _Answer(Struct, frozen=True):
    id: str
    custom_id: str
    response: Raw | None
    error: _LineFailure | None


@dataclass(frozen=True)
class Written:
    """Files whose contents are stored, and which have no rows yet."""

    output: FolderUpload | RowsUpload | None
    error: FolderUpload | RowsUpload | None


def write_output(
    database: Database, files: Files, batch: StoredBatch, check_stopping: Callable[[], object]
) -> Written:
    """Write both files, leaving out an empty one; raises what `check_stopping` raises."""
    uploads: dict[str, FolderUpload | RowsUpload] = {}
    try:
        for row in _rows(database, batch.id):
            check_stopping()
            kind = "output" if row.status == "completed" else "error"
            if kind not in uploads:
                uploads[kind] = files.begin()
            uploads[kind].write(_answer(batch, row), None)
        for upload in uploads.values():
            upload.keep()
    except BaseException:
        discard_output(files, Written(uploads.get("output"), uploads.get("error")))
        raise
    return Written(uploads.get("output"), uploads.get("error"))


def discard_output(files: Files, written: Written) -> None:
    """Delete files that will have no row."""
    for upload in (written.output, written.error):
        if upload is not None:
            upload.discard()
            files.remove(upload.name)


def _rows(database: Database, batch_id: int) -> Iterator[Any]:
    last = -1
    while True:
        ends = list(_ends(database.read(partial(_sizes, batch_id, last)).result()))
        if not ends:
            return
        for end in ends:
            yield from database.read(partial(_page, batch_id, last, end)).result()
            last = end


def _sizes(batch_id: int, last: int, connection: Connection) -> list[tuple[int, int]]:
    query = (
        select(jobs.c.line, _SIZE)
        .where(jobs.c.batch_id == batch_id, jobs.c.line > last)
        .order_by(jobs.c.line)
        .limit(PAGE_LINES)
    )
    return [(int(line), int(size)) for line, size in connection.execute(query)]


def _ends(sizes: list[tuple[int, int]]) -> Iterator[int]:
    """Yield the last line of each page, so that none is too large."""
    weight, before = 0, -1
    for line, size in sizes:
        if weight and weight + size > PAGE_BYTES_MAX:
            yield before
            weight = 0
        weight, before = weight + size, line
    if sizes:
        yield before


def _page(batch_id: int, last: int, end: int, connection: Connection) -> list[Any]:
    c = jobs.c
    query = (
        select(c.line, c.custom_id, c.status, c.result, c.error, c.error_code)
        .where(c.batch_id == batch_id, c.line > last, c.line <= end)
        .order_by(c.line)
    )
    return list(connection.execute(query))


def _answer(batch: StoredBatch, row: Any) -> bytes:
    """Return a line in the format of OpenAI; a result is JSON already, and is not parsed."""
    error = None
    if row.status != "completed":
        error = _LineFailure(row.error_code or "failed", row.error or "The request failed.")
    response = None if row.result is None else Raw(row.result.encode())
    mark = sha256(f"{batch.name}:{row.line}".encode()).hexdigest()[:32]
    answer = _Answer(f"batch_req_{mark}", row.custom_id, response, error)
    line = msgspec.json.encode(answer)
    for raw, escaped in LINE_BREAKS:
        line = line.replace(raw, escaped)
    return line + b"\n"
