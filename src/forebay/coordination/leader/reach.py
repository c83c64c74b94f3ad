"""Which node a ticket may start on: one that its own replica knows, and reaches.

The core knows one opinion of each node. But a replica may not have heard of a node yet (it has just
started, and the guard has not found it), or may be the only one that cannot get there. A grant
there would be of no use to it, and the failure would count against its request. So the core asks
before it grants anything; the ticket keeps its place, off that node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.coordination.leader.node_views import NodeViews
    from forebay.coordination.leader.tickets import Tickets


class Reach:
    """What the replicas of the tickets can do."""

    def __init__(self, tickets: Tickets, views: NodeViews) -> None:
        self._tickets = tickets
        self._views = views

    def allows(self, ticket_id: str, node: str) -> bool:
        """Say whether a ticket's replica gets to a node."""
        ticket = self._tickets.get(ticket_id)
        return ticket is None or self._views.reaches(ticket.member.about.member, node)
