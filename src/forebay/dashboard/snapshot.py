"""What one snapshot of `GET /events` holds, and how it is made of what the scheduler knows.

`docs/reference/dashboard-events.md` explains the fields. Aggregates only: no user, key, prompt or
id is ever in here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import UNSET, Struct, UnsetType

from forebay.core import NO_ROOM
from forebay.nodes.adapters.simulated import Simulated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from forebay.core.snapshot import LaneView, NodeView, Snapshot
    from forebay.dashboard.history import SampleHistory
    from forebay.nodes.registry import Nodes

MODELS_MAX: Final = 64
"""Models that are listed; those with the most to do come first."""
NODE_MODELS_MAX: Final = 32
NODE_MODELS_ALL: Final = 2000
"""Names of models over all nodes: with many nodes each shows fewer."""
ERROR_CHARS_MAX: Final = 200


class Words(Struct, frozen=True):
    """A text in the two languages of the page."""

    en: str
    ja: str


def duration(seconds: float) -> Words:
    """Return a duration for people, rounded down.

    >>> duration(40.2), duration(200), duration(7300)
    (Words(en='40 s', ja='40 秒'), Words(en='3 min', ja='3 分'), Words(en='2 h', ja='2 時間'))
    """
    if seconds < 120:
        return Words(f"{seconds:.0f} s", f"{seconds:.0f} 秒")
    if seconds < 7200:
        return Words(f"{seconds // 60:.0f} min", f"{seconds // 60:.0f} 分")
    return Words(f"{seconds // 3600:.0f} h", f"{seconds // 3600:.0f} 時間")


class QueueSnapshot(Struct, frozen=True):
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
    prefix_tokens_total: int
    prefix_hit_tokens_total: int
    prefix_saved_seconds_total: float
    waiting_jobs: int
    processing_jobs: int
    tokens_per_second: float | None
    first_token_p50_seconds: float | None
    first_token_p95_seconds: float | None


class ModelSnapshot(Struct, frozen=True):
    """One model, over all families in which it is asked for."""

    model: str
    families: list[str]
    waiting: int
    processing: int
    slots: int
    wait_p50_seconds: float | None
    wait_p90_seconds: float | None


class NodeSnapshot(Struct, frozen=True):
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
    failures_15_minutes: dict[str, int]
    last_error: str | None
    simulated: bool
    guarded: bool = False
    slots_reason: str | None = None
    """Why it has as many slots, where they are found automatically."""
    kv_free_tokens: int | None = None
    """What its key-value cache has room for, where its guard says so."""
    speed: float | None = None
    """1.0 is usual for its models, higher is faster; None where it was not measured."""
    speed_measured_seconds_ago: float | None = None


class JobTypeCounts(Struct, frozen=True):
    """The jobs of one type, by status; lines of batches are not among them."""

    type: str
    queued: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0


class OpenBatches(Struct, frozen=True):
    """The batches that have not ended, together."""

    open: int = 0
    lines: int = 0
    completed: int = 0
    failed: int = 0


class JobsSnapshot(Struct, frozen=True):
    """The durable work."""

    types: list[JobTypeCounts] = []
    batches: OpenBatches = OpenBatches()
    vram_reserved_bytes: int = 0


class SessionsSnapshot(Struct, frozen=True):
    """The conversations."""

    held: int = 0
    pending_prompts: int = 0


class RecentError(Struct, frozen=True):
    """One way in which requests have ended badly lately."""

    code: str
    kind: str
    last_minute: int
    last_15_minutes: int
    total: int
    seconds_ago: float
    remedy: Words


class TroubleSnapshot(Struct, frozen=True, omit_defaults=True):
    """Something that is wrong now, and what to do about it."""

    level: str
    code: str
    text: Words
    advice: Words
    seconds: float | None = None
    node: str = ""


class ReplicaSnapshot(Struct, frozen=True):
    """One gateway of a fleet."""

    name: str
    state: str
    version: str
    waiting: int
    running: int
    lent: int
    heard_seconds: float
    same_settings: bool


class FleetSnapshot(Struct, frozen=True):
    """The gateways that share one queue, as this one knows them."""

    mode: str
    mode_seconds: float
    epoch: int
    me: str
    replicas: list[ReplicaSnapshot]
    failovers_total: int
    outages_total: int
    counted_seconds_ago: float | None


class TimelineSample(Struct, frozen=True):
    """One second of the time line."""

    depth: dict[str, int]
    processing: int
    served: int
    rejected: int
    wait_p50_seconds: float | None
    wait_p95_seconds: float | None
    wait_p95_seconds_by_priority: dict[str, float | None] = {}


class DashboardSnapshot(Struct, frozen=True):
    """One event of the feed."""

    at: str
    uptime_seconds: float
    draining: bool
    ready: bool
    queue: QueueSnapshot
    models: list[ModelSnapshot]
    nodes: list[NodeSnapshot]
    jobs: JobsSnapshot
    sessions: SessionsSnapshot
    problems: list[RecentError]
    troubles: list[TroubleSnapshot]
    sample: TimelineSample | None
    sample_number: int
    caption: Words | None
    fleet: FleetSnapshot | UnsetType = UNSET


def queue_snapshot(
    seen: Snapshot, history: SampleHistory, *, enabled: bool, retries: int
) -> QueueSnapshot:
    """Return the queue as a whole."""
    totals = seen.totals
    return QueueSnapshot(
        enabled=enabled and seen.max_size > 0,
        waiting=seen.waiting,
        processing=seen.running,
        max_size=seen.max_size,
        average_wait_seconds=_rounded(seen.average_wait_s),
        average_service_seconds=_rounded(seen.average_service_s),
        by_priority=seen.by_priority,
        served_per_minute=history.served_per_minute(),
        rejected_per_minute=history.rejected_per_minute(),
        served_total=totals.served,
        rejected_total=totals.refused(NO_ROOM),
        timeouts_total=totals.expired,
        cancelled_total=totals.cancelled,
        retries_total=retries,
        model_swaps_total=totals.swaps,
        prefix_tokens_total=totals.prefix_tokens,
        prefix_hit_tokens_total=totals.prefix_hit_tokens,
        prefix_saved_seconds_total=round(totals.prefix_saved_s, 1),
        waiting_jobs=seen.waiting_jobs,
        processing_jobs=seen.running_jobs,
        tokens_per_second=history.tokens_per_second(),
        first_token_p50_seconds=history.first_token(0.5),
        first_token_p95_seconds=history.first_token(0.95),
    )


def model_snapshots(lanes: Iterable[LaneView]) -> list[ModelSnapshot]:
    """Return each model once, over all API families; the busiest first.

    Its families share the same slots: so these are not added up, and the wait is the longest.
    """
    by_model: dict[str, list[LaneView]] = {}
    for lane in lanes:
        by_model.setdefault(lane.model, []).append(lane)
    found = [
        ModelSnapshot(
            model=model,
            families=sorted(lane.family for lane in group),
            waiting=sum(lane.waiting for lane in group),
            processing=sum(lane.running for lane in group),
            slots=max(lane.slots for lane in group),
            wait_p50_seconds=_longest(lane.p50_s for lane in group),
            wait_p90_seconds=_longest(lane.p90_s for lane in group),
        )
        for model, group in by_model.items()
    ]
    found.sort(key=lambda one: (-one.waiting - one.processing, one.model))
    return found[:MODELS_MAX]


def node_snapshots(
    nodes: Nodes, views: Iterable[NodeView], recent: Mapping[str, dict[str, int]], now_s: float
) -> Iterator[NodeSnapshot]:
    """Return every node: what the scheduler counts there, and what its probes have found.

    `recent` are the failures of the last 15 minutes, by node and kind.
    """
    by_name = {view.name: view for view in views}
    listed = sorted(nodes, key=lambda node: node.name)
    names_max = min(NODE_MODELS_MAX, max(4, NODE_MODELS_ALL // max(1, len(listed))))
    for node in listed:
        told, view = node.told, by_name.get(node.name)
        loaded = told.loaded if view is None else view.loaded
        error = node.last_error[:ERROR_CHARS_MAX]
        yield NodeSnapshot(
            name=node.name,
            kind=node.kind,
            state=told.state,
            state_seconds=round(max(0.0, now_s - node.state_since_s), 1),
            slots=told.slots if view is None else view.slots,
            in_flight=0 if view is None else view.in_flight,
            models=list(told.models[:names_max]),
            models_total=len(told.models),
            loaded=None if loaded is None else sorted(loaded)[:names_max],
            failing=list(told.failing[:names_max]),
            gpu_load=_rounded(node.gpu_load),
            vram_used_bytes=node.vram_used_bytes,
            vram_total_bytes=node.vram_total_bytes,
            failures=dict(node.failures),
            failures_15_minutes=recent.get(node.name, {}),
            last_error=error or None,
            simulated=node.kind == Simulated.kind,
            guarded=node.guarded,
            slots_reason=node.slots_reason("" if view is None else view.slots_reason),
            kv_free_tokens=node.kv_free_tokens,
            speed=None if view is None else _rounded(view.speed),
            speed_measured_seconds_ago=None if view is None else _rounded(view.measured_s_ago),
        )


def _longest(waits_s: Iterable[float | None]) -> float | None:
    known = [wait_s for wait_s in waits_s if wait_s is not None]
    return round(max(known), 3) if known else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
