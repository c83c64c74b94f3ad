"""A job, its states and their transitions.

Every change of state in the store is an UPDATE guarded by `sources(verb)`: this table is the only
place that defines the transitions, and the diagram in the docs is generated from it.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from forebay.api.jobs import JobStatus

Status: TypeAlias = JobStatus
Verb: TypeAlias = Literal["claim", "complete", "fail", "return", "cancel", "retry"]

STATUSES: tuple[Status, ...] = get_args(JobStatus)

TRANSITIONS: Mapping[tuple[Status, Verb], Status] = {
    ("queued", "claim"): "running",
    ("queued", "cancel"): "cancelled",
    ("queued", "fail"): "failed",
    ("running", "complete"): "completed",
    ("running", "fail"): "failed",
    ("running", "return"): "queued",
    ("running", "cancel"): "cancelled",
    ("failed", "retry"): "queued",
    ("cancelled", "retry"): "queued",
}

PRIORITIES: Mapping[str, int] = {"high": 0, "normal": 1, "low": 2}
"""What is stored for a priority's name; the lowest number runs first."""


def sources(verb: Verb) -> tuple[Status, ...]:
    """Return the states from which a verb leads on.

    >>> sources("cancel"), sources("retry")
    (('queued', 'running'), ('failed', 'cancelled'))
    """
    return tuple(status for status, known in TRANSITIONS if known == verb)


Claim: TypeAlias = tuple[int, int]
"""One claim of a job: its id and its fence. A job that is retried has a new fence."""


class NewJob(Struct, frozen=True):
    """A job to be stored."""

    task_type: str
    params: str
    """JSON."""
    job_id: int = 0
    """The caller's own number for what the job is about; part of its fingerprint."""
    queue: str = ""
    """Jobs of one queue are claimed in order; empty means its type."""
    model: str = ""
    priority: int = PRIORITIES["normal"]
    owner: str = ""
    """The name of the API key that submitted it; nobody else sees it."""
    idempotency_key: str | None = None
    fingerprint: str = ""
    """Two unfinished jobs with the same fingerprint are one; empty: of owner, type, number and
    params."""
    batch_id: int | None = None
    line: int | None = None
    webhook: bool = False
    """Whether a webhook is sent at its end."""


class StoredJob(Struct, frozen=True, kw_only=True):
    """One row at the moment it was read."""

    id: int
    task_type: str
    queue: str
    owner: str
    job_id: int
    params: str
    priority: int
    model: str
    idempotency_key: str | None
    status: Status
    result: str | None
    """JSON."""
    error: str | None
    error_code: str | None
    """`job_queue_full`, `interrupted`, `dead_letter`, `handler_failed`, or an error's code."""
    traceback: str | None
    stage: str | None
    attempt: int
    fence: int
    """Fencing token: grows with every claim; the writes of an earlier holder are refused."""
    worker: str
    lease_until: float | None
    batch_id: int | None
    line: int | None
    created_at: float
    started_at: float | None
    finished_at: float | None


class Added(Struct, frozen=True):
    """The result of a submission."""

    id: int
    status: Status
    is_new: bool
    refusal: str = ""
    """Why there was no place, in the words for a key that shares them with others."""


class Failure(Struct, frozen=True):
    """Why a job failed."""

    error: str
    code: str = "handler_failed"
    traceback: str | None = None
    result: str | None = None
    """The node's own answer, if any."""


class Change(Struct, frozen=True, array_like=True):
    """A committed change of a job; other gateways are notified of it, too."""

    id: int
    task_type: str
    queue: str
    status: Status
    before: Status | None
    stage: str | None = None
    batch_id: int | None = None
    waited_s: float | None = None
    """How long it was queued, if it has just been claimed."""
    fence: int = 0
    """Of the claim that was changed; 0 where its own holder did it."""
    here: bool = True
    """Whether this program did it."""
    owner: str = ""
    """The name of the API key that submitted it."""
