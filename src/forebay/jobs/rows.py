"""Rows of the jobs table as values, and the small statements that several modules need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import select, update

from forebay.jobs.adding import fingerprint
from forebay.jobs.job import Job, NewJob, Status
from forebay.jobs.schema import UNENDED, batches, jobs

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

COLUMNS = [jobs.c[name] for name in Job.__struct_fields__]


def to_job(row: Row[Any]) -> Job:
    """Return a row of `COLUMNS` as a job."""
    return Job(**row._mapping)


def find(connection: Connection, job_id: int, owner: str | None, *, lock: bool) -> Job | None:
    """Return a job; with an owner, only one of theirs. Lines of batches are not found."""
    wanted = select(*COLUMNS).where(jobs.c.id == job_id, jobs.c.batch_id.is_(None))
    if owner is not None:
        wanted = wanted.where(jobs.c.owner == owner)
    if lock:
        wanted = wanted.with_for_update()
    row = connection.execute(wanted).one_or_none()
    return None if row is None else to_job(row)


def twin_of(connection: Connection, job: Job) -> int | None:
    """Return the same work that is queued or running already."""
    new = NewJob(job.task_type, job.params, job.job_id, owner=job.owner)
    same = jobs.c.fingerprint == fingerprint(new)
    if job.idempotency_key is not None:
        same |= (jobs.c.owner == job.owner) & (jobs.c.idempotency_key == job.idempotency_key)
    found = connection.execute(select(jobs.c.id).where(UNENDED, same).limit(1))
    return found.scalar_one_or_none()


def count_line(connection: Connection, job: Job, status: Status) -> None:
    """Keep a batch's counts in the same transaction as its lines."""
    if job.batch_id is not None:
        column = batches.c.completed if status == "completed" else batches.c.failed
        connection.execute(
            update(batches).where(batches.c.id == job.batch_id).values({column: column + 1})
        )
