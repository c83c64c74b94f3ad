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
    Operation(path="/jobs", method="post", summary="Take in a job", tag="jobs",
        answer="JobAccepted", body="JobSubmission", status=202,
        codes=(*_STORE, "job_queue_full", "forbidden", "model_not_found")),
    Operation(path="/jobs", method="get", summary="Jobs, the newest first", tag="jobs",
        answer="JobList", codes=_STORE, query=_LIST_QUERY),
    Operation(path="/jobs/{job_id}", method="get", summary="One job, with its result",
        tag="jobs", answer="Job", codes=_ONE),
    Operation(path="/jobs/{job_id}", method="delete",
        summary="Cancel a job for real, queued or running", tag="jobs", answer="JobState",
        codes=(*_ONE, "conflict")),
    Operation(path="/jobs/{job_id}/retry", method="post",
        summary="Queue a failed or cancelled job again", tag="jobs", answer="JobState",
        status=202, codes=(*_ONE, "conflict", "job_queue_full")),
    Operation(path="/jobs/{job_id}/events", method="get",
        summary="Follow a job until it has ended: one event per change, named by the status",
        tag="jobs", media="text/event-stream", codes=_ONE),
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
