"""What one snapshot of `GET /events` holds; `docs/reference/dashboard-events.md` explains it.

Aggregates only: no user, no key, no prompt and no id is ever in here.
"""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from forebay.dashboard.words import Words


class QueuePicture(Struct, frozen=True):
    """The whole queue."""

    enabled: bool
    waiting: int
    processing: int
    max_size: int
    average_wait_seconds: float | None
    average_service_seconds: float | None
    by_priority: dict[str, int]
    served_per_minute: int
    rejected_per_minute: int
    served_total: int
    rejected_total: int
    timeouts_total: int
    cancelled_total: int
    retries_total: int
    model_swaps_total: int
    waiting_jobs: int
    processing_jobs: int


class ModelPicture(Struct, frozen=True):
    """One model, over all families in which it is asked for."""

    model: str
    families: list[str]
    waiting: int
    processing: int
    slots: int
    wait_p50_seconds: float | None
    wait_p90_seconds: float | None


class NodePicture(Struct, frozen=True):
    """One node."""

    name: str
    kind: str
    state: str
    state_seconds: float
    slots: int
    in_flight: int
    models: list[str]
    models_total: int
    loaded: list[str] | None
    failing: list[str]
    gpu_load: float | None
    vram_used_bytes: int | None
    vram_total_bytes: int | None
    failures: dict[str, int]
    last_error: str | None
    simulated: bool
    guarded: bool = False


class JobType(Struct, frozen=True):
    """The jobs of one type, by status; lines of batches are not among them."""

    type: str
    queued: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0


class BatchProgress(Struct, frozen=True):
    """The batches that have not ended, together."""

    open: int = 0
    lines: int = 0
    completed: int = 0
    failed: int = 0


class JobsPicture(Struct, frozen=True):
    """The durable work."""

    types: list[JobType] = []
    batches: BatchProgress = BatchProgress()
    vram_reserved_bytes: int = 0


class SessionsPicture(Struct, frozen=True):
    """The conversations."""

    held: int = 0
    pending_prompts: int = 0


class ProblemPicture(Struct, frozen=True):
    """One way in which requests have ended badly lately."""

    code: str
    kind: str
    last_minute: int
    last_15_minutes: int
    total: int
    seconds_ago: float
    remedy: Words


class Trouble(Struct, frozen=True, omit_defaults=True):
    """Something that is wrong now, and what to do about it."""

    level: str
    code: str
    text: Words
    advice: Words
    seconds: float | None = None
    node: str = ""


class ReplicaPicture(Struct, frozen=True):
    """One gateway of a fleet."""

    name: str
    state: str
    version: str
    waiting: int
    running: int
    lent: int
    heard_seconds: float
    same_settings: bool


class FleetPicture(Struct, frozen=True):
    """The gateways that share one queue, as this one knows them."""

    mode: str
    mode_seconds: float
    epoch: int
    me: str
    replicas: list[ReplicaPicture]
    failovers_total: int
    outages_total: int
    counted_seconds_ago: float | None


class SamplePicture(Struct, frozen=True):
    """One second of the time line."""

    depth: dict[str, int]
    processing: int
    served: int
    rejected: int
    wait_p50_seconds: float | None
    wait_p95_seconds: float | None


class Picture(Struct, frozen=True):
    """One snapshot."""

    at: str
    uptime_seconds: float
    draining: bool
    ready: bool
    queue: QueuePicture
    models: list[ModelPicture]
    nodes: list[NodePicture]
    jobs: JobsPicture
    sessions: SessionsPicture
    problems: list[ProblemPicture]
    troubles: list[Trouble]
    sample: SamplePicture | None
    sample_number: int
    caption: Words | None
    fleet: FleetPicture | UnsetType = UNSET
