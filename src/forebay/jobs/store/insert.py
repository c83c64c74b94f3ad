"""Insertion of jobs: deduplicated, and bounded by the depth of their queue.

Two submissions are the same when type, number, params and owner are equal, or owner and idempotency
key. Partial unique indexes over queued and running jobs decide, so that no race between processes
stores two; the query beforehand only finds the first.

A job beyond `depth_max`, or its owner's share of that, is stored as failed with its reason, so that
its submitter has a row to inspect.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import and_, bindparam, func, literal, or_, select, text
from sqlalchemy.dialects import postgresql, sqlite

from forebay.errors import InvariantBroken
from forebay.jobs.job import Added, NewJob
from forebay.jobs.store.schema import QUEUED, UNENDED, jobs
from forebay.shares import QUEUED_JOBS, Places, may_take
from forebay.storage.schema import now_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection, Select, Subquery

    from forebay.jobs.job import Status

CHUNK = 500
"""Rows in one statement: SQLite takes 32,766 parameters at most."""
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
    added: dict[int, Added] = {}
    marks = [fingerprint(job) for job in new]
    if depth_max is not None:
        lock_depths(connection, {job.task_type for job in new})
    for _ in range(ROUNDS):
        left = [i for i in range(len(new)) if i not in added]
        if not left:
            return [added[i] for i in range(len(new))]
        found = _existing(connection, [new[i] for i in left], [marks[i] for i in left])
        fresh, twins = _sort_out(new, marks, left, found, added)
        full = _beyond(connection, [new[i] for i in fresh], depth_max, owners)
        added.update(_insert(connection, new, marks, fresh, full))
        for i, first in twins.items():
            if first in added:
                added[i] = Added(added[first].id, added[first].status, is_new=False)
    raise InvariantBroken("a job is neither new nor there already")


def _sort_out(
    new: Sequence[NewJob],
    marks: Sequence[str],
    left: Sequence[int],
    found: dict[Any, Added],
    added: dict[int, Added],
) -> tuple[list[int], dict[int, int]]:
    """Note existing jobs in `added`; return which are new, and which are duplicates of those."""
    fresh: list[int] = []
    twins: dict[int, int] = {}
    mine: dict[Any, int] = {}
    for i in left:
        names = _names(new[i], marks[i])
        known = next((found[name] for name in names if name in found), None)
        first = next((mine[name] for name in names if name in mine), None)
        if known is not None:
            added[i] = known
        elif first is not None:
            twins[i] = first
        else:
            mine.update(dict.fromkeys(names, i))
            fresh.append(i)
    return fresh, twins


def _names(job: NewJob, mark: str) -> list[Any]:
    """Return the keys of a job in what `_existing` found."""
    if job.idempotency_key is None:
        return [mark]
    return [(job.owner, job.idempotency_key), mark]


def lock_depths(connection: Connection, types: set[str]) -> None:
    """Make counting and queueing atomic, where several processes write."""
    if connection.dialect.name == "postgresql":
        for task_type in sorted(types):
            connection.execute(
                text("SELECT pg_advisory_xact_lock(7801, hashtext(:name))"), {"name": task_type}
            )


_FOUND = (jobs.c.id, jobs.c.status, jobs.c.fingerprint, jobs.c.owner, jobs.c.idempotency_key)
_SAME = select(*_FOUND).where(UNENDED, jobs.c.fingerprint.in_(bindparam("marks", expanding=True)))


def _existing(
    connection: Connection, new: Sequence[NewJob], marks: Sequence[str]
) -> dict[Any, Added]:
    found: dict[Any, Added] = {}
    for start in range(0, len(marks), CHUNK):
        for row in connection.execute(_SAME, {"marks": marks[start : start + CHUNK]}):
            found[row.fingerprint] = Added(row.id, row.status, is_new=False)
    keys = [(job.owner, job.idempotency_key) for job in new if job.idempotency_key is not None]
    for start in range(0, len(keys), CHUNK):
        for row in connection.execute(_with_keys(keys[start : start + CHUNK])):
            found[row.owner, row.idempotency_key] = Added(row.id, row.status, is_new=False)
    return found


def _with_keys(keys: Sequence[tuple[str, str]]) -> Select[Any]:
    c = jobs.c
    pairs = (and_(c.owner == owner, c.idempotency_key == key) for owner, key in keys)
    return select(*_FOUND).where(UNENDED, c.idempotency_key.is_not(None), or_(*pairs))


_OF_TYPE = (jobs.c.task_type == bindparam("task_type"), QUEUED, jobs.c.batch_id.is_(None))


def _some(column: ColumnElement[Any]) -> Subquery:
    return select(column).select_from(jobs).where(*_OF_TYPE).limit(bindparam("limit")).subquery()


_DEPTH, _OWNERS = select(func.count()).select_from(_some(literal(1))), _some(jobs.c.owner)
_BY_OWNER = select(_OWNERS.c.owner, func.count().label("jobs")).group_by(_OWNERS.c.owner)


def depth(
    connection: Connection, task_type: str, depth_max: int, owners: int, more: int = 1
) -> Places:
    """Return the places of queued jobs of a type, without lines of batches, before adding `more`.

    Where anybody may add that many, whoever holds the others, they are not looked at one by one:
    their number is in an index.
    """
    places = Places(QUEUED_JOBS, depth_max)
    given = {"task_type": task_type, "limit": depth_max}
    places.held[""] = queued = int(connection.execute(_DEPTH, given).scalar_one())
    if owners > 1 and not may_take(queued + more - 1, queued + more - 1, depth_max, owners):
        places.held = Counter({row.owner: row.jobs for row in connection.execute(_BY_OWNER, given)})
    return places


def _beyond(
    connection: Connection, new: Sequence[NewJob], depth_max: int | None, owners: int
) -> dict[int, str]:
    """Return the indexes of those in `new` that find no place; why, where owners share."""
    beyond: dict[int, str] = {}
    depths: dict[str, Places] = {}
    for place, job in enumerate(new):
        if depth_max is None or job.batch_id is not None:
            continue
        if job.task_type not in depths:
            depths[job.task_type] = depth(connection, job.task_type, depth_max, owners, len(new))
        if refusal := depths[job.task_type].refusal(job.owner, owners):
            beyond[place] = refusal if owners > 1 else ""
        else:
            depths[job.task_type].take(job.owner)
    return beyond


def _insert(
    connection: Connection,
    new: Sequence[NewJob],
    marks: Sequence[str],
    fresh: Sequence[int],
    full: dict[int, str],
) -> dict[int, Added]:
    """Insert rows; one that another process inserted first is left out of the answer."""
    if not fresh:
        return {}
    rows = [_row(new[i], marks[i], full=place in full) for place, i in enumerate(fresh)]
    made: dict[int, Added] = {}
    for start in range(0, len(rows), CHUNK):
        taken = _take_in(connection, rows[start : start + CHUNK])
        for place in range(start, min(start + CHUNK, len(rows))):
            row_id = taken.get(rows[place]["fingerprint"])
            if row_id is not None:
                status: Status = "failed" if place in full else "queued"
                made[fresh[place]] = Added(row_id, status, is_new=True, refusal=full.get(place, ""))
    return made


@cache
def _statement(dialect: str, status: Status) -> Any:
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    ended = now_s() if status == "failed" else None
    made = insert(jobs).values(created_at=now_s(), finished_at=ended)
    return made.on_conflict_do_nothing().returning(jobs.c.id, jobs.c.fingerprint)


def _take_in(connection: Connection, rows: list[dict[str, Any]]) -> dict[str, int]:
    taken: dict[str, int] = {}
    statuses: tuple[Status, ...] = ("queued", "failed")
    for status in statuses:
        some = [row for row in rows if row["status"] == status]
        if some:
            done = connection.execute(_statement(connection.dialect.name, status), some)
            taken.update((row.fingerprint, row.id) for row in done)
    return taken


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
