"""Creation, queries and cancellation of batches.

Batches are advanced by `steps`, driven by `keeper`. A cancellation is two transactions. The first
marks the batch as being cancelled; from then on its loader inserts only lines that have ended. The
second ends the existing lines: a running one, too, so that its holder hears of it, stops at once,
and can no longer write. One transaction would lock the batch before its lines, in the opposite
order to a line that completes, and PostgreSQL would find a deadlock. A crash between the two is
repaired by the next step of the batch.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from sqlalchemy import func, insert, literal, literal_column, select, update

from forebay.jobs.batches import files as stored
from forebay.jobs.batches.batch import (
    ENDED_EARLY,
    LIST_MAX,
    OPEN_MAX,
    BadBatch,
    BatchesFull,
    NewBatch,
    NotCancellable,
    StoredBatch,
    check,
    window_s,
)
from forebay.jobs.job import Failure
from forebay.jobs.store.recovery import end_some
from forebay.jobs.store.schema import UNENDED, batch_models, batches, jobs
from forebay.storage.schema import now_s

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from concurrent.futures import Future

    from sqlalchemy import ColumnElement, Connection

    from forebay.api.batches import BatchStatus
    from forebay.jobs.job import Change
    from forebay.jobs.store.job_store import JobStore


COLUMNS = [batches.c[name] for name in StoredBatch.__struct_fields__ if name != "models"]


class BatchPage(Struct, frozen=True):
    """One page of an owner's batches."""

    batches: list[StoredBatch]
    has_more: bool


class BatchService:
    """Every method may be called from any thread; those without a future block."""

    def __init__(self, store: JobStore, *, webhook: bool = False) -> None:
        self.store = store
        self._webhook = webhook
        self.changed: Callable[[], None] = lambda: None
        """Called when a batch was created or is being cancelled; on any thread."""

    def create(self, owner: str, new: NewBatch) -> StoredBatch:
        """Create a batch; raises BadBatch or BatchesFull."""
        check(new)
        name = f"batch_{secrets.token_hex(12)}"
        metadata = None if new.metadata is None else msgspec.json.encode(new.metadata).decode()

        def work(connection: Connection) -> StoredBatch:
            file = stored.find(connection, new.input_file, owner, lock=True)
            if file is None:
                raise BadBatch("there is no file with that id", "input_file_id")
            if file.purpose != "batch":
                raise BadBatch("the file's purpose is not batch", "input_file_id")
            _check_room(connection, owner)
            values = {
                "name": name,
                "owner": owner,
                "endpoint": new.endpoint,
                "completion_window": new.completion_window,
                "status": "validating",
                "input_file": new.input_file,
                "metadata": metadata,
                "webhook_due": 0.0 if self._webhook else None,
                "created_at": now_s(),
                "expires_at": now_s() + literal(float(window_s(new.completion_window))),
            }
            made = insert(batches).values(values).returning(*COLUMNS)
            self.store.changes.notify_batches(connection)
            return to_batch(connection.execute(made).one())

        batch = self.store.database.write(work).result()
        self.changed()
        return batch

    def get(self, name: str, owner: str | None) -> Future[StoredBatch | None]:
        """Return a batch of an owner, of anybody's for None; so do `list` and `cancel`."""

        def work(connection: Connection) -> StoredBatch | None:
            found = _find(connection, name, owner)
            return found and _with_models(connection, [found])[0]

        return self.store.database.read(work)

    def list(
        self,
        owner: str | None,
        limit: int,
        after: str | None,
        status: BatchStatus | None = None,
        model: str | None = None,
    ) -> Future[BatchPage | None]:
        """Return an owner's batches, the newest first; None when `after` is none of them.

        Those with a line that asks for `model`, where one is given.
        """

        def work(connection: Connection) -> BatchPage | None:
            query = select(*COLUMNS).where(*_of(owner))
            if status is not None:
                query = query.where(batches.c.status == status)
            if model is not None:
                asking = select(batch_models.c.batch_id).where(batch_models.c.model == model)
                query = query.where(batches.c.id.in_(asking))
            if after is not None:
                last = _find(connection, after, owner)
                if last is None:
                    return None
                query = query.where(batches.c.id < last.id)
            some = min(limit, LIST_MAX)
            rows = connection.execute(query.order_by(batches.c.id.desc()).limit(some + 1))
            found = [to_batch(row) for row in rows]
            return BatchPage(_with_models(connection, found[:some]), len(found) > some)

        return self.store.database.read(work)

    def progress(self) -> Future[tuple[int, int, int, int]]:
        """Count unfinished batches: how many, their lines, completed, failed."""
        sums = [func.coalesce(func.sum(column), 0)
                for column in (batches.c.total, batches.c.completed, batches.c.failed)]  # fmt: skip
        is_open = batches.c.status.in_([literal_column(f"'{status}'") for status in stored.OPEN])
        query = select(func.count(), *sums).where(is_open)  # literal values: for the partial index

        def work(connection: Connection) -> tuple[int, int, int, int]:
            count, total, completed, failed = connection.execute(query).one()
            return int(count), int(total), int(completed), int(failed)

        return self.store.database.read(work)

    def cancel(self, name: str, owner: str | None) -> StoredBatch | None:
        """Cancel a batch; None when there is none. Raises NotCancellable.

        A batch that is being cancelled, or was, stays as it is.
        """

        def work(connection: Connection) -> StoredBatch | None:
            batch = _find(connection, name, owner, lock=True)
            if batch is None:
                return None
            if batch.status in ("cancelling", "cancelled"):
                return _with_models(connection, [batch])[0]
            if batch.status == "validating":  # nothing has run
                values = {"status": "cancelled", "cancelled_at": now_s()}
            elif batch.status == "in_progress":
                values = {"status": "cancelling"}
            else:
                raise NotCancellable(f"the batch is {batch.status}: it cannot be cancelled")
            values |= {"cancelling_at": now_s(), "outcome": "cancelled"}
            self.store.changes.notify_batches(connection)
            changed = update(batches).where(batches.c.id == batch.id).values(values)
            cancelled = to_batch(connection.execute(changed.returning(*COLUMNS)).one())
            return _with_models(connection, [cancelled])[0]

        batch = self.store.database.write(work).result()
        if batch is not None and batch.status == "cancelling":
            self.end_lines(batch)
        self.changed()
        return batch

    def cancel_of(self, owners: Collection[str]) -> None:
        """Cancel the batches of keys that were revoked; lines that run end by themselves."""
        is_open = batches.c.status.in_(("validating", "in_progress"))
        open_ones = select(batches.c.id, batches.c.owner, batches.c.status)
        open_ones = open_ones.where(is_open, batches.c.outcome != "cancelled")

        def find(connection: Connection) -> list[Any]:
            return [row for row in connection.execute(open_ones) if row.owner in owners]

        def work(connection: Connection) -> None:
            for row in find(connection):
                values = {"outcome": "cancelled", "cancelling_at": now_s()}
                if row.status == "validating":
                    values |= {"status": "cancelled", "cancelled_at": now_s()}
                same = (batches.c.id == row.id, batches.c.status == row.status)
                connection.execute(update(batches).where(*same).values(values))
            self.store.changes.notify_batches(connection)

        if self.store.database.read(find).result():
            self.store.database.write(work).result()
            self.changed()

    def end_lines(self, batch: StoredBatch) -> None:
        """End the unfinished lines of a batch as its outcome says; may be repeated."""
        status, code, message = ENDED_EARLY[batch.outcome]
        where = (jobs.c.batch_id == batch.id, UNENDED)

        def work(connection: Connection) -> list[Change]:
            why = Failure(message, code)
            changes = end_some(connection, where, why, status, skip_locked=False)
            self.store.changes.notify(connection, changes)
            return changes

        while changes := self.store.database.write(work).result():
            self.store.changes.announce(changes)


