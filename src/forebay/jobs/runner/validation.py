"""Validation of submitted jobs, field by field, before they are stored."""

from __future__ import annotations

import logging
from typing import Any

from forebay.errors import NotAllowed
from forebay.jobs.job import PRIORITIES, Added, NewJob
from forebay.jobs.runner.json_values import PARAMS_BYTES_MAX, encode

logger = logging.getLogger("forebay.jobs")

JOB_ID_MAX = 2**63 - 1
KEY_CHARS_MAX = 500


def new_job(task_type: str, params: Any, job_id: int, priority: str, key: str | None) -> NewJob:
    """Return what is stored; raises NotAllowed, naming the field that is at fault."""
    if isinstance(job_id, bool) or not isinstance(job_id, int) or abs(job_id) > JOB_ID_MAX:
        raise NotAllowed(f"job_id is a whole number of 64 bits, not {job_id!r}")
    if priority not in PRIORITIES:
        raise NotAllowed(f"priority {priority!r} is none of {', '.join(PRIORITIES)}")
    if key is not None and not (
        isinstance(key, str) and 0 < len(key) <= KEY_CHARS_MAX and key.isprintable()
    ):
        raise NotAllowed(f"idempotency_key is 1 to {KEY_CHARS_MAX} printable characters")
    return NewJob(
        task_type,
        encode(params, "params", PARAMS_BYTES_MAX),
        job_id,
        priority=PRIORITIES[priority],
        idempotency_key=key,
    )


def warn_if_full(added: Added, task_type: str, depth_max: int) -> None:
    """Log a job that was stored as failed because its type's queue is full."""
    if added.is_new and added.status == "failed":
        logger.warning(
            "the queue of task type %r is full (%d): job %d stored as failed",
            task_type,
            depth_max,
            added.id,
            extra={"action": "queue_full", "job": added.id},
        )
