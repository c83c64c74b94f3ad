"""A batch, its statuses and their transitions.

    validating -> in_progress -> finalizing -> completed
        |              |             +-------> expired     (unfinished at `expires_at`)
        |              +-> cancelling -------> cancelled   (on request)
        +-> failed, cancelled, expired                     (nothing has run)

`outcome` is the final status that a batch will have: stored when it is decided, so that a restart
before the end changes nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, get_args

from msgspec import Struct

from forebay.api.batches import (
    METADATA_KEY_MAX,
    METADATA_MAX,
    METADATA_VALUE_MAX,
    BatchStatus,
)
from forebay.errors import NotAllowed, Rejected
from forebay.jobs.builtin import TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.jobs.job import Status as JobStatus

STATUSES: tuple[BatchStatus, ...] = get_args(BatchStatus)
WINDOW_S_MAX = 14 * 86_400
WINDOW_DEFAULT = "24h"
OPEN_MAX = 100
"""Unfinished batches of one owner: each may insert 50,000 rows."""
LIST_MAX = 100

CANCELLED = "batch_cancelled"
EXPIRED = "batch_expired"
ENDED_EARLY: Mapping[str, tuple[JobStatus, str, str]] = {
    "cancelled": ("cancelled", CANCELLED, "The batch was cancelled before this request was done."),
    "expired": ("failed", EXPIRED, "The batch expired before this request was done."),
}
"""By outcome: status, code and message of the lines that are not done."""

_WINDOW = re.compile(r"([1-9][0-9]{0,3})([hd])")
_NAME = re.compile(r"batch_[0-9a-f]{24}")


class BadBatch(NotAllowed):
    """A batch cannot be created like this; `param` names the field at fault."""

    code = "invalid_request"

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


class BatchesFull(Rejected):
    """The owner has reached the limit of unfinished batches."""

    code = "batches_full"


class NotCancellable(NotAllowed):
    """The batch has ended, or all of its lines have."""

    code = "conflict"


class NewBatch(Struct, frozen=True):
    """A batch to be created."""

    input_file: str
    endpoint: str
    completion_window: str = WINDOW_DEFAULT
    metadata: dict[str, str] | None = None


class StoredBatch(Struct, frozen=True, kw_only=True):
    """One row at the moment it was read."""

    id: int
    name: str
    owner: str
    endpoint: str
    completion_window: str
    status: BatchStatus
    outcome: BatchStatus
    input_file: str
    output_file: str | None
    error_file: str | None
    errors: str | None
    """JSON."""
    metadata: str | None
    """JSON."""
    cursor_bytes: int
    """Offset in the input file of the first line that is not loaded yet."""
    cursor_line: int
    """How many lines lie before that, blank ones included."""
    loaded_at: float | None
    total: int
    completed: int
    failed: int
    created_at: float
    in_progress_at: float | None
    expires_at: float
    finalizing_at: float | None
    completed_at: float | None
    failed_at: float | None
    expired_at: float | None
    cancelling_at: float | None
    cancelled_at: float | None
    models: tuple[str, ...] = ()
    """Those that the lines loaded so far ask for, where somebody is shown it; no column."""


def is_name(text: str) -> bool:
    """Say whether a text has the form of a batch's id; nothing else is looked up."""
    return _NAME.fullmatch(text) is not None


def window_s(text: str) -> int:
    """Return the length of a completion window.

    >>> window_s("24h"), window_s("14d")
    (86400, 1209600)
    """
    match = _WINDOW.fullmatch(text)
    seconds = int(match[1]) * {"h": 3600, "d": 86_400}[match[2]] if match else 0
    if not 0 < seconds <= WINDOW_S_MAX:
        raise BadBatch("completion_window must be 24h, or another Nh or Nd up to 14d",
                       "completion_window")  # fmt: skip
    return seconds


def check(new: NewBatch) -> None:
    """Raise BadBatch unless a batch can be created like this."""
    if new.endpoint not in TYPES:
        raise BadBatch(f"endpoint must be one of {', '.join(TYPES)}", "endpoint")
    window_s(new.completion_window)
    metadata = new.metadata or {}
    if len(metadata) > METADATA_MAX:
        raise BadBatch(f"metadata may have {METADATA_MAX} pairs at most", "metadata")
    if any(len(key) > METADATA_KEY_MAX for key in metadata):
        raise BadBatch(f"keys of metadata have {METADATA_KEY_MAX} characters at most", "metadata")
    if any(len(value) > METADATA_VALUE_MAX for value in metadata.values()):
        raise BadBatch(
            f"values of metadata have {METADATA_VALUE_MAX} characters at most", "metadata"
        )