def to_batch(row: Any) -> StoredBatch:
    """Return a row of `COLUMNS` as a batch."""
    return StoredBatch(**row._mapping)


def _with_models(connection: Connection, found: list[StoredBatch]) -> list[StoredBatch]:
    """Return batches with the models that they ask for, sorted."""
    asked = select(batch_models.c.batch_id, batch_models.c.model)
    asked = asked.where(batch_models.c.batch_id.in_([batch.id for batch in found]))
    models: dict[int, list[str]] = {}
    for batch_id, model in connection.execute(asked):
        models.setdefault(batch_id, []).append(model)
    return [
        msgspec.structs.replace(batch, models=tuple(sorted(models.get(batch.id, ()))))
        for batch in found
    ]


def _of(owner: str | None) -> list[ColumnElement[bool]]:
    return [] if owner is None else [batches.c.owner == owner]


def _find(
    connection: Connection, name: str, owner: str | None, *, lock: bool = False
) -> StoredBatch | None:
    query = select(*COLUMNS).where(batches.c.name == name, *_of(owner))
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    return None if row is None else to_batch(row)


def _check_room(connection: Connection, owner: str) -> None:
    stored.lock_owner(connection, stored.BATCHES_LOCK, owner)
    query = select(func.count()).where(batches.c.owner == owner, batches.c.status.in_(stored.OPEN))
    if int(connection.execute(query).scalar_one()) >= OPEN_MAX:
        raise BatchesFull(f"{OPEN_MAX} batches have not ended: wait for one, or cancel one")
