"""Jobs, files and batches in `/openapi.json`: their routes and what they hold."""

from __future__ import annotations

from typing import Final

from forebay.api.batches import Batch, BatchList, File, FileDeleted, FileList, FileUpload, NewBatch
from forebay.api.jobs import Job, JobAccepted, JobList, JobState, JobSubmission
from forebay.gateway.openapi.operations import WITH_A_KEY, Operation, query
from forebay.gateway.openapi.schemas import TEXT
from forebay.jobs.batches import batch
from forebay.jobs.batches import file as files
from forebay.jobs.job import STATUSES

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
    Operation("post", "/jobs", "Submit a job", JobAccepted,
        (*_STORE, "job_queue_full", "forbidden", "model_not_found"), 202, JobSubmission),
    Operation("get", "/jobs", "Jobs, newest first", JobList, _STORE, query=_LIST_QUERY),
    Operation("get", "/jobs/{job_id}", "One job, with its result", Job, _ONE),
    Operation("delete", "/jobs/{job_id}", "Cancel a queued or running job", JobState,
        (*_ONE, "conflict")),
    Operation("post", "/jobs/{job_id}/retry", "Queue a failed or cancelled job again", JobState,
        (*_ONE, "conflict", "job_queue_full"), 202),
    Operation("get", "/jobs/{job_id}/events",
        "Follow a job until it has ended: one event per change, named by the status",
        codes=_ONE, media="text/event-stream"),
    Operation("get", "/v1/files", "The caller's files", FileList, _STORED,
        query=_FILES_QUERY),
    Operation("post", "/v1/files", "Store a file for a batch", File,
        (*_STORED, "file_too_large", "files_full", "shutting_down"),
        body=FileUpload, body_media="multipart/form-data"),
    Operation("get", "/v1/files/{file_id}", "One file", File, (*_STORED, "not_found")),
    Operation("delete", "/v1/files/{file_id}", "Delete a file", FileDeleted,
        (*_STORED, "not_found", "conflict")),
    Operation("get", "/v1/files/{file_id}/content", "The content of a file",
        codes=(*_STORED, "not_found"), media="application/octet-stream"),
    Operation("get", "/v1/batches",
        "The caller's batches, for an admin everybody's; ended ones too, newest first",
        BatchList, _STORED, query=(
            query("status", {"enum": list(batch.STATUSES)}, "Only those of this status."),
            query("model", TEXT, "Only those with a line that asks for this model."),
            _LIMIT, _AFTER)),
    Operation("post", "/v1/batches", "Run every request of a file", Batch,
        (*_STORED, "batches_full"), body=NewBatch),
    Operation("get", "/v1/batches/{batch_id}", "One batch", Batch, (*_STORED, "not_found")),
    Operation("post", "/v1/batches/{batch_id}/cancel", "Cancel a batch; results so far are kept",
        Batch, (*_STORED, "not_found", "conflict")),
)  # fmt: skip
