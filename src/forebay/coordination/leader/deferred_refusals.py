"""Those who were refused while slots are idle on loan: their refusal is held back for a moment.

Who may not wait (a limit of its own, a full line) must start where anything at all is idle, and the
leader does not see at once what another replica leaves idle of a loan. So it calls the loans back
and lets the ticket arrive again whenever slots have come free, in order, until they are taken; the
answer stands when no more seem idle, or after `PATIENCE_S`.

At most as many are held back as slots seem idle, and for those that a ticket could use; each asks
again at most once for each of them.
"""

from __future__ import annotations

from itertools import takewhile
from math import inf
from typing import TYPE_CHECKING

from forebay.coordination.leader.tickets import able
from forebay.core import Describe, Inspected, Reject, Revoked

if TYPE_CHECKING:
    from forebay.coordination.leader.lending import Lending
    from forebay.coordination.leader.tickets import Ticket
    from forebay.core import Event, Expire, NodeChanged

PATIENCE_S = 0.1
"""Enough for a message there and back; who may not wait is waiting meanwhile."""
SPARED = ("queue_full", "user_queue_full", "deadline_unreachable")
"""Refusals that an idle slot would have spared."""


def _is_spared(ticket: Ticket, ending: Reject | Expire, now_s: float) -> bool:
    """Say whether an idle slot would have let a newcomer start, and there is still time for it."""
    if ticket.waiting or now_s >= ticket.asked_until_s or not isinstance(ending, Reject):
        return False
    capped = ending.code == "user_queue_full" and ticket.arrival.key_running_max
    return ending.code in SPARED and not capped


class Parking:
    """Tickets that the core has refused, in order; they stay until they are answered."""

    def __init__(self) -> None:
        self._nodes: dict[Ticket, frozenset[str]] = {}  # on loan, and of use to it
        self.next_s = inf
        """When the first of them has been there for long enough."""

    def __contains__(self, ticket: Ticket) -> bool:
        return ticket in self._nodes

    def hold_back(
        self, ticket: Ticket, ending: Reject | Expire, lending: Lending, now_s: float
    ) -> bool:
        """Keep a newcomer for a moment, or for longer, that could have a slot idle on loan."""
        if not _is_spared(ticket, ending, now_s):
            return False
        nodes = lending.call_back_for(ticket)
        before = [self._nodes[one] for one in takewhile(lambda one: one is not ticket, self._nodes)]
        rivals = sum(held <= nodes for held in before)  # who can only have what it could
        idle = lending.idle_of(lending.loans.nodes())
        if rivals >= lending.idle_of(nodes) or len(before) >= idle:
            return False
        ticket.asked_until_s = min(ticket.asked_until_s, now_s + PATIENCE_S)
        self._nodes[ticket] = nodes  # one that was here keeps its place
        self._look_again()
        return True

    def drop(self, ticket: Ticket) -> bool:
        """Forget a ticket; say whether it was here."""
        if not self._nodes or self._nodes.pop(ticket, None) is None:
            return False
        self._look_again()
        return True

    def answer(self, ticket: Ticket, event: Event, now_s: float) -> Reject | Describe | None:
        """Answer an event about one of them: as far as anyone can see, it waits."""
        match event:
            case Revoked(code=code):
                return Reject(ticket.id, code)
            case Inspected():
                waited_s = max(0.0, now_s - (ticket.asked_until_s - PATIENCE_S))
                place = list(self._nodes).index(ticket) + 1
                return Describe(ticket.id, "waiting", waited_s, 0, reason="busy", position=place)
            case _:
                return None

    def fitting(self, node: NodeChanged | None) -> list[Ticket]:
        """Return those that slots of a node are of use to."""
        if node is None or not self._nodes:
            return []
        return [ticket for ticket in self._nodes if able(ticket, (node,))]

    def due(self, now_s: float) -> list[Ticket]:
        """Return those that have been here for long enough."""
        if now_s < self.next_s:
            return []
        return [ticket for ticket in self._nodes if ticket.asked_until_s <= now_s]

    def _look_again(self) -> None:
        self.next_s = min((ticket.asked_until_s for ticket in self._nodes), default=inf)
