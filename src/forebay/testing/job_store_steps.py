"""Short words for what tests of the job store do over and over.

Time is never waited for: a lease that has ended is made by `expire`, which sets it into the past
by the database's own clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select, update

from forebay.jobs.job import NewJob, StoredJob
from forebay.jobs.store.job_store import JobStore
from forebay.jobs.store.schema import gpu_holds, jobs

if TYPE_CHECKING:
    from forebay.storage.database import Database

OpenStore = Callable[[], JobStore]
LEASE_S = 30.0


def letter(number: int = 0, **more: Any) -> NewJob:
    return NewJob("letter", f'{{"n":{number}}}', **more)


def submit(store: JobStore, *new: NewJob, depth_max: int | None = None) -> list[int]:
    return [added.id for added in store.add(new, depth_max).result(10)]


def claim(store: JobStore, queue: str = "letter", worker: str = "w1") -> StoredJob | None:
    taken = store.claim(queue, worker, LEASE_S).result(10)
    return taken[0] if taken else None


def claimed(store: JobStore, queue: str = "letter", worker: str = "w1") -> StoredJob:
    job = claim(store, queue, worker)
    assert job is not None
    return job


def found(store: JobStore, job_id: int) -> StoredJob:
    job = store.get(job_id).result(10)
    assert job is not None
    return job


def expire(store: JobStore) -> None:
    """Let every lease end, of jobs and of GPU memory."""
    statement = update(jobs).where(jobs.c.status == "running").values(lease_until=1.0)
    store.database.write(lambda connection: connection.execute(statement).rowcount).result(10)
    holds = update(gpu_holds).values(until=1.0)
    store.database.write(lambda connection: connection.execute(holds).rowcount).result(10)


def rows(database: Database) -> int:
    statement = select(func.count()).select_from(jobs)
    return int(
        database.read(lambda connection: connection.execute(statement).scalar_one()).result()
    )
