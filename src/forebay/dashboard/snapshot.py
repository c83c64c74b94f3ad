"""How a snapshot of `GET /events` is made of what the scheduler and the nodes know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from forebay.api.events import ModelSnapshot, NodeSnapshot, QueueSnapshot, Words
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
