"""How long this replica's tickets may wait, for when the leader does not say it in time.

The leader keeps the time for all. But it may be dead for most of a lease before anyone knows, or be
busy with taking over a long line, and whoever said how long it will wait should not learn of that
later. So a replica also watches those whom it has asked the leader about: `GRACE_S` after its limit
it ends a ticket itself, and says that it is gone.

**Bound.** One heap: O(log n) for each ticket that is watched. Those that have ended meanwhile are
swept out when they are more than half of it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from forebay.coordination.leader.deferred_refusals import PATIENCE_S
from forebay.core import Expire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.coordination.follower.local_ticket import Held

GRACE_S = 0.1
"""How long after its limit the leader's word on a ticket is waited for."""
SWEEP_SLACK = 64
"""Ended tickets always tolerated."""


class Patience:
    """The limits of this replica's tickets, the first to end first."""

    def __init__(self, tickets: Mapping[str, Held]) -> None:
        self._tickets = tickets
        self._heap: list[tuple[float, str, float]] = []  # when to look, whom at, its limit

    @property
    def next_s(self) -> float | None:
        """When to look next."""
        return self._heap[0][0] if self._heap else None

    def watch(self, held: Held, limit_s: float, now_s: float) -> None:
        """Look at a ticket when its limit, or the one for all, has passed."""
        if held.arrival.job:  # jobs wait for ever
            return
        if len(self._heap) > 2 * len(self._tickets) + SWEEP_SLACK:
            self._heap = [item for item in self._heap if self._waiting(item[1]) is not None]
            heapify(self._heap)
        own_s = held.arrival.max_wait_s
        limit_s = limit_s if own_s is None else min(own_s, limit_s)
        left_s = limit_s - held.waited(now_s)
        if held.stage == "asked":  # its refusal may be held back
            left_s = max(left_s, PATIENCE_S)
        if left_s < inf:
            heappush(self._heap, (now_s + left_s + GRACE_S, held.arrival.id, limit_s))

    def begin(self, limit_s: float, now_s: float) -> None:
        """Watch all that wait: somebody else leads from now on."""
        self._heap.clear()
        for held in self._tickets.values():
            if held.stage != "running":
                self.watch(held, limit_s, now_s)

    def late(self, now_s: float) -> list[Expire]:
        """Return the end of those about whom nothing was heard in time."""
        ends: dict[str, Expire] = {}  # one that came back may be here twice
        while self._heap and self._heap[0][0] <= now_s:
            _, name, limit_s = heappop(self._heap)
            held = self._waiting(name)
            if held is None:
                continue
            if held.is_late(limit_s, now_s):
                ends[name] = Expire(name, "queue_timeout", held.waited(now_s))
            else:  # it ran meanwhile
                self.watch(held, limit_s, now_s)
        return [*ends.values()]

    def _waiting(self, name: str) -> Held | None:
        held = self._tickets.get(name)
        return None if held is None or held.stage == "running" else held
