"""Deletion of what ended long ago: jobs, batches, and files that no batch refers to.

It works in rounds, one at the start and one every hour, in a thread of its own. A round deletes in
steps, each a transaction of at most STEP_ROWS rows; between two steps it rests several times as
long as the step took, and a step that took long is followed by a smaller one. So whoever else
writes waits for one short step at most.

Gateways share a database: an advisory lock lets one delete at a time, and rows that others hold are
left for the next round. Nothing is deleted that is queued or running, nor a file that any batch
still names. A file's row goes before its contents, as everywhere: a crash in between leaves
contents without a row, which `Files.open` deletes. What is old is for the database's clock to say,
slewed (`SlewedClock`).
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from sqlalchemy import delete, literal, or_, select, text

from forebay.clock import SystemClock
from forebay.errors import Rejected
from forebay.jobs.store.schema import BATCH_ENDED_AT, ENDED, batch_models, batches, files, jobs
from forebay.storage.schema import now_s, only
from forebay.storage.slewed_clock import SlewedClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import ColumnElement, Connection, Select, Table

    from forebay.clock import Clock
    from forebay.jobs.batches.files import Files
    from forebay.jobs.store.job_store import JobStore

logger = logging.getLogger("forebay.jobs")

DAY_S = 86_400.0
ROUND_S = 3600.0
STEP_ROWS = 200
STEP_S = 0.05
"""A step that takes longer is followed by a smaller one."""
REST_S, REST_FACTOR = 0.05, 4.0
"""At least so long between two steps, and so many times as long as the last one took."""
STOP_S = 2.0
LOCK = 7804
"""Key of the advisory lock of whoever deletes."""


class Pruned(Struct):
    """What a round has deleted."""

    jobs: int = 0
    batches: int = 0
    files: int = 0

    def __bool__(self) -> bool:
        return bool(self.jobs or self.batches or self.files)


class Retention:
    """Deletes what is older than `retention_days`; `start` and `stop` once, with the store open."""

    def __init__(
        self,
        store: JobStore,
        days: float,
        files: Files | None = None,
        *,
        types: Callable[[], Sequence[str] | None] = lambda: None,
        clock: Clock | None = None,
    ) -> None:
        """Without `files`, only jobs are deleted; `types` says of which types, None: of all."""
        self._store = store
        self._days = days
        self._files = files
        self._types = types
        self._clock = clock or SystemClock()
        self._slewed = SlewedClock(jobs.name)
        self._limit_s = 0.0  # in the database's time: what ended before it is deleted
        self._rows = STEP_ROWS
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.on_deleted: Callable[[Counter[tuple[str, Any]]], object] = lambda _: None
        """Called on the thread with how many jobs went, by type and status."""
        self.on_step: Callable[[str, int], object] = lambda kind, count: None
        """Called on the thread after each step with how many rows of a kind went."""

    def start(self) -> None:
        """Begin; no effect where everything is kept, or it has begun."""
        if self._days > 0 and self._thread is None:
            self._stopping.clear()
            self._thread = threading.Thread(target=self._run, name="forebay-retention", daemon=True)
            self._thread.start()

    def stop(self, limit_s: float = STOP_S) -> None:
        """End after the step under way; may be called twice. A store that hangs is left alone."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stopping.set()
            thread.join(limit_s)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.prune()
            except Rejected as error:  # the store is away; the next round finds the same
                logger.warning("deleting old jobs failed: %s", error)
            except Exception:
                logger.exception("deleting old jobs failed")
            self._stopping.wait(ROUND_S)
        with contextlib.suppress(Rejected):
            self._move_limit()  # short runs count, too

    def prune(self) -> Pruned:
        """Delete all that is old enough, in steps; raises StoreFailed."""
        done = Pruned()
        self._move_limit()
        while gone := self._step("job", self._delete_jobs):
            done.jobs += len(gone)
            self.on_deleted(Counter((row.task_type, row.status) for row in gone))
        if self._files is not None:
            while self._step("job", self._delete_lines):
                pass
            while gone := self._step("batch", self._delete_batches):
                done.batches += len(gone)
            while gone := self._step("file", self._delete_files):
                done.files += len(gone)
                self._files.remove(*gone)
        if done:
            logger.info(
                "deleted %d jobs, %d batches and %d files that ended more than %g days ago",
                done.jobs, done.batches, done.files, self._days, extra={"action": "prune"},
            )  # fmt: skip
        return done

    def _step(self, kind: str, delete_some: Callable[[Connection], list[Any]]) -> list[Any]:
        """Delete some in a transaction, and rest; [] where nothing is left, or all is to stop."""
        if self._stopping.is_set():
            return []
        begun_s = self._clock.monotonic_s()
        gone = self._store.database.write(
            lambda connection: delete_some(connection) if _may_delete(connection) else []
        ).result()
        took_s = self._clock.monotonic_s() - begun_s
        self._rows = max(1, self._rows // 2) if took_s > STEP_S else min(STEP_ROWS, self._rows * 2)
        if gone:
            self.on_step(kind, len(gone))
            self._stopping.wait(max(REST_S, REST_FACTOR * took_s))
        return gone

    def _some(self, wanted: Select[Any], of: Table) -> Select[Any]:
        """Select as many rows as a step may delete, and lock them."""
        return wanted.limit(self._rows).with_for_update(skip_locked=True, of=of)

    # -- what is deleted in one step

    def _delete_jobs(self, connection: Connection) -> list[Any]:
        old = [ENDED, jobs.c.batch_id.is_(None), jobs.c.finished_at < self._limit()]
        if (types := self._types()) is not None:
            old.append(jobs.c.task_type.in_(types))
        some = self._some(select(jobs.c.id).where(*old).order_by(jobs.c.finished_at), jobs)
        gone = delete(jobs).where(only(some, jobs.c.id))
        return list(connection.execute(gone.returning(jobs.c.task_type, jobs.c.status)))

    def _delete_lines(self, connection: Connection) -> list[Any]:
        """Delete lines of ended batches; finishing a batch does, so there are hardly ever any."""
        of_ended = select(jobs.c.id).join(batches, jobs.c.batch_id == batches.c.id)
        some = self._some(of_ended.where(self._limit() > BATCH_ENDED_AT), jobs)
        gone = delete(jobs).where(only(some, jobs.c.id)).returning(jobs.c.id)
        return list(connection.execute(gone))

    def _delete_batches(self, connection: Connection) -> list[Any]:
        c = batches.c
        ended = select(c.id).where(self._limit() > BATCH_ENDED_AT).order_by(BATCH_ENDED_AT)
        gone = delete(batches).where(only(self._some(ended, batches), c.id)).returning(c.id)
        ids = list(connection.execute(gone).scalars())
        connection.execute(delete(batch_models).where(batch_models.c.batch_id.in_(ids)))
        return ids

    def _delete_files(self, connection: Connection) -> list[Any]:
        c = files.c
        old = select(c.name).where(c.created_at < self._limit(), ~_is_named(c.name))
        names = list(connection.execute(self._some(old.order_by(c.created_at), files)).scalars())
        # Now that the rows are locked no batch can begin with one of them; one may just have.
        free = select(c.name).where(c.name.in_(names), ~_is_named(c.name))
        free_names = list(connection.execute(free).scalars())
        connection.execute(delete(files).where(c.name.in_(free_names)))
        return free_names

    def _limit(self) -> ColumnElement[float]:
        return literal(self._limit_s)

    def _move_limit(self) -> None:
        def work(connection: Connection) -> float:
            now = connection.execute(select(now_s())).scalar_one()
            return self._slewed.move(connection, now, self._clock.monotonic_s())

        self._limit_s = self._store.database.write(work).result() - self._days * DAY_S


def _is_named(name: Any) -> ColumnElement[bool]:
    """Say whether a batch refers to a file."""
    c = batches.c
    by = or_(c.input_file == name, c.output_file == name, c.error_file == name)
    return select(c.id).where(by).exists()


def _may_delete(connection: Connection) -> bool:
    """Take the lock of whoever deletes, until the transaction ends; False: another has it."""
    if connection.dialect.name != "postgresql":
        return True
    taken = connection.execute(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": LOCK})
    return bool(taken.scalar_one())
