"""The live view: what `GET /events` sends, and the page and `forebay top` draw.

`docs/reference/dashboard-events.md` explains the fields. Aggregates only: no user, key, prompt or
id is ever in here. Names of nodes, models and job types and the text of errors come from outside
and stay as they came: whatever draws them makes them harmless first.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from forebay.api.fields import ResponseBody, Sometimes, one_of
from forebay.api.nodes import NodeState
from forebay.api.queue import Fleet

VERSION = 1
"""As `hello` names it; another may mean other things by the same names."""


class Words(ResponseBody, frozen=True):
    """A text in the two languages of the page."""

    en: str = ""
    ja: str = ""


class TimelineSample(ResponseBody, frozen=True):
    """One second of the time line."""

    depth: dict[str, int] = {}
    processing: int = 0
    served: int = 0
    rejected: int = 0
    wait_p50_seconds: float | None = None
    wait_p95_seconds: float | None = None
    wait_p95_seconds_by_priority: dict[str, float | None] = {}


class Timeline(ResponseBody, frozen=True):
    """The last minutes, a sample a second, as columns of equal length, the oldest first."""

    at: str = ""
    step_seconds: float = 1.0
    sample_number: int = 0
    """Of the newest sample."""
    depth: dict[str, list[int]] = {}
    processing: list[int] = []
    served: list[int] = []
    rejected: list[int] = []
    wait_p50_seconds: list[float | None] = []
    wait_p95_seconds: list[float | None] = []
    wait_p95_seconds_by_priority: dict[str, list[float | None]] = {}


class Hello(ResponseBody, frozen=True):
    """The first event of a connection."""

    version: int = VERSION
    gateway: str = ""
    """Its version."""
    epoch: str = ""
    """Differs after every start of the gateway."""
    admin: bool = False
    """Whether the reader may drain and resume nodes."""
    keys: bool = False
    priorities: list[str] = field(default_factory=lambda: ["high", "normal", "low"])
    history: Timeline = Timeline()


class QueueSnapshot(ResponseBody, frozen=True):
    """The whole queue."""

    enabled: bool = True
    waiting: int = 0
    processing: int = 0
    max_size: int = 0
    average_wait_seconds: float | None = None
    average_service_seconds: float | None = None
    by_priority: dict[str, int] = {}
    served_per_minute: float = 0
    rejected_per_minute: float = 0
    served_total: int = 0
    rejected_total: int = 0
    timeouts_total: int = 0
    cancelled_total: int = 0
    retries_total: int = 0
    model_swaps_total: int = 0
    prefix_tokens_total: int = 0
    prefix_hit_tokens_total: int = 0
    prefix_saved_seconds_total: float = 0.0
    waiting_jobs: int = 0
    processing_jobs: int = 0
    tokens_per_second: float | None = None
    first_token_p50_seconds: float | None = None
    first_token_p95_seconds: float | None = None


class ModelSnapshot(ResponseBody, frozen=True):
    """One model, over all families in which it is asked for."""

    model: str
    families: list[str] = []
    waiting: int = 0
    processing: int = 0
    slots: int = 0
    wait_p50_seconds: float | None = None
    wait_p90_seconds: float | None = None


class NodeSnapshot(NodeState, frozen=True):
    """One node."""

    state_seconds: float = 0.0
    models_total: int = 0
    vram_used_bytes: float | None = None
    vram_total_bytes: float | None = None
    failures_15_minutes: dict[str, int] = {}
    simulated: bool = False


class JobTypeCounts(ResponseBody, frozen=True):
    """The jobs of one type, by status; lines of batches are not among them."""

    type: str
    queued: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0


class OpenBatches(ResponseBody, frozen=True):
    """The batches that have not ended, together."""

    open: int = 0
    lines: int = 0
    completed: int = 0
    failed: int = 0


class JobsSnapshot(ResponseBody, frozen=True):
    """The durable work."""

    types: list[JobTypeCounts] = []
    batches: OpenBatches = OpenBatches()
    vram_reserved_bytes: int = 0


class SessionsSnapshot(ResponseBody, frozen=True):
    """The conversations."""

    held: int = 0
    pending_prompts: int = 0


class RecentError(ResponseBody, frozen=True):
    """One way in which requests have ended badly lately."""

    code: str
    kind: Annotated[str, one_of("rejection", "error", "caller")] = "error"
    last_minute: int = 0
    last_15_minutes: int = 0
    total: int = 0
    seconds_ago: float = 0.0
    remedy: Words = Words()


class TroubleSnapshot(ResponseBody, frozen=True, omit_defaults=True):
    """Something that is wrong now, and what to do about it."""

    level: str = ""
    code: str = ""
    text: Words = Words()
    advice: Words = Words()
    seconds: float | None = None
    node: str = ""


class FleetSnapshot(Fleet, frozen=True):
    """The gateways that share one queue, as this one knows them."""

    mode_seconds: float = 0.0
    failovers_total: int = 0
    outages_total: int = 0


class DashboardSnapshot(ResponseBody, frozen=True):
    """One event of the feed."""

    at: str = ""
    uptime_seconds: float = 0.0
    draining: bool = False
    ready: bool = True
    queue: QueueSnapshot = QueueSnapshot()
    models: list[ModelSnapshot] = []
    nodes: list[NodeSnapshot] = []
    jobs: JobsSnapshot = JobsSnapshot()
    sessions: SessionsSnapshot = SessionsSnapshot()
    problems: list[RecentError] = []
    troubles: list[TroubleSnapshot] = []
    sample: TimelineSample | None = None
    sample_number: int = 0
    caption: Words | None = None
    fleet: Sometimes[FleetSnapshot] = None
    """None where the gateway has its queue for itself."""
