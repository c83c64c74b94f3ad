"""What a gateway says about itself, for our own programs; not exported, as it may grow and change.

Fields that an older or newer gateway leaves out have a default; what is unknown is passed over.
Names of nodes, models and job types and the text of errors come from outside and stay as they came:
whatever draws them makes them harmless first.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Struct, field

from forebay.sdk.errors import SdkError
from forebay.sdk.values import QueueState

T = TypeVar("T")

EVENTS_VERSION = 1
"""Of `GET /events`, as `hello` names it; another may mean other things by the same names."""


class UnreadableEvent(SdkError):
    """An event does not hold what it should; the text says what is wrong."""


class ModelEntry(Struct, frozen=True):
    """A model that can be asked."""

    id: str


class ModelList(Struct, frozen=True):
    """`GET /v1/models`."""

    data: list[ModelEntry]


class NodeStatus(Struct, frozen=True):
    """One node, as `/admin/nodes` and the live view have it."""

    name: str
    url: str = ""
    kind: str | None = None
    state: str = ""
    slots: int = 0
    slots_reason: str | None = None
    """Why it has as many, where they are found automatically."""
    state_seconds: float | None = None
    in_flight: int = 0
    models: list[str] = []
    models_total: int = 0
    loaded: list[str] | None = None
    """None where it holds all its models and nothing swaps."""
    failing: list[str] = []
    gpu_load: float | None = None
    vram_used_bytes: float | None = None
    vram_total_bytes: float | None = None
    kv_free_tokens: int | None = None
    """What its key-value cache has room for; None where no guard says so."""
    speed: float | None = None
    """1.0 is usual for its models, higher is faster; None where it was not measured."""
    speed_measured_seconds_ago: float | None = None
    failures: dict[str, int] = {}
    last_error: str | None = None
    simulated: bool = False
    guarded: bool = False
    """Whether a guard stands before it."""


class NodeList(Struct, frozen=True):
    """`GET /admin/nodes`."""

    data: list[NodeStatus]


class ReplicaStatus(Struct, frozen=True):
    """One gateway of those that share a queue."""

    name: str
    state: str = ""
    version: str = ""
    waiting: int = 0
    running: int = 0
    lent: int = 0
    heard_seconds: float | None = None
    same_settings: bool = True
    address: str = ""


class FleetStatus(Struct, frozen=True):
    """The gateways that share a queue, as the answering one knows them."""

    mode: str = ""
    epoch: int = 0
    me: str = ""
    replicas: list[ReplicaStatus] = []
    counted_seconds_ago: float | None = None
    """None where no leader has told its figures yet."""


class QueueStatus(QueueState, frozen=True):
    """`GET /v1/queue`, the fleet included."""

    fleet: FleetStatus | None = None
    """None where the gateway has its queue for itself."""


# -- the live view: `GET /events`


class LiveText(Struct, frozen=True):
    """A text for people; other languages are left out."""

    en: str = ""


class LiveHistory(Struct, frozen=True):
    """The last minutes, a sample a second, oldest first."""

    depth: dict[str, list[int]] = {}
    served: list[int] = []
    rejected: list[int] = []
    sample_number: int = 0
    """Of the newest sample."""


class LiveHello(Struct, frozen=True):
    """The first event of a connection."""

    version: int = EVENTS_VERSION
    gateway: str = ""
    epoch: str = ""
    """Differs after every start of the gateway."""
    admin: bool = False
    """Whether we may drain and resume nodes."""
    keys: bool = False
    priorities: list[str] = field(default_factory=lambda: ["high", "normal", "low"])
    history: LiveHistory = LiveHistory()


class LiveQueue(Struct, frozen=True):
    """The waiting line as a whole."""

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


class LiveModel(Struct, frozen=True):
    """One model, wherever it runs."""

    model: str
    waiting: int = 0
    processing: int = 0
    slots: int = 0
    wait_p50_seconds: float | None = None
    wait_p90_seconds: float | None = None


class LiveJobType(Struct, frozen=True):
    """How many jobs of one type there are, by status."""

    type: str
    queued: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0


class LiveBatches(Struct, frozen=True):
    """The batches that are under way, together."""

    open: int = 0
    lines: int = 0
    completed: int = 0
    failed: int = 0


class LiveJobs(Struct, frozen=True):
    """Counts of background jobs."""

    types: list[LiveJobType] = []
    batches: LiveBatches = LiveBatches()


class LiveSessions(Struct, frozen=True):
    """Conversations that the gateway holds."""

    held: int = 0
    pending_prompts: int = 0


class LiveProblem(Struct, frozen=True):
    """What ended badly lately, by reason."""

    code: str
    kind: str = "error"
    last_minute: int = 0
    last_15_minutes: int = 0
    total: int = 0
    seconds_ago: float | None = None
    remedy: LiveText | None = None


class LiveTrouble(Struct, frozen=True):
    """What is wrong now."""

    level: str = "info"
    code: str = ""
    text: LiveText = LiveText()
    advice: LiveText | None = None


class LiveSample(Struct, frozen=True):
    """The newest whole second."""

    depth: dict[str, int] = {}
    served: int = 0
    rejected: int = 0


class LiveSnapshot(Struct, frozen=True):
    """The picture of one moment."""

    uptime_seconds: float = 0.0
    draining: bool = False
    ready: bool = True
    queue: LiveQueue = LiveQueue()
    models: list[LiveModel] = []
    nodes: list[NodeStatus] = []
    jobs: LiveJobs = LiveJobs()
    sessions: LiveSessions = LiveSessions()
    problems: list[LiveProblem] = []
    troubles: list[LiveTrouble] = []
    sample: LiveSample = LiveSample()
    sample_number: int = 0
    caption: LiveText | None = None
    fleet: FleetStatus | None = None
    """None where the gateway has its queue for itself."""


def read_hello(data: str | bytes) -> LiveHello:
    """Return the first event; raises UnreadableEvent."""
    hello = _read(data, LiveHello)
    if hello.version != EVENTS_VERSION:
        raise UnreadableEvent(
            f"this gateway speaks version {hello.version} of the live view and this command "
            f"version {EVENTS_VERSION}: install the same forebay on both sides"
        )
    return hello


def read_snapshot(data: str | bytes) -> LiveSnapshot:
    """Return a picture; raises UnreadableEvent."""
    return _read(data, LiveSnapshot)


def _read(data: str | bytes, kind: type[T]) -> T:
    try:
        return msgspec.convert(_without_nulls(msgspec.json.decode(data)), kind, strict=False)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise UnreadableEvent(f"an event that cannot be read: {error}") from error


def _without_nulls(value: object) -> object:
    """Return a value in which null is the same as missing: what is not known has its default."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
