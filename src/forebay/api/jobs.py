"""Jobs: durable work that needs no connected client."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, get_args

from msgspec import UNSET, Meta, Raw, UnsetType

from forebay.api.fields import (
    Always,
    Count,
    RequestBody,
    ResponseBody,
    Seconds,
    Sometimes,
    one_of,
)

JobStatus: TypeAlias = Literal["queued", "running", "completed", "failed", "cancelled"]
JobPriority: TypeAlias = Literal["high", "normal", "low"]
JOB_ENDED = ("completed", "failed", "cancelled")

_Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]
_Status: TypeAlias = Annotated[str, one_of(*get_args(JobStatus))]
_Priority: TypeAlias = Annotated[str, one_of(*get_args(JobPriority))]


class JobSubmission(RequestBody, forbid_unknown_fields=True):
    """The body of `POST /jobs`."""

    type: _Name
    """`chat`, `completion`, `embedding`, `response`, or one of the operator's own."""
    params: Raw | UnsetType = UNSET
    """For the built-in types the body of the request."""
    job_id: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] = 0
    model: _Name | None = None
    priority: _Priority | None = None
    idempotency_key: _Name | None = None


class JobState(ResponseBody, frozen=True):
    """What a cancellation or a retry answers."""

    id: Count
    """The job's id."""
    status: _Status


class JobAccepted(JobState, frozen=True):
    """What a submission answers."""

    is_new: bool
    """False when the same work was queued or running already."""


class JobLine(JobState, frozen=True):
    """A job without what may be large, as a list shows it."""

    type: str = ""
    job_id: Always[int] = None
    """The caller's own number for what the job is about."""
    model: str | None = None
    priority: _Priority = "normal"
    idempotency_key: str | None = None
    stage: str | None = None
    """How far the handler says it is; of a queued job, that it waits for the rate of its key."""
    attempt: Count = 0
    error: str | None = None
    error_code: str | None = None
    created_at: Always[Seconds] = None
    """Seconds since 1970."""
    started_at: Seconds | None = None
    finished_at: Seconds | None = None
    owner: Sometimes[str] = None
    """The name of the key that it belongs to; for admins only."""

    @property
    def ended(self) -> bool:
        """Whether nothing more will become of it."""
        return self.status in JOB_ENDED


class Job(JobLine, frozen=True):
    """All that there is to know of a job."""

    params: Any = None
    result: Any = None
    """What the handler returned; for the built-in types the node's answer."""
    traceback: str | None = None


class JobList(ResponseBody, frozen=True):
    """Jobs, the newest first."""

    data: list[JobLine]
    has_more: Sometimes[Literal[True]] = None
    """There are older ones: ask with `before`, the last id."""
