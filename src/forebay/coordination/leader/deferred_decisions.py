"""Decisions that are deferred for a moment because slots are idle on loan.

**Rejections.** A ticket that may not wait (a limit of its own, a full queue) must start where any
slot is idle, and the leader does not see at once what another replica leaves idle of a loan. So it
recalls the loans and lets the ticket arrive again whenever slots have come free, in order, until
they are taken. The rejection stands when no more slots seem idle, or after `DEFER_S`.

**Nodes.** A ticket whose session or cached prompt is on a node of which only lent slots are free
had better run there. So the loans of that node are recalled, and the core decides when one of its
slots has come free, or when none seems idle any more; after the time that the cache saves at most,
and after `DEFER_S` at most.

At most as many are deferred as slots seem idle that they could use. A rejection is decided about
again at most once for each of these slots, a choice of node once.
"""

from __future__ import annotations

from itertools import takewhile
from math import inf
from typing import TYPE_CHECKING

from forebay.coordination.leader.tickets import able
from forebay.core import Describe, Inspected, Reject, Revoked

if TYPE_CHECKING:
    from forebay.coordination.leader.lending import Lending
    from forebay.coordination.leader.tickets import FleetTicket
    from forebay.core import Event, Expire, NodeChanged

DEFER_S = 0.1
"""Enough for a message there and back; the client waits meanwhile."""
AVOIDABLE = ("queue_full", "user_queue_full", "deadline_unreachable")
"""Rejections that an idle slot would have avoided."""


def _is_avoidable(ticket: FleetTicket, ending: Reject | Expire, now_s: float) -> bool:
    """Say whether an idle slot would have let a newcomer start, and there is still time."""
    if ticket.waiting or now_s >= ticket.asked_until_s or not isinstance(ending, Reject):
        return False
    capped = ending.code == "user_queue_full" and ticket.arrival.key_running_max
    return ending.code in AVOIDABLE and not capped


class DeferredDecisions:
    """Tickets that the core has rejected, or not seen, and that are not told yet; in order."""

    def __init__(self) -> None:
        self._nodes: dict[FleetTicket, frozenset[str]] = {}  # on loan, and able to serve it
        self.next_s = inf
        """When the first of them is due."""

    def __contains__(self, ticket: FleetTicket) -> bool:
        return ticket in self._nodes

    def defer(
        self, ticket: FleetTicket, ending: Reject | Expire, lending: Lending, now_s: float
    ) -> bool:
        """Defer the rejection of a newcomer that could have a slot idle on loan; False: reject."""
        if not _is_avoidable(ticket, ending, now_s):
            return False
        nodes = lending.recall_for(ticket)
        before = [self._nodes[one] for one in takewhile(lambda one: one is not ticket, self._nodes)]
        rivals = sum(theirs <= nodes for theirs in before)  # can use no other slots than this one
        idle = lending.idle_of(lending.loans.nodes())
        if rivals >= lending.idle_of(nodes) or len(before) >= idle:
            return False
        ticket.asked_until_s = min(ticket.asked_until_s, now_s + DEFER_S)
        self._nodes[ticket] = nodes  # one that was deferred before keeps its place
        self._look_again()
        return True

    def want(
        self, ticket: FleetTicket, node: str, saves_s: float, lending: Lending, now_s: float
    ) -> bool:
        """Defer the decision about a newcomer that had better run on a node; False: decide."""
        rivals = sum(node in nodes for nodes in self._nodes.values())
        if rivals >= lending.idle_of((node,)):
            return False
        lending.recall((node,))
        ticket.wanted = node
        ticket.asked_until_s = now_s + min(saves_s, DEFER_S)
        self._nodes[ticket] = frozenset((node,))
        self._look_again()
        return True

    def drop(self, ticket: FleetTicket) -> bool:
        """Forget a ticket; return whether it was deferred."""
        if not self._nodes or self._nodes.pop(ticket, None) is None:
            return False
        if ticket.wanted:  # what may be rejected now may be deferred for any other slot
            ticket.wanted, ticket.asked_until_s = "", inf
        self._look_again()
        return True

    def answer(self, ticket: FleetTicket, event: Event, now_s: float) -> Reject | Describe | None:
        match event:
            case Revoked(code=code):
                return Reject(ticket.id, code)
            case Inspected():
                since_s = now_s if ticket.wanted else ticket.asked_until_s - DEFER_S
                waited_s = max(0.0, now_s - since_s)
                place = list(self._nodes).index(ticket) + 1
                return Describe(ticket.id, "waiting", waited_s, 0, reason="busy", position=place)
            case _:
                return None

    def fitting(self, node: NodeChanged | None) -> list[FleetTicket]:
        """Return those that could run on a node, and want no other."""
        if node is None or not self._nodes:
            return []
        return [
            ticket
            for ticket in self._nodes
            if (ticket.wanted == node.name if ticket.wanted else able(ticket.arrival, (node,)))
        ]

    def due(self, now_s: float) -> list[FleetTicket]:
        """Return those that have been deferred for long enough."""
        if now_s < self.next_s:
            return []
        return [ticket for ticket in self._nodes if ticket.asked_until_s <= now_s]

    def _look_again(self) -> None:
        self.next_s = min((ticket.asked_until_s for ticket in self._nodes), default=inf)
