"""The statements that claim jobs: whose, and in which order.

The lowest priority number first, then turns: the owner whose last start in that queue and priority
lies longest ago, one that never had any before all others. So it is the rows that remember whose
turn it is, over restarts and for many workers. Of one owner's the order is that of the ids, lines
of batches after all other jobs, batch after batch.

Owners are found by jumping through the index from one to the next: 100,000 queued lines of one of
them are not walked, nor are ended jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Float, bindparam, case, func, select, update

from forebay.jobs.store.rows import COLUMNS, to_job
from forebay.jobs.store.schema import BATCH_LAST, QUEUED, jobs
from forebay.storage.schema import now_s, only

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection, Select

    from forebay.jobs.job import StoredJob

TICK_S = 1e-6
"""By how much starts that the database's clock does not tell apart are: SQLite's ticks every ms."""
_WAITING: ColumnElement[bool] = (jobs.c.queue == bindparam("wanted")) & QUEUED
IN_ORDER = (jobs.c.priority, BATCH_LAST, jobs.c.id)
"""Of one owner's jobs."""


def _turns() -> Select[tuple[str, int, float | None]]:
    """Select the owners with something queued, whose turn it is first."""
    first = select(func.min(jobs.c.owner).label("owner")).where(_WAITING)
    found = first.cte("owners", recursive=True)
    later = select(func.min(jobs.c.owner)).where(_WAITING, jobs.c.owner > found.c.owner)
    known = found.c.owner.is_not(None)
    found = found.union_all(select(later.correlate(found).scalar_subquery()).where(known))
    theirs = jobs.c.owner == found.c.owner

    def of_next(column: ColumnElement[Any]) -> ColumnElement[Any]:
        head = select(column).where(_WAITING, theirs).order_by(*IN_ORDER).limit(1)
        return head.correlate(found).scalar_subquery()

    heads = (
        select(found.c.owner, of_next(jobs.c.priority).label("priority"),
               of_next(jobs.c.id).label("id"))
        .where(found.c.owner.is_not(None)).cte("heads")
    )  # fmt: skip
    last = (
        select(func.max(jobs.c.started_at))
        .where(jobs.c.queue == bindparam("wanted"), jobs.c.owner == heads.c.owner,
               jobs.c.priority == heads.c.priority, jobs.c.started_at.is_not(None))
        .correlate(heads).scalar_subquery().label("last")
    )  # fmt: skip
    ordered = select(heads.c.owner, heads.c.priority, last)
    return ordered.order_by(heads.c.priority, last.asc().nulls_first(), heads.c.id)


_TURNS = _turns()
_FIRST_AND_LAST = select(
    *(select(of(jobs.c.owner)).where(_WAITING).scalar_subquery() for of in (func.min, func.max))
)
_AFTER: ColumnElement[float] = bindparam("after", type_=Float)
_OF_OWNER = (
    select(jobs.c.id)
    .where(_WAITING, jobs.c.owner == bindparam("whose"))
    .order_by(*IN_ORDER)
    .limit(bindparam("limit"))
    .with_for_update(skip_locked=True)
)
_CLAIM = (
    update(jobs)
    .where(only(_OF_OWNER, jobs.c.id))
    .values(
        status="running",
        attempt=jobs.c.attempt + 1,
        fence=jobs.c.fence + 1,
        worker=bindparam("holder"),
        lease_until=now_s() + bindparam("lease_s"),
        started_at=case((now_s() > _AFTER, now_s()), else_=_AFTER + TICK_S),
        stage=None,
    )
    .returning(*COLUMNS)
)


def owners_in_turn(connection: Connection, queue: str) -> list[tuple[str, float]]:
    """Return the owners with something queued, whose turn it is first, and their last starts."""
    first, last = connection.execute(_FIRST_AND_LAST, {"wanted": queue}).one()
    if first == last:  # mostly: nobody to take turns with
        return [] if first is None else [(first, 0.0)]
    return [(row.owner, row.last or 0.0) for row in connection.execute(_TURNS, {"wanted": queue})]


def claim(
    connection: Connection, given: dict[str, Any], whose: str | None, may: Callable[[str], bool]
) -> Iterator[StoredJob]:
    """Claim up to `given["limit"]` jobs, in order; only `whose`, and of owners that may run."""
    left = given["limit"]
    while left > 0:
        turns = owners_in_turn(connection, given["wanted"]) if whose is None else [(whose, 0.0)]
        after = max((last for _, last in turns), default=0.0)
        mine = [owner for owner, _ in turns if may(owner)]
        for owner in mine:  # the next one's, where other workers have all of the first
            some = {"whose": owner, "after": after, "limit": 1 if len(mine) > 1 else left}
            taken = [to_job(row) for row in connection.execute(_CLAIM, given | some)]
            if taken:
                break
        else:
            return
        yield from sorted(taken, key=lambda job: (job.priority, job.batch_id or 0, job.id))
        left = left - len(taken) if len(mine) > 1 else 0
