"""Jobs, files and batches in `/openapi.json`: their routes and what they hold."""

from __future__ import annotations

from typing import Final

from forebay.gateway.openapi.operations import WITH_A_KEY, Operation, query
from forebay.gateway.openapi.schemas import (
    BOOLEAN,
    COUNT,
    INTEGER_OR_NULL,
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
from forebay.jobs.batches import batch
from forebay.jobs.batches import file as files
from forebay.jobs.builtin import TYPES
from forebay.jobs.job import PRIORITIES, STATUSES

_STORED: Final = (*WITH_A_KEY, "store_unavailable")
_STORE: Final = (*_STORED, "shutting_down")
_ONE: Final = (*_STORE, "not_found")

_LIST_QUERY: Final = (
    query("status", {"enum": list(STATUSES)}),
    query("type", TEXT),
    query("model", TEXT),
    query("before", {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}),
    query("limit", {"type": "integer", "minimum": 1, "maximum": 1000}),
)
_AFTER: Final = query("after", TEXT, "The id of the last one seen.")
_LIMIT: Final = query(
    "limit",
    {"type": "integer", "minimum": 1, "maximum": batch.LIST_MAX, "default": 20},
    f"Most to list: up to {batch.LIST_MAX}.",
)
_FILES_QUERY: Final = (
    query(
        "limit",
        {"type": "integer", "minimum": 1, "maximum": files.LIST_MAX, "default": files.LIST_MAX},
        f"Most to list: up to {files.LIST_MAX}.",
    ),
    _AFTER,
    query("order", {"enum": ["asc", "desc"], "default": "desc"}, "By age."),
    query("purpose", TEXT, "Only files of this purpose."),
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
    Operation("get", "/v1/files", "The caller's files", "FileList", _STORED,
        query=_FILES_QUERY),
    Operation("post", "/v1/files", "Store a file for a batch", "File",
        (*_STORED, "file_too_large", "files_full", "shutting_down"),
        body="FileUpload", body_media="multipart/form-data"),
    Operation("get", "/v1/files/{file_id}", "One file", "File", (*_STORED, "not_found")),
    Operation("delete", "/v1/files/{file_id}", "Delete a file", "FileDeleted",
        (*_STORED, "not_found", "conflict")),
    Operation("get", "/v1/files/{file_id}/content", "The content of a file",
        codes=(*_STORED, "not_found"), media="application/octet-stream"),
    Operation("get", "/v1/batches",
        "The caller's batches, for an admin everybody's; ended ones too, newest first",
        "BatchList", _STORED, query=(
            query("status", {"enum": list(batch.STATUSES)}, "Only those of this status."),
            query("model", TEXT, "Only those with a line that asks for this model."),
            _LIMIT, _AFTER)),
    Operation("post", "/v1/batches", "Run every request of a file", "Batch",
        (*_STORED, "batches_full"), body="NewBatch"),
    Operation("get", "/v1/batches/{batch_id}", "One batch", "Batch", (*_STORED, "not_found")),
    Operation("post", "/v1/batches/{batch_id}/cancel", "Cancel a batch; results so far are kept",
        "Batch", (*_STORED, "not_found", "conflict")),
)  # fmt: skip

_ID: Final = said("The job's id.", COUNT)
_OWNER: Final = said("The name of the key that it belongs to; for admins only.", TEXT)
_STATUS: Final = {"enum": list(STATUSES)}
_LINE: Final[dict[str, Schema]] = {
    "id": _ID,
    "type": TEXT,
    "status": _STATUS,
    "job_id": said("The caller's own number for what the job is about.", {"type": "integer"}),
    "model": TEXT_OR_NULL,
    "priority": {"enum": list(PRIORITIES)},
    "idempotency_key": TEXT_OR_NULL,
    "stage": said(
        "How far the handler says it is; of a queued job, that it waits for the rate of its key.",
        TEXT_OR_NULL,
    ),
    "attempt": COUNT,
    "error": TEXT_OR_NULL,
    "error_code": TEXT_OR_NULL,
    "created_at": said("Seconds since 1970.", SECONDS),
    "started_at": SECONDS_OR_NULL,
    "finished_at": SECONDS_OR_NULL,
    "owner?": _OWNER,
}

_TIME: Final[Schema] = {"type": ["integer", "null"], "minimum": 0}
_FILE_ID: Final[Schema] = {"type": "string", "pattern": "^file-[0-9a-f]{24}$"}
_METADATA: Final[Schema] = {
    "type": ["object", "null"],
    "maxProperties": batch.METADATA_MAX,
    "propertyNames": {"maxLength": batch.METADATA_KEY_MAX},
    "additionalProperties": {"type": "string", "maxLength": batch.METADATA_VALUE_MAX},
}
_STATUSES: Final = list(batch.STATUSES)

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
    "JobList": record({
        "data": listed(reference("JobLine")),
        "has_more?": said("There are older ones: ask with `before`, the last id.", {"const": True}),
    }),
    "Job": record({
        **_LINE,
        "params": {},
        "result": said("What the handler returned; for the built-in types the node's answer.", {}),
        "traceback": TEXT_OR_NULL,
    }),
    "FileUpload": closed({
        "purpose": {"const": "batch"},
        "file": said("One request in JSON on each line.",
            {"type": "string", "format": "binary"}),
    }),
    "File": record({
        "id": _FILE_ID,
        "object": {"const": "file"},
        "bytes": COUNT,
        "created_at": COUNT,
        "expires_at": {"type": "null"},
        "filename": TEXT,
        "purpose": {"enum": ["batch", "batch_output"]},
        "status": {"const": "processed"},
        "status_details": {"type": "null"},
    }),
    "FileDeleted": record(
        {"id": _FILE_ID, "object": {"const": "file"}, "deleted": {"const": True}}
    ),
    "NewBatch": closed({
        "input_file_id": said("An uploaded file of purpose `batch`.", _FILE_ID),
        "endpoint": {"enum": list(TYPES)},
        "completion_window": said(
            "`24h`, or any number of hours or days up to `14d`.",
            {"type": "string", "pattern": "^[1-9][0-9]{0,3}[hd]$"}),
        "metadata?": _METADATA,
    }),
    "Batch": record({
        "id": {"type": "string", "pattern": "^batch_[0-9a-f]{24}$"},
        "object": {"const": "batch"},
        "endpoint": {"enum": list(TYPES)},
        "errors": {
            "anyOf": [
                {"type": "null"},
                record({"object": {"const": "list"}, "data": listed(
                    record({"code": TEXT, "message": TEXT, "param": TEXT_OR_NULL,
                        "line": INTEGER_OR_NULL})
                )}),
            ],
            "description": "What is wrong with the input, of a batch that `failed`.",
        },
        "input_file_id": _FILE_ID,
        "completion_window": TEXT,
        "status": {"enum": _STATUSES},
        "output_file_id": said("The answers; null while there are none.", TEXT_OR_NULL),
        "error_file_id": said("The failures; null while there are none.", TEXT_OR_NULL),
        "created_at": COUNT,
        "in_progress_at": _TIME,
        "expires_at": COUNT,
        "finalizing_at": _TIME,
        "completed_at": _TIME,
        "failed_at": _TIME,
        "expired_at": _TIME,
        "cancelling_at": _TIME,
        "cancelled_at": _TIME,
        "request_counts": said(
            "`failed` counts what is in the error file, cancelled and expired lines included.",
            record({"total": COUNT, "completed": COUNT, "failed": COUNT}),
        ),
        "models": said("Those that its lines ask for, as far as they have been read. Not in "
            "OpenAI's API.", listed(TEXT)),
        "metadata": _METADATA,
        "owner?": _OWNER,
    }),
    **{
        f"{name}List": record({
            "object": {"const": "list"},
            "data": listed(reference(name)),
            "first_id": TEXT_OR_NULL,
            "last_id": TEXT_OR_NULL,
            "has_more": BOOLEAN,
        })
        for name in ("File", "Batch")
    },
}  # fmt: skip
