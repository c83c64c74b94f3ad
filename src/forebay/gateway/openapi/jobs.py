"""The jobs of `/openapi.json`: their routes and what they hold."""

from __future__ import annotations

from typing import Final

from forebay.gateway.openapi.errors import WITH_A_KEY
from forebay.gateway.openapi.operations import Operation, query
from forebay.gateway.openapi.schemas import (
    BOOLEAN,
    COUNT,
    SECONDS,
    SECONDS_OR_NULL,
    TEXT,
    TEXT_OR_NULL,
    Schema,
    closed,
    listed,
    record,
    reference,
    said,
)
from forebay.jobs.job import PRIORITIES, STATUSES

_STORE: Final = (*WITH_A_KEY, "store_unavailable", "shutting_down")
_ONE: Final = (*_STORE, "not_found")

_LIST_QUERY: Final = (
    query("status", {"enum": list(STATUSES)}),
    query("type", TEXT),
    query("before", {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}),
    query("limit", {"type": "integer", "minimum": 1, "maximum": 1000}),
)

OPERATIONS: Final = (
    Operation("post", "/jobs", "Submit a job", "JobAccepted",
        (*_STORE, "job_queue_full", "forbidden", "model_not_found"), 202, "JobSubmission"),
    Operation("get", "/jobs", "Jobs, newest first", "JobList", _STORE, query=_LIST_QUERY),
    Operation("get", "/jobs/{job_id}", "One job, with its result", "Job", _ONE),
    Operation("delete", "/jobs/{job_id}", "Cancel a queued or running job", "JobState",
        (*_ONE, "conflict")),
    Operation("post", "/jobs/{job_id}/retry", "Queue a failed or cancelled job again", "JobState",
        (*_ONE, "conflict", "job_queue_full"), 202),
    Operation("get", "/jobs/{job_id}/events",
        "Follow a job until it has ended: one event per change, named by the status",
        codes=_ONE, media="text/event-stream"),
)  # fmt: skip

_ID: Final = said("The job's id.", COUNT)
_STATUS: Final = {"enum": list(STATUSES)}
_LINE: Final[dict[str, Schema]] = {
    "id": _ID,
    "type": TEXT,
    "status": _STATUS,
    "job_id": said("The caller's own number for what the job is about.", {"type": "integer"}),
    "model": TEXT_OR_NULL,
    "priority": {"enum": list(PRIORITIES)},
    "idempotency_key": TEXT_OR_NULL,
    "stage": said("How far the handler says it is.", TEXT_OR_NULL),
    "attempt": COUNT,
    "error": TEXT_OR_NULL,
    "error_code": TEXT_OR_NULL,
    "created_at": said("Seconds since 1970.", SECONDS),
    "started_at": SECONDS_OR_NULL,
    "finished_at": SECONDS_OR_NULL,
}

SCHEMAS: Final[dict[str, Schema]] = {
    "JobSubmission": closed({
        "type": said(
            "`chat`, `completion`, `embedding`, `response`, or one of the operator's own.",
            {"type": "string", "minLength": 1, "maxLength": 256}),
        "params?": said("For the built-in types the body of the request.", {}),
        "job_id?": {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
        "model?": {"type": ["string", "null"], "minLength": 1, "maxLength": 256},
        "priority?": {"enum": [*PRIORITIES, None]},
        "idempotency_key?": {"type": ["string", "null"], "minLength": 1, "maxLength": 256},
    }),
    "JobAccepted": record({
        "id": _ID,
        "status": _STATUS,
        "is_new": said("False when the same work was queued or running already.",
            BOOLEAN),
    }),
    "JobState": record({"id": _ID, "status": _STATUS}),
    "JobLine": record(_LINE),
    "JobList": record({"data": listed(reference("JobLine"))}),
    "Job": record({
        **_LINE,
        "params": {},
        "result": said("What the handler returned; for the built-in types the node's answer.", {}),
        "traceback": TEXT_OR_NULL,
    }),
}  # fmt: skip
