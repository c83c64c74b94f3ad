"""Jobs as callers see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Raw

from forebay.jobs.job import PRIORITIES

if TYPE_CHECKING:
    from forebay.jobs.job import Job

_PRIORITIES = {number: name for name, number in PRIORITIES.items()}


def job_line(job: Job) -> dict[str, object]:
    """Return what a list shows: everything that is small."""
    return {
        "id": job.id,
        "type": job.task_type,
        "status": job.status,
        "job_id": job.job_id,
        "model": job.model or None,
        "priority": _PRIORITIES.get(job.priority, "normal"),
        "idempotency_key": job.idempotency_key,
        "stage": job.stage,
        "attempt": job.attempt,
        "error": job.error,
        "error_code": job.error_code,
        "created_at": _seconds(job.created_at),
        "started_at": _seconds(job.started_at),
        "finished_at": _seconds(job.finished_at),
    }


def job_detail(job: Job) -> dict[str, object]:
    """Return all that there is to know, the result included."""
    return {
        **job_line(job),
        "params": Raw(job.params.encode()),
        "result": None if job.result is None else Raw(job.result.encode()),
        "traceback": job.traceback,
    }


def _seconds(time: float | None) -> float | None:
    """Return seconds since 1970, to the millisecond."""
    return None if time is None else round(time, 3)
