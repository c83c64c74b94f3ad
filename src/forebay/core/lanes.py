"""Lanes: one model in one family, the nodes that serve it, and what is waiting for it."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.core.records import Lane, Node, WaitQueue


def count_slots(lane: Lane) -> None:
    """Add up the slots that are online, after a node changed."""
    online = [node for node in listing(lane) if node.state == "online"]
    lane.slots = sum(node.slots for node in online)
    lane.is_up = bool(online)


def is_known(lane: Lane) -> bool:
    """Say whether any node lists the model, whatever its state."""
    return bool(lane.nodes or lane.resting)


def listing(lane: Lane) -> Iterator[Node]:
    """Return the nodes that list the model; who rests for seconds is worth waiting for."""
    return chain(lane.nodes.values(), lane.resting.values())


def waiting_in(lane: Lane) -> int:
    """Return how many live requests wait here; the last queue, of jobs, is left out."""
    waiting = lane.parked
    for queue in lane.queues[:-1]:
        waiting += queue.waiting
    return waiting


def waiting_above(queue: WaitQueue) -> int:
    """Return how many wait in the classes above that of a queue."""
    waiting = 0
    for other in queue.lane.queues:
        if other is queue:
            break
        waiting += other.waiting
    return waiting
