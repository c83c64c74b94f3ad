"""Counts everything a second time, and compares the scheduler's own picture with it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.core.actions import Audit, Describe
    from forebay.core.snapshot import Snapshot
    from forebay.testing.simulation.mirror import Mirror, Ticket

TOLERANCE_S = 1e-6


class Census:
    """What has happened so far, by kind."""

    def __init__(self) -> None:
        self.enqueued = 0
        self.returned = 0
        self.rejected: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()

    def end(self, how: str) -> None:
        """Count one accepted ticket that is over."""
        self._ended[how] += 1

    def check(self, seen: Snapshot, mirror: Mirror) -> None:
        """Compare a snapshot with the mirror, and the totals with what was counted."""
        tickets = mirror.tickets.values()
        jobs = [ticket for ticket in tickets if ticket.arrived.job]
        live = [ticket for ticket in tickets if not ticket.arrived.job]
        expected = {
            "waiting": mirror.waiting,
            "running": sum(ticket.state == "running" for ticket in live),
            "waiting_bytes": mirror.waiting_bytes,
            "waiting_jobs": sum(ticket.state == "waiting" for ticket in jobs),
            "running_jobs": sum(ticket.state == "running" for ticket in jobs),
        }
        found = {name: getattr(seen, name) for name in expected}
        assert found == expected, f"the snapshot says {found}, true is {expected}"
        self._check_nodes(seen, mirror)
        self._check_totals(seen, mirror)

    def check_leases(self, seen: Audit, mirror: Mirror) -> None:
        """Compare the leases with what runs."""
        found = {lease.id: lease.node for lease in seen.leases}
        running = (one for one in mirror.tickets.values() if one.state == "running")
        expected = {ticket.arrived.id: ticket.node for ticket in running}
        assert found == expected, f"the leases are {found}, true is {expected}"
        assert seen.tickets == len(mirror.tickets), f"{seen.tickets} tickets are {mirror.tickets}"

    def _check_nodes(self, seen: Snapshot, mirror: Mirror) -> None:
        shown = {node.name: (node.slots, node.in_flight, node.state) for node in seen.nodes}
        expected = {
            node.name: (node.slots, len(node.leases), node.state)
            for node in mirror.nodes.values()
            if not node.removed
        }
        assert shown == expected, f"the snapshot shows {shown}, true is {expected}"
        for lane in seen.lanes:
            kept = mirror.lanes.get((lane.model, lane.family), {})
            waiting = sum(not ticket.arrived.job for ticket in kept)
            assert lane.waiting <= waiting, f"{lane} has {waiting} waiting"

    def _check_totals(self, seen: Snapshot, mirror: Mirror) -> None:
        expected = {
            "accepted": mirror.accepted,
            "enqueued": self.enqueued,
            "returned": self.returned,
            **{name: self._ended[name] for name in ("served", "failed", "expired", "cancelled")},
        }
        shown = {name: getattr(seen.totals, name) for name in expected}
        assert shown == expected, f"the totals say {shown}, true is {expected}"
        ended = sum(self._ended.values())
        assert ended + len(mirror.tickets) == mirror.accepted, "a ticket got lost"

    def check_description(self, ticket: Ticket, seen: Describe, mirror: Mirror) -> None:
        """Compare what a waiter is told about itself."""
        assert seen.state == ticket.state, f"{seen} is {ticket.state}"
        assert abs(seen.waited_s - ticket.total_wait_s(mirror.now_s)) <= TOLERANCE_S, (
            f"{seen} waited {ticket.total_wait_s(mirror.now_s)}"
        )
        if ticket.state == "running":
            assert (seen.node, seen.attempt) == (ticket.node, ticket.attempt)
        elif seen.position is not None:
            assert 1 <= seen.position <= len(mirror.tickets), f"{seen} stands nowhere"
