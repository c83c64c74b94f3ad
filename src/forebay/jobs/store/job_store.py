"""The job store: submissions, claims, outcomes and queries as SQL.

Every method returns a future, so that threads wait with `.result()` and coroutines with
`asyncio.wrap_future`: one implementation for both. Each claim has a *fence*, a number that grows:
whoever lost the job to a cancellation, a restart or an expired lease can no longer write to it. So
a job may run more than once, but has one result.

Leases expire by the database's clock. Listeners are called with every change once it is committed,
on the thread that wrote it; on PostgreSQL with the changes of other programs, too (see
`change_bus`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import and_, func, or_, select, update

from forebay.errors import KEY_REVOKED
from forebay.jobs.job import (
    TRANSITIONS,
    Added,
    Change,
    Claim,
    Failure,
    NewJob,
    Status,
    StoredJob,
    Verb,
    sources,
)
from forebay.jobs.store.change_bus import STAGE_CHARS_MAX, ChangeBus
from forebay.jobs.store.claiming import claim, owners_in_turn
from forebay.jobs.store.insert import DROPPED, add, depth, find_same, fingerprint, lock_depths
from forebay.jobs.store.recovery import end_some, first_params, recover
from forebay.jobs.store.rows import (
    COLUMNS,
    count_line,
    find,
    owner_depths,
    queue_depths,
    to_job,
)
from forebay.jobs.store.schema import QUEUED, RUNNING, jobs
from forebay.jobs.store.served import is_served, note_served
from forebay.storage.schema import now_s

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from concurrent.futures import Future

    from sqlalchemy import ColumnElement, Connection

    from forebay.jobs.store.recovery import Recovery
    from forebay.storage.database import Database

LIST_MAX = 1001
"""A page of 1,000, and one that says whether there are more."""


class JobStore:
    """Jobs in a database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.changes = ChangeBus(shared=not database.is_sqlite)
        self.in_force: Callable[[str], bool] = lambda owner: True
        """Whether an owner's key is: nothing of theirs starts while it is not. From any thread."""

    # -- submission

    def add(
        self, new: Sequence[NewJob], depth_max: int | None = None, *, owners: int = 0
    ) -> Future[list[Added]]:
        """Store jobs, each once (see `insert`); beyond `depth_max` queued, as failed.

        `owners` is how many keys share that depth (see `forebay.shares`).
        """

        def changes(added: list[Added]) -> list[Change]:
            return [
                Change(one.id, job.task_type, job.queue or job.task_type, one.status, None,
                       batch_id=job.batch_id, owner=job.owner)
                for job, one in zip(new, added, strict=True)
                if one.is_new
            ]  # fmt: skip

        return self._write(lambda connection: add(connection, new, depth_max, owners), changes)

    # -- running

    def claim(
        self,
        queue: str,
        worker: str,
        lease_s: float,
        limit: int = 1,
        *,
        owner: str | None = None,
        passed_over: Collection[str] = (),
    ) -> Future[list[StoredJob]]:
        """Claim the next jobs of a queue, in order, until the lease expires.

        With an owner, only theirs; else none of the owners that are passed over.
        """
        given = {"wanted": queue, "holder": worker, "lease_s": lease_s, "limit": limit}

        def may(owner: str) -> bool:
            return owner not in passed_over and self.in_force(owner)

        def work(connection: Connection) -> list[StoredJob]:
            return list(claim(connection, given, owner, may))

        def changes(taken: list[StoredJob]) -> list[Change]:
            return [
                _change_of(job, "queued", max(0.0, (job.started_at or job.created_at)
                                             - job.created_at))
                for job in taken
            ]  # fmt: skip

        return self._write(work, changes)

    def complete(self, job: StoredJob, result: str) -> Future[bool]:
        """Record a result; False when the job is no longer held by this claim."""
        values = {"result": _storable(result), "error": None, "error_code": None, "traceback": None}
        return self._end(job, "complete", values)

    def fail(self, job: StoredJob, failure: Failure) -> Future[bool]:
        """Record a failure; False when the job is no longer held by this claim."""
        values = {
            "error": _storable(failure.error),
            "error_code": failure.code,
            "traceback": _storable(failure.traceback),
            "result": _storable(failure.result),
        }
        return self._end(job, "fail", values)

    def give_back(self, job: StoredJob, *, tried: bool) -> Future[bool]:
        """Requeue a job; unless `tried`, the attempt is not counted."""
        attempt = job.attempt if tried else job.attempt - 1
        values = {"lease_until": None, "worker": "", "attempt": attempt}
        if not tried:  # else it had its turn
            values["started_at"] = None
        return self._move(job, "return", values)

    def cancel_held(self, job: StoredJob) -> Future[bool]:
        """Record that a job was cancelled while its holder ran it."""
        return self._end(job, "cancel", {})

    def stage(self, job: StoredJob, stage: str) -> Future[bool]:
        def work(connection: Connection) -> bool:
            held = _held(job)
            return (
                connection.execute(
                    update(jobs).where(*held).values(stage=_storable(stage))
                ).rowcount
                == 1
            )

        shown = stage[:STAGE_CHARS_MAX]
        change = Change(
            job.id, job.task_type, job.queue, "running", "running", shown, job.batch_id,
            owner=job.owner,
        )  # fmt: skip
        return self._write(work, lambda held: [change] if held else [])

    def heartbeat(self, worker: str, lease_s: float) -> Future[set[Claim]]:
        """Extend every lease of a worker; return what it still holds."""
        statement = (
            update(jobs)
            .where(jobs.c.worker == worker, RUNNING)
            .values(lease_until=now_s() + lease_s)
            .returning(jobs.c.id, jobs.c.fence)
        )
        return self.database.write(
            lambda connection: {(row.id, row.fence) for row in connection.execute(statement)}
        )

    def release(self, worker: str, claims: set[Claim]) -> Future[int]:
        """Requeue jobs that a worker holds without knowing it; return how many."""
        orphaned = or_(*(and_(jobs.c.id == id_, jobs.c.fence == fence) for id_, fence in claims))
        statement = (
            update(jobs)
            .where(jobs.c.worker == worker, RUNNING, orphaned)
            .values(status="queued", worker="", lease_until=None, attempt=jobs.c.attempt - 1)
            .returning(*COLUMNS)
        )
        future = self._write(
            lambda connection: [to_job(row) for row in connection.execute(statement)],
            lambda jobs: [_change_of(job, "running") for job in jobs],
        )
        return _mapped(future, len)

    # -- after an interruption

    def recover(self, how: Recovery) -> Future[int]:
        """Requeue or fail jobs whose worker is gone; return how many."""
        return _mapped(self._write(lambda connection: recover(connection, how), tuple), len)

    def fail_queue(self, queue: str, failure: Failure, *, owner: str | None = None) -> Future[int]:
        """Fail the next queued jobs of a queue that can never run; return how many.

        With an owner, only theirs: see `first_owner`.
        """
        where = [jobs.c.queue == queue, QUEUED]
        if owner is not None:
            where.append(jobs.c.owner == owner)
        order = (jobs.c.priority, jobs.c.id)
        ended = self._write(
            lambda connection: end_some(connection, where, failure, order=order), tuple
        )
        return _mapped(ended, len)

    def first_owner(self, queue: str) -> Future[str | None]:
        """Return whose turn is next in a queue, of those that may run; None where there is none."""

        def work(connection: Connection) -> str | None:
            turns = owners_in_turn(connection, queue)
            return next((owner for owner, _ in turns if self.in_force(owner)), None)

        return self.database.read(work)

    def first_params(self, queue: str, owner: str) -> Future[str | None]:
        """Return the params of the job that an owner's claim would get now, if any."""
        return self.database.read(lambda connection: first_params(connection, queue, owner))

    def note_served(self, queues: Sequence[str], gateway: str) -> Future[None]:
        """Write down that a gateway has the models of queues; PostgreSQL only, as `is_served`."""
        return self.database.write(lambda connection: note_served(connection, queues, gateway))

    def is_served(self, queue: str, but_by: str) -> Future[bool]:
        """Return whether a gateway other than this one was the last to have a queue's model."""
        return self.database.read(lambda connection: is_served(connection, queue, but_by))

    # -- for callers

    def cancel(self, job_id: int, owner: str | None = None) -> Future[StoredJob | None]:
        """Cancel a job for good; return it as it was before, or None where there is none.

        Its worker hears of it as a change; what it writes later is refused.
        """

        def work(connection: Connection) -> StoredJob | None:
            job = find(connection, job_id, owner, lock=True)
            if job is not None and job.status in sources("cancel"):
                values = {"status": "cancelled", "finished_at": now_s(), "lease_until": None}
                connection.execute(update(jobs).where(jobs.c.id == job_id).values(**values))
            return job

        def changes(job: StoredJob | None) -> list[Change]:
            if job is None or job.status not in sources("cancel"):
                return []
            return [_change_of(job, job.status, status="cancelled")]

        return self._write(work, changes)

    def cancel_of(self, owners: Collection[str]) -> Future[int]:
        """Cancel queued jobs of revoked keys, lines too, some at a time; return how many."""
        where, why = (QUEUED, jobs.c.owner.in_(owners)), Failure(KEY_REVOKED, "cancelled")
        ended = self._write(lambda connection: end_some(connection, where, why, "cancelled"), tuple)
        return _mapped(ended, len)

    def retry(
        self,
        job_id: int,
        owner: str | None,
        depth_max: int,
        *,
        owners: int = 0,
        webhook: bool = False,
    ) -> Future[Retried]:
        """Requeue a failed or cancelled job at its old place, with all its attempts.

        Its last start stays: it was a turn of its owner's.
        """

        def work(connection: Connection) -> Retried:
            job = find(connection, job_id, owner, lock=True)
            refused = _refused_retry(connection, job, depth_max, owners)
            if refused is not None:
                return refused
            values: dict[str, Any] = dict.fromkeys(
                ("error", "error_code", "traceback", "result", "stage", "finished_at",
                 "lease_until")
            )  # fmt: skip
            values |= {"status": "queued", "attempt": 0, "worker": ""}
            if webhook:
                values |= {"webhook_due": 0.0, "webhook_attempt": 0}
            connection.execute(update(jobs).where(jobs.c.id == job_id).values(**values))
            return Retried(job, done=True)

        def changes(retried: Retried) -> list[Change]:
            job = retried.job
            if job is None or not retried.done:
                return []
            return [Change(job.id, job.task_type, job.queue, "queued", job.status, owner=job.owner)]

        return self._write(work, changes)

    def get(self, job_id: int, owner: str | None = None) -> Future[StoredJob | None]:
        """Return a job; with an owner, only one of theirs. Lines of batches are not found."""
        return self.database.read(lambda connection: find(connection, job_id, owner, lock=False))

    def list(
        self,
        *,
        status: Status | None = None,
        task_type: str | None = None,
        model: str | None = None,
        owner: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> Future[list[StoredJob]]:
        """Return jobs, the newest first, without their params, results and tracebacks."""
        equal = {"status": status, "task_type": task_type, "model": model, "owner": owner}
        where = [jobs.c[name] == value for name, value in equal.items() if value is not None]
        if before is not None:
            where.append(jobs.c.id < before)
        return self._lines(where, min(limit, LIST_MAX))

    def look(self, job_id: int) -> Future[StoredJob | None]:
        """Return a job without what may be large, as `list` does."""
        found = self._lines([jobs.c.id == job_id], 1)
        return _mapped(found, lambda found: found[0] if found else None)

    def _lines(self, where: Sequence[ColumnElement[bool]], limit: int) -> Future[Any]:
        hidden = {"params": "", "result": None, "traceback": None}
        columns = [column for column in COLUMNS if column.name not in hidden]
        wanted = select(*columns).where(jobs.c.batch_id.is_(None), *where)
        wanted = wanted.order_by(jobs.c.id.desc()).limit(limit)
        return self.database.read(
            lambda connection: [
                StoredJob(**row._mapping, **hidden)  # type: ignore[arg-type] # the columns are its fields
                for row in connection.execute(wanted)
            ]
        )

    def depths(self) -> Future[dict[str, int]]:
        """Return how many jobs each queue holds; finished jobs cost nothing."""
        return self.database.read(queue_depths)

    def owner_depths(self) -> Future[dict[tuple[str, str], int]]:
        """Return how many jobs each queue holds of each owner."""
        return self.database.read(owner_depths)

    def counts(self) -> Future[dict[tuple[str, Status], int]]:
        """Return how many jobs there are by type and status, lines of batches aside.

        Walks an index over all of them.
        """
        wanted = (
            select(jobs.c.task_type, jobs.c.status, func.count())
            .where(jobs.c.batch_id.is_(None))
            .group_by(jobs.c.task_type, jobs.c.status)
        )
        return self.database.read(
            lambda connection: {(row[0], row[1]): int(row[2]) for row in connection.execute(wanted)}
        )

    # -- inside

    def _end(self, job: StoredJob, verb: Verb, values: dict[str, Any]) -> Future[bool]:
        return self._move(job, verb, {**values, "finished_at": now_s(), "lease_until": None})

    def _move(self, job: StoredJob, verb: Verb, values: dict[str, Any]) -> Future[bool]:
        """Apply a verb to a job, unless it is no longer held by this claim."""
        status = TRANSITIONS["running", verb]

        def work(connection: Connection) -> bool:
            moved = connection.execute(
                update(jobs).where(*_held(job)).values(status=status, **values)
            )
            if moved.rowcount == 1 and status != "queued":
                count_line(connection, job.batch_id, status)
            return moved.rowcount == 1

        change = Change(
            job.id, job.task_type, job.queue, status, "running", None, job.batch_id,
            owner=job.owner,
        )  # fmt: skip
        return self._write(work, lambda moved: [change] if moved else [])

    def _write(
        self, work: Callable[[Connection], Any], changes: Callable[[Any], Sequence[Change]]
    ) -> Future[Any]:
        """Do it in a transaction, and announce the changes once that is committed."""

        def noted(connection: Connection) -> Any:
            result = work(connection)
            self.changes.notify(connection, changes(result))
            return result

        def done(done: Future[Any]) -> None:
            if not done.cancelled() and done.exception() is None:
                self.changes.announce(changes(done.result()))

        future = self.database.write(noted)
        future.add_done_callback(done)
        return future


class Retried(msgspec.Struct, frozen=True):
    """The result of a retry."""

    job: StoredJob | None
    """As it was before; None where there is none."""
    done: bool = False
    twin: int | None = None
    """The id of the same job, queued or running already."""
    full: str = ""
    """Why there is no place in the queue of its type."""
    dropped: bool = False
    """Whether its params were too large to be kept when it was refused."""


def _held(job: StoredJob) -> tuple[Any, ...]:
    return (jobs.c.id == job.id, RUNNING, jobs.c.fence == job.fence)


def _refused_retry(
    connection: Connection, job: StoredJob | None, depth_max: int, owners: int
) -> Retried | None:
    """Return why a job cannot be requeued; None when it can be."""
    if job is None or job.status not in sources("retry"):
        return Retried(job)
    if job.error_code == "job_queue_full" and job.params == DROPPED:
        return Retried(job, dropped=True)
    mark = fingerprint(NewJob(job.task_type, job.params, job.job_id, owner=job.owner))
    same = find_same(connection, job.owner, mark, job.idempotency_key)
    if same is not None:
        return Retried(job, twin=same.id)
    lock_depths(connection, {job.task_type})
    full = depth(connection, job.task_type, depth_max, owners).refusal(job.owner, owners)
    return Retried(job, full=full) if full else None


def _change_of(
    job: StoredJob, before: Status, waited_s: float | None = None, status: Status | None = None
) -> Change:
    now = status or job.status
    return Change(
        job.id, job.task_type, job.queue, now, before, None, job.batch_id, waited_s, job.fence,
        owner=job.owner,
    )  # fmt: skip


def _storable(text: str | None) -> str | None:
    """Return text that every database takes: no NUL, no lone surrogate.

    It comes from handlers and nodes, and must not cost the outcome.
    """
    if text is None:
        return None
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _mapped(future: Future[Any], turn: Callable[[Any], Any]) -> Future[Any]:
    """Return a future of what `turn` makes of the result."""
    mapped: Future[Any] = type(future)()

    def done(done: Future[Any]) -> None:
        if not mapped.set_running_or_notify_cancel():
            return
        error = done.exception()
        if error is not None:
            mapped.set_exception(error)
        else:
            mapped.set_result(turn(done.result()))

    future.add_done_callback(done)
    return mapped
