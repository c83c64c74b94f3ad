"""The wait limits of this replica's tickets, for when the leader does not expire them in time.

The leader expires tickets for all. But it may be dead for most of a lease before anyone knows, or
busy with taking over a long queue, and a limit that was promised must hold meanwhile. So a replica
watches its tickets as well: `GRACE_S` after the limit it expires one itself and tells the leader.

**Bound.** One heap: O(log n) for each ticket that is watched. Ended ones are swept out when they
are more than half of it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from forebay.coordination.leader.deferred_decisions import DEFER_S
from forebay.core import Expire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.coordination.follower.local_ticket import LocalTicket

GRACE_S = 0.1
"""How long after the limit the leader's decision is waited for."""
SWEEP_SLACK = 64
"""Ended tickets always tolerated."""


class WaitLimits:
    """A heap of tickets by when to look at them."""

    def __init__(self, tickets: Mapping[str, LocalTicket]) -> None:
        self._tickets = tickets
        self._heap: list[tuple[float, str, float]] = []  # when to look, whom at, its limit

    @property
    def next_s(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def watch(self, ticket: LocalTicket, limit_s: float, now_s: float) -> None:
        """Look at a ticket when its own limit, or the operator's, has passed."""
        if ticket.arrival.job:  # jobs wait for ever
            return
        if len(self._heap) > 2 * len(self._tickets) + SWEEP_SLACK:
            self._heap = [item for item in self._heap if self._waiting(item[1]) is not None]
            heapify(self._heap)
        own_s = ticket.arrival.max_wait_s
        limit_s = limit_s if own_s is None else min(own_s, limit_s)
        left_s = limit_s - ticket.waited(now_s)
        if ticket.stage == "asked":  # the leader may defer its rejection
            left_s = max(left_s, DEFER_S)
        if left_s < inf:
            heappush(self._heap, (now_s + left_s + GRACE_S, ticket.arrival.id, limit_s))

    def restart(self, limit_s: float, now_s: float) -> None:
        """Watch all that wait: there is a new leader."""
        self._heap.clear()
        for ticket in self._tickets.values():
            if ticket.stage != "running":
                self.watch(ticket, limit_s, now_s)

    def take_expired(self, now_s: float) -> list[Expire]:
        """Take those that the leader has not expired in time."""
        ends: dict[str, Expire] = {}  # one that came back may be here twice
        while self._heap and self._heap[0][0] <= now_s:
            _, name, limit_s = heappop(self._heap)
            ticket = self._waiting(name)
            if ticket is None:
                continue
            if ticket.is_late(limit_s, now_s):
                ends[name] = Expire(name, "queue_timeout", ticket.waited(now_s))
            else:  # it ran meanwhile
                self.watch(ticket, limit_s, now_s)
        return [*ends.values()]

    def _waiting(self, name: str) -> LocalTicket | None:
        ticket = self._tickets.get(name)
        return None if ticket is None or ticket.stage == "running" else ticket
