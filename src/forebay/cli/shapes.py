"""What a gateway's answers must have for us to show them; more is let through, and shown as JSON.

An answer is checked as it is read (`GatewayClient`), so that the commands may rely on it.
"""

from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=2**53)]
Seconds = Annotated[float, Meta(ge=0, le=1e11)]
"""How long, or since 1970; both fit what people can be told."""
Id = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,200}$")]
"""One that becomes part of a path."""

Anything = Any
"""For an answer of which nothing is used."""


class NodeSaid(TypedDict):
    """A node, after something was done to it."""

    name: str
    state: str
    in_flight: Count


class Node(NodeSaid):
    """A node in the list."""

    url: str
    kind: str | None
    slots: Count
    models: list[str]
    last_error: str | None


class Nodes(TypedDict):
    """All of them."""

    data: list[Node]


class Model(TypedDict):
    """A model."""

    id: str


class Models(TypedDict):
    """All of them."""

    data: list[Model]


class Replica(TypedDict):
    """One gateway of those that share a line."""

    name: str
    state: str
    version: str
    waiting: Count
    running: Count
    lent: Count
    heard_seconds: Seconds
    same_settings: bool
    address: NotRequired[str]


class Fleet(TypedDict):
    """The gateways that share a line."""

    mode: str
    epoch: Count
    me: str
    counted_seconds_ago: Seconds | None
    replicas: list[Replica]


class Queue(TypedDict):
    """The line."""

    waiting: Count
    max_size: Count
    processing: Count
    by_priority: dict[str, Count]
    average_wait_seconds: Seconds
    average_service_seconds: Seconds
    served_total: Count
    rejected_total: Count
    timeouts_total: Count
    processing_jobs: NotRequired[Count]
    fleet: NotRequired[Fleet]


class JobAdded(TypedDict):
    """A job that was submitted."""

    id: Count
    status: str
    is_new: bool


class JobStep(TypedDict):
    """What is told of a job while it goes on."""

    id: Count
    status: str
    stage: str | None
    attempt: Count


class JobInList(JobStep):
    """A job in the list."""

    type: str
    model: str | None
    created_at: Seconds
    started_at: Seconds | None
    finished_at: Seconds | None
    error: str | None


class Jobs(TypedDict):
    """Some of them."""

    data: list[JobInList]


class Job(JobInList):
    """All about a job."""

    priority: str
    job_id: Count | None
    idempotency_key: str | None
    error_code: str | None
    traceback: str | None
    params: Any
    result: Any


class UploadedFile(TypedDict):
    """A file that was taken."""

    id: Id


class BatchCounts(TypedDict):
    """How far a batch is."""

    total: Count
    completed: Count
    failed: Count


class BatchFault(TypedDict):
    """What is wrong with a file."""

    code: str
    message: str
    line: NotRequired[Count | None]


class BatchFaults(TypedDict):
    """All that is."""

    data: NotRequired[list[BatchFault] | None]


class BatchInList(TypedDict):
    """A batch in the list, or as it was created."""

    id: Id
    input_file_id: str


class Batches(TypedDict):
    """Some of them."""

    data: list[BatchInList]


class Batch(BatchInList):
    """All about a batch."""

    status: str
    request_counts: BatchCounts
    errors: BatchFaults | None
    output_file_id: Id | None
    error_file_id: Id | None
    in_progress_at: Seconds | None
    completed_at: NotRequired[Seconds | None]
    expired_at: NotRequired[Seconds | None]
    cancelled_at: NotRequired[Seconds | None]
    failed_at: NotRequired[Seconds | None]
