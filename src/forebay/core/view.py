"""What leaves the core for viewers: one ticket or the whole queue, as frozen values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from forebay.core.actions import Audit, Describe, Lease
from forebay.core.arrivals import reason
from forebay.core.outlook import outlook
from forebay.core.positions import Place
from forebay.core.records import Estimate
from forebay.core.snapshot import LaneView, NodeView, Snapshot, mean
from forebay.core.tickets import total_wait_s

if TYPE_CHECKING:
    from forebay.core.records import Entry, Lane, Node
    from forebay.core.tickets import Book


LANES_MAX = 64
"""Of more, a picture shows only those with something to do: nodes may list thousands."""


def describe(book: Book, entry: Entry) -> Describe:
    """Tell everything about one ticket."""
    common = entry.id, entry.state, total_wait_s(entry, book.now_s), entry.attempt
    prompt_tokens = entry.arrival.prompt_tokens
    if entry.node is not None:
        node, cached = entry.node.name, entry.cached_tokens
        return Describe(*common, node=node, cached_tokens=cached, prompt_tokens=prompt_tokens)
    position, told = outlook(book, entry)
    header_s, p50_s, p90_s = told[:3] if told is not None else (None, None, None)
    waits = Describe(
        *common, reason(book, entry), None, position, header_s, p50_s, p90_s,
        prompt_tokens=prompt_tokens,
    )  # fmt: skip
    hold = entry.hold
    if hold is None:
        return waits
    return replace(
        waits,
        waits_for=hold.node.name,
        better_by=hold.why,
        gain_s=hold.gain_s,
        times_as_fast=hold.times_as_fast,
        hold_s_left=max(0.0, hold.until_s - book.now_s),
        cached_tokens=hold.node.prefixes.cached_tokens(entry.arrival),
    )


def audit(book: Book) -> Audit:
    """List every lease; a walk over what runs."""
    leases = (
        Lease(entry.id, entry.node.name)
        for lane in book.cluster.lanes.values()
        for entry in lane.running.values()
        if entry.node is not None
    )
    return Audit(tuple(leases), len(book.entries))


def snapshot(book: Book) -> Snapshot:
    """Draw the whole picture; a walk over nodes and lanes, never over what waits."""
    bounds, tally = book.bounds, book.tally
    lanes = book.cluster.lanes.values()
    jobs = sum(lane.queues[-1].running for lane in lanes)
    running = sum(len(lane.running) for lane in lanes)
    return Snapshot(
        waiting=bounds.waiting,
        running=running - jobs,
        waiting_bytes=bounds.bytes,
        waiting_jobs=book.waiting_jobs,
        running_jobs=jobs,
        max_size=book.options.max_size,
        by_priority=dict(zip(book.options.priorities, bounds.by_rank, strict=True)),
        average_wait_s=mean(tally.waits),
        average_service_s=mean(tally.service),
        totals=tally.totals(),
        nodes=tuple(
            _node_view(node, book.now_s)
            for node in book.cluster.nodes.values()
            if node.name[:1] != "(" and not node.removed
        ),
        lanes=tuple(
            _lane_view(lane, book)
            for number, lane in enumerate(lanes)
            if lane.unfinished or number < LANES_MAX
        ),
    )


def _lane_view(lane: Lane, book: Book) -> LaneView:
    waiting = lane.waiting
    found: Estimate | None = None
    if waiting == lane.parked and any(name in book.cluster.open for name in lane.nodes):
        found = Estimate(0.0, 0.0, 0.0)  # a newcomer would start at once
    elif lane.slots:
        queues = lane.queues[: book.options.normal_rank() + 1]
        place = Place(sum(queue.waiting for queue in queues))  # behind all there
        found = book.forecast.when(queues[-1], place, book.now_s)
    p50_s, p90_s = found[1:3] if found is not None else (None, None)
    return LaneView(
        lane.model, lane.family, waiting, len(lane.running), lane.slots, lane.times.mean_s(),
        p50_s, p90_s,
    )  # fmt: skip


def _node_view(node: Node, now_s: float) -> NodeView:
    loaded = None if node.loaded is None else tuple(node.loaded)
    found = [
        lane.speeds[node.name]
        for lanes in node.lanes.values()
        for lane in lanes.values()
        if node.name in lane.speeds
    ]
    speed = float(len(found)) / sum([one.mean() for one in found]) if found else None
    measured_s_ago = now_s - max([one.measured_s for one in found]) if found else None
    return NodeView(
        node.name, node.state, node.slots, len(node.leases), node.gpu_load, node.models, loaded,
        speed, measured_s_ago,
        node.limit.reason if node.limit is not None else "",
    )  # fmt: skip
