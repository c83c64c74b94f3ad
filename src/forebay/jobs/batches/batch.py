"""A batch, its statuses, and how it moves between them.

    validating -> in_progress -> finalizing -> completed
        |              |             +-------> expired     (what is unfinished at `expires_at`)
        |              +-> cancelling -------> cancelled   (asked for)
        +-> failed, cancelled, expired                     (nothing has run)

`outcome` says in which of its last statuses a batch will end: it is written when that is decided,
so that a restart between deciding and ending changes nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from forebay.errors import NotAllowed, Rejected
from forebay.jobs.builtin import TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.jobs.job import Status as JobStatus

BatchStatus: TypeAlias = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling",
    "cancelled",
]  # fmt: skip

WINDOW_S_MAX = 14 * 86_400
WINDOW_DEFAULT = "24h"
OPEN_MAX = 100
"""Batches of one owner that have not ended: each may put 50,000 rows into the database."""
METADATA_MAX = 16
METADATA_KEY_MAX, METADATA_VALUE_MAX = 64, 512
LIST_MAX = 100

CANCELLED = "batch_cancelled"
EXPIRED = "batch_expired"
ENDED_EARLY: Mapping[str, tuple[JobStatus, str, str]] = {
    "cancelled": ("cancelled", CANCELLED, "The batch was cancelled before this request was done."),
    "expired": ("failed", EXPIRED, "The batch expired before this request was done."),
}
"""By outcome: what becomes of lines that are not done, as status, code and message."""

_WINDOW = re.compile(r"([1-9][0-9]{0,3})([hd])")
_NAME = re.compile(r"batch_[0-9a-f]{24}")


class BadBatch(NotAllowed):
    """A batch cannot be made like this; `param` names the field at fault."""

    code = "invalid_request"

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


class BatchesFull(Rejected):
    """The owner has as many unfinished batches as one may have."""

    code = "batches_full"


class NotCancellable(NotAllowed):
    """The batch has ended, or all of its lines have."""

    code = "conflict"


class NewBatch(Struct, frozen=True):
    """What is asked for."""

    input_file: str
    endpoint: str
    completion_window: str = WINDOW_DEFAULT
    metadata: dict[str, str] | None = None


class StoredBatch(Struct, frozen=True, kw_only=True):
    """One row, as it was when it was read."""

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
    """Where in the input file the first line lies that is not a row yet."""
    cursor_line: int
    """How many lines of the file lie before that, blank ones included."""
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


def is_name(text: str) -> bool:
    """Say whether a batch could have this name; nothing else is looked up."""
    return _NAME.fullmatch(text) is not None


def window_s(text: str) -> int:
    """Return how long a completion window lasts.

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
    """Raise BadBatch unless a batch can be made like this."""
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
