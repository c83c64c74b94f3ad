"""Files and batches in `/openapi.json`: the routes, what they are asked and what they answer."""

from __future__ import annotations

from typing import Final

from forebay.gateway.openapi.operations import Operation, query
from forebay.gateway.openapi.schemas import (
    BOOLEAN,
    COUNT,
    INTEGER_OR_NULL,
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

_WITH_A_KEY: Final = ("unauthorized", "store_unavailable")
_TIME: Final[Schema] = {"type": ["integer", "null"], "minimum": 0}
_FILE_ID: Final[Schema] = {"type": "string", "pattern": "^file-[0-9a-f]{24}$"}
_METADATA: Final[Schema] = {
    "type": ["object", "null"],
    "maxProperties": batch.METADATA_MAX,
    "propertyNames": {"maxLength": batch.METADATA_KEY_MAX},
    "additionalProperties": {"type": "string", "maxLength": batch.METADATA_VALUE_MAX},
}
_STATUSES: Final = [
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling",
    "cancelled",
]  # fmt: skip

SCHEMAS: Final[dict[str, Schema]] = {
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
        "metadata": _METADATA,
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
    Operation("get", "/v1/files", "The caller's files", "FileList", _WITH_A_KEY,
        query=_FILES_QUERY),
    Operation("post", "/v1/files", "Store a file for a batch", "File",
        (*_WITH_A_KEY, "file_too_large", "files_full", "shutting_down"),
        body="FileUpload", body_media="multipart/form-data"),
    Operation("get", "/v1/files/{file_id}", "One file", "File", (*_WITH_A_KEY, "not_found")),
    Operation("delete", "/v1/files/{file_id}", "Delete a file", "FileDeleted",
        (*_WITH_A_KEY, "not_found", "conflict")),
    Operation("get", "/v1/files/{file_id}/content", "The content of a file",
        codes=(*_WITH_A_KEY, "not_found"), media="application/octet-stream"),
    Operation("get", "/v1/batches", "The caller's batches, newest first", "BatchList",
        _WITH_A_KEY, query=(_LIMIT, _AFTER)),
    Operation("post", "/v1/batches", "Run every request of a file", "Batch",
        (*_WITH_A_KEY, "batches_full"), body="NewBatch"),
    Operation("get", "/v1/batches/{batch_id}", "One batch", "Batch", (*_WITH_A_KEY, "not_found")),
    Operation("post", "/v1/batches/{batch_id}/cancel", "Cancel a batch; results so far are kept",
        "Batch", (*_WITH_A_KEY, "not_found", "conflict")),
)  # fmt: skip
