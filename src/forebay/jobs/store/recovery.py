"""Recovery of jobs whose worker is gone: a restart, a crash, an expired lease.

A job is requeued while `retry` and its attempts allow, else it fails with the reason; after several
attempts it is a dead letter, so that a job which kills its worker does not do so for ever. Lines of
a batch are always retried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from sqlalchemy import select, update

from forebay.jobs.job import Change, Failure, Status, StoredJob
from forebay.jobs.store.rows import COLUMNS, count_line, to_job
from forebay.jobs.store.schema import BATCH_LAST, QUEUED, RUNNING, UNENDED, jobs
from forebay.storage.schema import now_s, only

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection

INTERRUPTED = "Interrupted by restart"
ENDED_MAX = 500
"""Jobs that are ended in one transaction, so that others can write in between."""
_OF_CHANGE = [
    jobs.c[name] for name in ("id", "task_type", "queue", "worker", "batch_id", "fence", "owner")
]


class Recovery(Struct, frozen=True):
    """Which interrupted jobs to recover, and how."""

    retry: bool = False
    attempts: int = 1
    expired_only: bool = False
    """Only jobs whose lease has expired: the others may be running elsewhere."""
    never_again: tuple[str, ...] = ()
    """Types that fail even when they are still queued."""
    known: tuple[str, ...] | None = None
    """Types to recover: those of other programs they recover themselves. None: all."""
    spared: tuple[int, ...] = ()
    """Queued jobs of `never_again` that stay: submitted by the very program that recovers."""


def recover(connection: Connection, how: Recovery) -> list[Change]:
    """Requeue or fail interrupted jobs; return what changed."""
    gone: Any = RUNNING
    if how.expired_only:
        gone &= jobs.c.lease_until < now_s()
    elif how.never_again:
        leftover = QUEUED & jobs.c.task_type.in_(how.never_again)
        gone |= leftover & jobs.c.id.not_in(how.spared)
    if how.known is not None:
        gone &= jobs.c.task_type.in_(how.known)
    found = connection.execute(select(*COLUMNS).where(gone).with_for_update(skip_locked=True))
    return [_interrupt(connection, to_job(row), how) for row in found.all()]


def _interrupt(connection: Connection, job: StoredJob, how: Recovery) -> Change:
    again = (how.retry or job.batch_id is not None) and job.task_type not in how.never_again
    values: dict[str, Any] = {"worker": "", "lease_until": None}
    if again and job.attempt < how.attempts:
        values["status"] = "queued"
    else:
        error, code = INTERRUPTED, "interrupted"
        if again:
            error, code = f"{INTERRUPTED}, {job.attempt} times: given up", "dead_letter"
        values |= {"status": "failed", "error": error, "error_code": code, "finished_at": now_s()}
        count_line(connection, job.batch_id, "failed")
    connection.execute(update(jobs).where(jobs.c.id == job.id).values(**values))
    status: Status = values["status"]
    return Change(
        job.id, job.task_type, job.queue, status, job.status, None, job.batch_id, None, job.fence,
        owner=job.owner,
    )  # fmt: skip


def end_some(
    connection: Connection,
    where: Sequence[ColumnElement[bool]],
    failure: Failure,
    status: Status = "failed",
    *,
    order: Sequence[ColumnElement[Any]] = (jobs.c.id,),
    skip_locked: bool = True,
) -> list[Change]:
    """End the next jobs that can never run, ENDED_MAX at most; return what changed.

    In an order, against deadlocks: another gateway may be ending them, too.
    """
    some = select(jobs.c.id).where(*where).order_by(*order).limit(ENDED_MAX)
    chosen = only(some.with_for_update(skip_locked=skip_locked), jobs.c.id)
    values = {"error": failure.error, "error_code": failure.code, "lease_until": None}
    ended = connection.execute(
        update(jobs)
        .where(chosen, UNENDED)
        .values(status=status, finished_at=now_s(), **values)
        .returning(*_OF_CHANGE)
    )
    changes = []
    for row in ended.all():
        count_line(connection, row.batch_id, status)
        before: Status = "running" if row.worker else "queued"
        changes.append(
            Change(row.id, row.task_type, row.queue, status, before, None, row.batch_id, None,
                   row.fence, owner=row.owner)
        )  # fmt: skip
    return changes


def first_params(connection: Connection, queue: str, owner: str) -> str | None:
    """Return the params of an owner's next job of a queue; None where none is queued."""
    wanted = select(jobs.c.params).where(jobs.c.queue == queue, jobs.c.owner == owner, QUEUED)
    first = wanted.order_by(jobs.c.priority, BATCH_LAST, jobs.c.id).limit(1)
    return connection.execute(first).scalar_one_or_none()
