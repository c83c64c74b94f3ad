"""From what is known inside to what is shown: one picture of one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from forebay.core import NO_ROOM
from forebay.dashboard.picture import ModelPicture, NodePicture, QueuePicture
from forebay.nodes.adapters.simulated import Simulated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from forebay.core.snapshot import LaneView, NodeView, Snapshot
    from forebay.dashboard.history import History
    from forebay.nodes.registry import Nodes

MODELS_MAX: Final = 64
"""Models that are listed; those with the most to do come first."""
NODE_MODELS_MAX: Final = 32
NODE_MODELS_ALL: Final = 2000
"""Names of models over all nodes: with many nodes each shows fewer."""
ERROR_CHARS_MAX: Final = 200


def draw_queue(seen: Snapshot, history: History, *, enabled: bool, retries: int) -> QueuePicture:
    """Show the queue as a whole."""
    totals = seen.totals
    return QueuePicture(
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
        waiting_jobs=seen.waiting_jobs,
        processing_jobs=seen.running_jobs,
    )


def draw_models(lanes: Iterable[LaneView]) -> list[ModelPicture]:
    """Show each model once, whatever families it is asked for in; the busiest first.

    Its families share the same slots: so these are not added up, and the wait is the longest.
    """
    by_model: dict[str, list[LaneView]] = {}
    for lane in lanes:
        by_model.setdefault(lane.model, []).append(lane)
    drawn = [
        ModelPicture(
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
    drawn.sort(key=lambda one: (-one.waiting - one.processing, one.model))
    return drawn[:MODELS_MAX]


def draw_nodes(nodes: Nodes, views: Iterable[NodeView], now_s: float) -> Iterator[NodePicture]:
    """Show every node: what the core counts there, and what its probes have found."""
    by_name = {view.name: view for view in views}
    listed = sorted(nodes, key=lambda node: node.name)
    names_max = min(NODE_MODELS_MAX, max(4, NODE_MODELS_ALL // max(1, len(listed))))
    for node in listed:
        told, view = node.told, by_name.get(node.name)
        loaded = told.loaded if view is None else view.loaded
        error = node.last_error[:ERROR_CHARS_MAX]
        yield NodePicture(
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
            last_error=error or None,
            simulated=node.kind == Simulated.kind,
            guarded=node.guarded,
        )


def _longest(waits_s: Iterable[float | None]) -> float | None:
    known = [wait_s for wait_s in waits_s if wait_s is not None]
    return round(max(known), 3) if known else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
