"""Lanes: one model in one family, the nodes that serve it, and what is waiting for it."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from forebay.core.demand import Demand
from forebay.core.estimates import ServiceTimes
from forebay.core.fairness import WaitQueue
from forebay.core.prefixes import PrefillTime
from forebay.core.waits import estimate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.core.entries import Entry
    from forebay.core.nodes import Node
    from forebay.core.sizes import Size
    from forebay.core.waits import Estimate, Place

NEVER_S: Final = float("inf")
LOADING_P90: Final = 1.5
"""Loads of one model take about the same each time, but a file may have left the disk's cache."""


class Lane:
    """Requests that the same set of nodes can serve."""

    __slots__ = (
        "demand",
        "family",
        "guests",
        "is_up",
        "model",
        "nodes",
        "parked",
        "prefill",
        "queues",
        "resting",
        "running",
        "slots",
        "strict",
        "times",
        "unfinished",
    )

    def __init__(
        self, model: str, family: str, ranks: int, burst: float, *, strict: bool = True
    ) -> None:
        self.model = model
        self.family = family
        self.nodes: dict[str, Node] = {}  # all that can serve the model when they are online
        self.resting: dict[str, Node] = {}  # that list it, but may not be sent anything just now
        self.queues = [WaitQueue(self, rank, burst) for rank in range(ranks)]
        self.running: dict[str, Entry] = {}
        self.parked = 0  # live requests that wait for their key's rate, in no queue
        self.guests = 0  # waiting for a job to end, and else not allowed to wait
        self.unfinished = 0  # everything accepted for it and not ended
        self.slots = 0  # of nodes that are online, resting or not
        self.is_up = False  # whether any node is online, resting or not
        self.strict = strict  # whether a class runs only when none above it can
        self.demand = Demand()
        self.times = ServiceTimes(ranks)
        self.prefill = PrefillTime()

    def count_slots(self) -> None:
        """Add up the slots that are online, after a node changed."""
        online = [node for node in self.listing() if node.state == "online"]
        self.slots = sum(node.slots for node in online)
        self.is_up = bool(online)

    def end_run(self, entry: Entry, now_s: float) -> None:
        """Take note that an entry no longer runs, for whatever reason."""
        queue, demand = entry.queue, self.demand
        del self.running[entry.id]
        queue.running -= 1
        queue.ended += 1
        demand.runs += 1
        if now_s > entry.since_s:  # not while its model was being loaded
            demand.work_s += now_s - entry.since_s
        if now_s >= demand.next_s:
            demand.mark(self, now_s)

    def is_known(self) -> bool:
        """Say whether any node lists the model, whatever its state."""
        return bool(self.nodes or self.resting)

    def listing(self) -> Iterator[Node]:
        """Return the nodes that list the model; who rests for seconds is worth waiting for."""
        return chain(self.nodes.values(), self.resting.values())

    def waiting(self) -> int:
        """Return how many live requests wait here; the last queue, of jobs, is left out."""
        waiting = self.parked
        for queue in self.queues[:-1]:
            waiting += queue.waiting
        return waiting

    def waiting_above(self, queue: WaitQueue) -> int:
        """Return how many wait in the classes above that of a queue."""
        waiting = 0
        for other in self.queues:
            if other is queue:
                break
            waiting += other.waiting
        return waiting

    def wait_s(
        self, queue: WaitQueue, place: Place, now_s: float, mine: Size | None = None
    ) -> Estimate | None:
        """Return how long one would wait at a place in a queue of this lane.

        `mine` is its own size, where it is counted among those that wait.
        """
        if not self.is_up:
            return self._wait_for_loading_s(place[0], now_s)
        return estimate(queue, place, now_s, mine)

    def _wait_for_loading_s(self, ahead: int, now_s: float) -> Estimate | None:
        """Return the same where a node is loading: until it is ready, then those ahead."""
        at_s, slots = NEVER_S, 1
        for node in self.listing():
            if node.ready_at_s is not None and node.ready_at_s < at_s:
                at_s, slots = node.ready_at_s, max(1, node.slots)
        if at_s == NEVER_S:
            return None
        left_s = max(0.0, at_s - now_s)
        wait_s = left_s + ahead / slots * (self.times.mean_s() or 0.0)
        return wait_s, wait_s * LOADING_P90, wait_s, 0.0, 0

    def last_wait_s(self, rank: int, now_s: float) -> Estimate | None:
        """Return the wait of one that came last in a class, behind all there and above."""
        ahead = 0
        for queue in self.queues[: rank + 1]:
            ahead += queue.waiting
        return self.wait_s(self.queues[rank], (ahead, 0.0, 0.0, None), now_s)

    def newcomer_wait_s(self, now_s: float) -> Estimate | None:
        """Return the wait of one that came last, behind all that wait in the lane."""
        waiting, longest = 0, self.queues[0]
        for queue in self.queues[:-1]:
            waiting += queue.waiting
            if queue.waiting > longest.waiting:
                longest = queue
        return self.wait_s(longest, (waiting, 0.0, 0.0, None), now_s)
