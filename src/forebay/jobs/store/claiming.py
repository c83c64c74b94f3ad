"""The statements that claim jobs: whose, and in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Select, bindparam, func, select, update

from forebay.jobs.store.rows import COLUMNS
from forebay.jobs.store.schema import QUEUED, jobs
from forebay.storage.schema import now_s, only

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy.sql.dml import ReturningUpdate

_WAITING: ColumnElement[bool] = (jobs.c.queue == bindparam("wanted")) & QUEUED
_IN_ORDER = (
    select(jobs.c.id)
    .order_by(jobs.c.priority, jobs.c.id)
    .with_for_update(skip_locked=True)
)  # fmt: skip


def _next_but_of() -> Select[tuple[int]]:
    """Choose among the first job of every owner who is not passed over.

    Owners are found by jumping through the index from one to the next: what is passed over may be
    100,000 lines of a batch, and is not walked.
    """
    first = select(func.min(jobs.c.owner).label("owner")).where(_WAITING)
    owners = first.cte("owners", recursive=True)
    later = select(func.min(jobs.c.owner)).where(_WAITING, jobs.c.owner > owners.c.owner)
    known = owners.c.owner.is_not(None)
    owners = owners.union_all(select(later.correlate(owners).scalar_subquery()).where(known))
    theirs = (
        _IN_ORDER.where(_WAITING, jobs.c.owner == owners.c.owner)
        .limit(1).correlate(owners).scalar_subquery()
    )  # fmt: skip
    wanted = owners.c.owner.not_in(bindparam("passed_over", expanding=True))
    return _IN_ORDER.where(jobs.c.id.in_(select(theirs).where(wanted)))


def _claim(wanted: Select[tuple[int]]) -> ReturningUpdate[Any]:
    return (
        update(jobs)
        .where(only(wanted.limit(bindparam("limit")), jobs.c.id))
        .values(
            status="running",
            attempt=jobs.c.attempt + 1,
            fence=jobs.c.fence + 1,
            worker=bindparam("holder"),
            lease_until=now_s() + bindparam("lease_s"),
            started_at=now_s(),
            stage=None,
        )
        .returning(*COLUMNS)
    )


_OF_ANY = _claim(_IN_ORDER.where(_WAITING))
_OF_OWNER = _claim(_IN_ORDER.where(_WAITING, jobs.c.owner == bindparam("whose")))
_BUT_OF = _claim(_next_but_of())


def claim_statement(
    owner: str | None, passed_over: Collection[str]
) -> tuple[ReturningUpdate[Any], dict[str, Any]]:
    """Return the statement, and its parameters about owners.

    Where some are passed over, it claims one job of each of the others at most.
    """
    if owner is not None:
        return _OF_OWNER, {"whose": owner}
    if passed_over:
        return _BUT_OF, {"passed_over": list(passed_over)}
    return _OF_ANY, {}
