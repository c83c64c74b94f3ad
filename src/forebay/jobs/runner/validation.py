"""Validation of submitted jobs, and of what handlers return: strict and bounded JSON.

A value decodes to what was encoded, or it is refused. `msgspec` would silently turn a date into a
string and NaN into null; so this is the standard library's encoder with its extensions turned off,
and a walk that names the field at fault.
"""

from __future__ import annotations

import json
import logging
import math
from typing import Any

from forebay.errors import NotAllowed
from forebay.jobs.job import PRIORITIES, Added, NewJob

logger = logging.getLogger("forebay.jobs")

JOB_ID_MAX = 2**63 - 1
KEY_CHARS_MAX = 500
PARAMS_BYTES_MAX = 1 << 20
"""A job is what to do, not the data to do it with: 1 MiB holds a long conversation."""
RESULT_BYTES_MAX = 16 << 20
ERROR_CHARS_MAX = 10_000
TRACEBACK_CHARS_MAX = 100_000
STAGE_CHARS_MAX = 1_000


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
            "the queue of task type %r is full (%s): job %d stored as failed",
            task_type,
            added.refusal or depth_max,
            added.id,
            extra={"action": "queue_full", "job": added.id},
        )


def encode(value: Any, field: str, bytes_max: int) -> str:
    """Return JSON with sorted keys, so that equal values are the same work.

    Raises NotAllowed, naming the field that is not JSON or how large it all is.

    >>> encode({"b": 1, "a": [None]}, "params", 100)
    '{"a":[null],"b":1}'
    """
    try:
        text = json.dumps(
            value, allow_nan=False, sort_keys=True, ensure_ascii=False, separators=(",", ":")
        )
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise NotAllowed(_fault(value, field) or f"{field} is not JSON: {error}") from error
    if size > bytes_max:
        raise NotAllowed(f"{field} has {size} bytes of JSON, {bytes_max} are allowed")
    return text


def stored(text: str, chars_max: int) -> str:
    """Return a text as any database takes it: bounded, without NUL and half characters.

    >>> stored("a" + chr(0) + chr(0xD800), 100), stored("abcdef", 4)
    ('a\\\\x00\\\\ud800', 'abc…')
    """
    if len(text) > chars_max:
        text = text[: chars_max - 1] + "…"
    text = text.replace("\x00", "\\x00")
    return text.encode("utf-8", "backslashreplace").decode()


def _fault(value: Any, path: str, depth: int = 0) -> str | None:
    """Say what is not JSON, and where.

    >>> _fault({"when": [1, {2}]}, "params")
    'params.when[1] is not JSON: a set'
    """
    if depth > 100:
        return f"{path} is not JSON: nested too deeply, or contains itself"
    if isinstance(value, dict):
        return _fault_inside({_key(path, key): one for key, one in value.items()}, depth)
    if isinstance(value, list | tuple):
        return _fault_inside({f"{path}[{n}]": one for n, one in enumerate(value)}, depth)
    what = _leaf_fault(value)
    return None if what is None else f"{path} is not JSON: {what}"


def _leaf_fault(value: Any) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str) and value.encode("utf-8", "replace").decode() != value:
        return "half a character"
    if value is None or isinstance(value, str | int | float):
        return None
    return f"a {type(value).__name__}"


def _key(path: str, key: object) -> str:
    return f"{path}.{key}" if isinstance(key, str) else f"{path}[{key!r}]"


def _fault_inside(parts: dict[str, Any], depth: int) -> str | None:
    found = (_fault(one, path, depth + 1) for path, one in parts.items())
    return next((fault for fault in found if fault is not None), None)
