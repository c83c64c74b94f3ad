"""The one core, asked for all replicas: what it decides, less what a replica could not do.

The core knows one opinion of each node. But a replica may not have heard of a node yet (it has just
started, and the guard has not found it), or may be the only one that cannot get there. A grant
there would be of no use to it, and the failure would count against its request. So such a grant is
taken back in the same step, before anyone hears of it: the ticket keeps its place, off that node.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from forebay.core import Describe, Inspected, Returned, Route, Wait

if TYPE_CHECKING:
    from forebay.coordination.node_views import NodeViews
    from forebay.coordination.tickets import Tickets
    from forebay.core import Action, Event, Scheduler


class Deciding:
    """Turns events into actions that replicas can perform."""

    def __init__(self, scheduler: Scheduler, tickets: Tickets, views: NodeViews) -> None:
        self._scheduler = scheduler
        self._tickets = tickets
        self._views = views

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Take one event; return what must be done about it, in order. Raises as the core does."""
        actions = self._scheduler.handle(event, now_s)
        for action in actions:
            if type(action) is Route and self._is_astray(action):
                return self._put_right(actions, now_s)
        return actions

    def _put_right(self, actions: list[Action], now_s: float) -> list[Action]:
        found = deque(actions)
        kept: list[Action] = []
        while found:
            action = found.popleft()
            if isinstance(action, Route) and self._is_astray(action):
                found.extendleft(reversed(self._take_back(action, now_s)))
            else:
                kept.append(action)
        return kept

    def _is_astray(self, route: Route) -> bool:
        ticket = self._tickets.get(route.id)
        if ticket is None:
            return False
        return not self._views.reaches(ticket.member.about.member, route.node)

    def _take_back(self, route: Route, now_s: float) -> list[Action]:
        """Return what follows when a ticket does not start there; it is told that it waits."""
        actions = self._scheduler.handle(Returned(route.id, begun=False), now_s)
        ticket = self._tickets.get(route.id)
        decided = any(getattr(action, "id", None) == route.id for action in actions)
        if decided or ticket is None or ticket.waiting:
            return actions
        return [*actions, *self._told_to_wait(route, now_s)]

    def _told_to_wait(self, route: Route, now_s: float) -> list[Action]:
        return [
            Wait(seen.id, seen.reason or "busy", seen.position or 1, seen.estimate_s, seen.p50_s,
                 seen.p90_s, route.seq)
            for seen in self._scheduler.handle(Inspected(route.id), now_s)
            if isinstance(seen, Describe) and seen.id == route.id
        ]  # fmt: skip
