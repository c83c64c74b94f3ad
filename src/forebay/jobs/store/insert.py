"""Insertion of jobs: deduplicated, and bounded by the depth of their queue.

Two submissions are the same when type, number, params and owner are equal, or owner and idempotency
key. Partial unique indexes over queued and running jobs decide, so that no race between processes
stores two.

A job beyond `depth_max`, or its owner's share of that, is stored as failed with its reason, so that
its submitter has a row to inspect.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import bindparam, func, literal, select, text
from sqlalchemy.dialects import postgresql, sqlite

from forebay.errors import InvariantBroken
from forebay.jobs.job import Added, NewJob
from forebay.jobs.store.schema import QUEUED, UNENDED, jobs
from forebay.shares import QUEUED_JOBS, Places, may_take
from forebay.storage.schema import now_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection, Subquery

    from forebay.jobs.job import Status

ROUNDS = 5
"""How often an insert may conflict with a row that ends before it is found."""
QUEUE_FULL = "Queue depth limit reached"
KEPT_CHARS = 4096
"""Longer params of a refused job are dropped: refusals must not fill the disk."""
DROPPED = "null"


def fingerprint(job: NewJob) -> str:
    """Return a value that is equal for two jobs that are the same."""
    if job.fingerprint:
        return job.fingerprint
    parts = (job.owner, job.task_type, job.job_id, job.params)
    return sha256(msgspec.json.encode(parts)).hexdigest()


def add(
    connection: Connection, new: Sequence[NewJob], depth_max: int | None, owners: int = 0
) -> list[Added]:
    """Store jobs; return the result of each, in order."""
    if depth_max is not None:
        lock_depths(connection, {job.task_type for job in new})
    return [_add_one(connection, job, depth_max, owners) for job in new]


def _add_one(connection: Connection, job: NewJob, depth_max: int | None, owners: int) -> Added:
    mark, full = fingerprint(job), ""
    for _ in range(ROUNDS):
        if depth_max is not None and job.batch_id is None:
            places = depth(connection, job.task_type, depth_max, owners)
            full = places.refusal(job.owner, owners)
        if not full and (added := _insert(connection, job, mark)) is not None:
            return added
        if (same := find_same(connection, job.owner, mark, job.idempotency_key)) is not None:
            return Added(same.id, same.status, is_new=False)
        if full and (added := _insert(connection, job, mark, full=True)) is not None:
            return msgspec.structs.replace(added, refusal=full if owners > 1 else "")
    raise InvariantBroken("a job is neither new nor there already")


_FOUND = select(jobs.c.id, jobs.c.status)
_SAME_WORK = _FOUND.where(UNENDED, jobs.c.fingerprint == bindparam("mark"))
_SAME_KEY = _FOUND.where(
    UNENDED, jobs.c.owner == bindparam("whose"), jobs.c.idempotency_key.is_not(None),
    jobs.c.idempotency_key == bindparam("key"),
)  # fmt: skip


def find_same(connection: Connection, owner: str, mark: str, key: str | None) -> Any:
    """Return the row of the same job, queued or running already; None where there is none."""
    found = None
    if key is not None:
        found = connection.execute(_SAME_KEY, {"whose": owner, "key": key}).first()
    return found or connection.execute(_SAME_WORK, {"mark": mark}).first()


def lock_depths(connection: Connection, types: set[str]) -> None:
    """Make counting and queueing atomic, where several processes write."""
    if connection.dialect.name == "postgresql":
        for task_type in sorted(types):
            connection.execute(
                text("SELECT pg_advisory_xact_lock(7801, hashtext(:name))"), {"name": task_type}
            )


_OF_TYPE = (jobs.c.task_type == bindparam("task_type"), QUEUED, jobs.c.batch_id.is_(None))


def _some(column: ColumnElement[Any]) -> Subquery:
    return select(column).select_from(jobs).where(*_OF_TYPE).limit(bindparam("limit")).subquery()


_DEPTH, _OWNERS = select(func.count()).select_from(_some(literal(1))), _some(jobs.c.owner)
_BY_OWNER = select(_OWNERS.c.owner, func.count().label("jobs")).group_by(_OWNERS.c.owner)


def depth(connection: Connection, task_type: str, depth_max: int, owners: int) -> Places:
    """Return the places of queued jobs of a type, without lines of batches.

    Where anybody may add one, whoever holds the others, they are not looked at one by one: their
    number is in an index.
    """
    places = Places(QUEUED_JOBS, depth_max)
    given = {"task_type": task_type, "limit": depth_max}
    places.held[""] = queued = int(connection.execute(_DEPTH, given).scalar_one())
    if owners > 1 and not may_take(queued, queued, depth_max, owners):
        places.held = Counter({row.owner: row.jobs for row in connection.execute(_BY_OWNER, given)})
    return places


@cache
def _statement(dialect: str, status: Status) -> Any:
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    ended = now_s() if status == "failed" else None
    made = insert(jobs).values(created_at=now_s(), finished_at=ended)
    return made.on_conflict_do_nothing().returning(jobs.c.id)


def _insert(connection: Connection, job: NewJob, mark: str, *, full: bool = False) -> Added | None:
    """Insert the row of a job; None where the same job is there."""
    status: Status = "failed" if full else "queued"
    statement = _statement(connection.dialect.name, status)
    made = connection.execute(statement, _row(job, mark, full=full)).scalar()
    return None if made is None else Added(made, status, is_new=True)


def _row(job: NewJob, mark: str, *, full: bool) -> dict[str, Any]:
    return {
        "task_type": job.task_type,
        "queue": job.queue or job.task_type,
        "owner": job.owner,
        "job_id": job.job_id,
        "params": DROPPED if full and len(job.params) > KEPT_CHARS else job.params,
        "priority": job.priority,
        "model": job.model,
        "idempotency_key": job.idempotency_key,
        "fingerprint": mark,
        "status": "failed" if full else "queued",
        "error": QUEUE_FULL if full else None,
        "error_code": "job_queue_full" if full else None,
        "batch_id": job.batch_id,
        "line": job.line,
        "webhook_due": 0.0 if job.webhook else None,  # due as soon as it has ended
    }
