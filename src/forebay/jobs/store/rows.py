"""Rows of the jobs table as values, and statements that several modules need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select, update

from forebay.jobs.job import Status, StoredJob
from forebay.jobs.store.schema import QUEUED, batches, jobs
from forebay.storage.database import defer

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

COLUMNS = [jobs.c[name] for name in StoredJob.__struct_fields__]


def to_job(row: Row[Any]) -> StoredJob:
    """Return a row of `COLUMNS` as a job."""
    return StoredJob(**row._mapping)


def find(connection: Connection, job_id: int, owner: str | None, *, lock: bool) -> StoredJob | None:
    """Return a job; with an owner, only one of theirs. Lines of batches are not found."""
    wanted = select(*COLUMNS).where(jobs.c.id == job_id, jobs.c.batch_id.is_(None))
    if owner is not None:
        wanted = wanted.where(jobs.c.owner == owner)
    if lock:
        wanted = wanted.with_for_update()
    row = connection.execute(wanted).one_or_none()
    return None if row is None else to_job(row)


def queue_depths(connection: Connection) -> dict[str, int]:
    """Return how many jobs each queue holds; finished jobs cost nothing."""
    wanted = select(jobs.c.queue, func.count()).where(QUEUED).group_by(jobs.c.queue)
    return {row[0]: int(row[1]) for row in connection.execute(wanted)}


def owner_depths(connection: Connection) -> dict[tuple[str, str], int]:
    """Return how many jobs each queue holds of each owner."""
    whose = (jobs.c.queue, jobs.c.owner)
    wanted = select(*whose, func.count()).where(QUEUED).group_by(*whose)
    return {(row[0], row[1]): int(row[2]) for row in connection.execute(wanted)}


class _Ended:
    """Lines of one batch that a transaction has ended, counted at the end of it."""

    def __init__(self, batch_id: int) -> None:
        self._batch_id = batch_id
        self.completed = self.failed = 0

    def __call__(self, connection: Connection) -> None:
        c = batches.c
        values = {"completed": c.completed + self.completed, "failed": c.failed + self.failed}
        connection.execute(update(batches).where(c.id == self._batch_id).values(values))


def count_line(connection: Connection, batch_id: int | None, status: Status) -> None:
    """Count a job that has ended in the batch of which it is a line; at the transaction's end."""
    if batch_id is not None:
        ended = defer(connection, ("batches", batch_id), lambda: _Ended(batch_id))
        if status == "completed":
            ended.completed += 1
        else:
            ended.failed += 1
