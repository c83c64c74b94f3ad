"""Files, and batches of requests in them, as OpenAI has them."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, TypedDict, get_args

from forebay.api.fields import (
    Always,
    Count,
    RequestBody,
    ResponseBody,
    Sometimes,
    one_of,
    unchecked,
)

BatchStatus: TypeAlias = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling",
    "cancelled",
]  # fmt: skip
BATCH_ENDED = ("completed", "failed", "expired", "cancelled")
METADATA_MAX = 16
METADATA_KEY_MAX, METADATA_VALUE_MAX = 64, 512

_FileId: TypeAlias = Annotated[str, unchecked(pattern="^file-[0-9a-f]{24}$")]
_Endpoint: TypeAlias = Annotated[
    str,
    one_of("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"),
]
_Metadata: TypeAlias = Annotated[
    dict[str, Annotated[str, unchecked(maxLength=METADATA_VALUE_MAX)]],
    unchecked(maxProperties=METADATA_MAX, propertyNames={"maxLength": METADATA_KEY_MAX}),
]


class FileUpload(RequestBody, forbid_unknown_fields=True):
    """The form that uploads a file."""

    purpose: Literal["batch"]
    file: Annotated[str, unchecked(format="binary")]
    """One request in JSON on each line."""


class File(ResponseBody, frozen=True):
    """A file."""

    id: _FileId
    object: Literal["file"] = "file"
    bytes: Count = 0
    created_at: Count = 0
    expires_at: None = None
    filename: str = ""
    purpose: Annotated[str, one_of("batch", "batch_output")] = "batch"
    status: Literal["processed"] = "processed"
    status_details: None = None


class FileDeleted(ResponseBody, frozen=True):
    """What the deletion of a file answers."""

    id: _FileId
    object: Literal["file"] = "file"
    deleted: Literal[True] = True


class NewBatch(RequestBody, forbid_unknown_fields=True):
    """The body of `POST /v1/batches`; a field that would be ignored is an error instead."""

    input_file_id: _FileId
    """An uploaded file of purpose `batch`."""
    endpoint: _Endpoint
    completion_window: Annotated[str, unchecked(pattern="^[1-9][0-9]{0,3}[hd]$")]
    """`24h`, or any number of hours or days up to `14d`."""
    metadata: _Metadata | None = None


class BatchFault(TypedDict):
    """What is wrong with one line of an input."""

    code: str
    message: str
    param: str | None
    line: int | None


class BatchFaults(TypedDict):
    """What is wrong with an input."""

    object: Literal["list"]
    data: list[BatchFault]


class RequestCounts(ResponseBody, frozen=True):
    """How many lines of a batch are done."""

    total: Count = 0
    completed: Count = 0
    failed: Count = 0


class Batch(ResponseBody, frozen=True):
    """A file of requests at the gateway."""

    id: Annotated[str, unchecked(pattern="^batch_[0-9a-f]{24}$")]
    status: Annotated[str, one_of(*get_args(BatchStatus))]
    object: Literal["batch"] = "batch"
    endpoint: _Endpoint = ""
    errors: BatchFaults | None = None
    """What is wrong with the input, of a batch that `failed`."""
    input_file_id: _FileId = ""
    completion_window: str = ""
    output_file_id: str | None = None
    """The answers; null while there are none."""
    error_file_id: str | None = None
    """The failures; null while there are none."""
    created_at: Always[Count] = None
    in_progress_at: Count | None = None
    expires_at: Always[Count] = None
    finalizing_at: Count | None = None
    completed_at: Count | None = None
    failed_at: Count | None = None
    expired_at: Count | None = None
    cancelling_at: Count | None = None
    cancelled_at: Count | None = None
    request_counts: RequestCounts = RequestCounts()
    """`failed` counts what is in the error file, cancelled and expired lines included."""
    models: list[str] = []
    """Those that its lines ask for, as far as they have been read. Not in OpenAI's API."""
    metadata: _Metadata | None = None
    owner: Sometimes[str] = None
    """The name of the key that it belongs to; for admins only."""

    @property
    def ended(self) -> bool:
        """Whether nothing more will become of it."""
        return self.status in BATCH_ENDED


class _Page(ResponseBody, frozen=True, kw_only=True):
    """A part of a list."""

    object: Literal["list"] = "list"
    first_id: str | None = None
    last_id: str | None = None
    has_more: bool = False


class FileList(_Page, frozen=True):
    """Some of the files."""

    data: list[File]


class BatchList(_Page, frozen=True):
    """Some of the batches."""

    data: list[Batch]
