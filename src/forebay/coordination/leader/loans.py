"""The leader's loans at work: who is asked to give back what, and for whom.

`lending` says what is lent and what may be; here that is held against who waits. Every change of
what the core may use comes back as a `Lent`, which it must take before anything else happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.coordination.leader.lending import Lending
from forebay.coordination.leader.takeover import KEPT
from forebay.coordination.leader.tickets import able
from forebay.coordination.protocol.messages import Lend
from forebay.core import Expire, Lent, NodeRemoved

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from forebay.coordination.leader.members import Members
    from forebay.coordination.leader.node_views import NodeViews
    from forebay.coordination.leader.tickets import Member, Ticket, Tickets
    from forebay.core import NodeChanged, Options, Reject


class Loans:
    """What is lent of the nodes that nobody waits for."""

    def __init__(
        self, options: Options, members: Members, tickets: Tickets, views: NodeViews
    ) -> None:
        self.lending = Lending(options)
        self._members = members
        self._tickets = tickets
        self._views = views
        self.kept: dict[str, int] = {}
        """Slots by node that nobody gets while those who wait are announced."""

    def keep(self) -> Iterator[Lent]:
        """Keep all back, until the core has back what is `kept`."""
        if not self.kept:
            self.kept.update(dict.fromkeys(self._views.merged, KEPT))
            yield from (Lent(node, slots) for node, slots in self.kept.items())

    def note_ending(self, ending: Reject | Expire) -> None:
        """Know whether there is a place in the line: who was just refused found none."""
        if isinstance(ending, Expire):
            self.lending.line_is_full = False
        elif ending.code == "queue_full":
            self.lending.line_is_full = True
            self._call_back(self.lending.nodes())

    def note_change(self, change: NodeChanged | NodeRemoved) -> None:
        """Call back what a node does not have any more."""
        busy = self._tickets.busy(change.name)
        if isinstance(change, NodeRemoved) or self.lending.is_too_much(change, busy):
            self._call_back([change.name])

    def make_way_for(self, ticket: Ticket) -> None:
        """Let nobody fill slots by itself that someone waits for."""
        if ticket.waiting:
            self.call_back_for(ticket)

    def call_back_for(self, ticket: Ticket) -> frozenset[str]:
        """Call back what a ticket could use; return of which nodes that is."""
        names = able(ticket, self.lending.of(self._views.merged))
        self._call_back(names)
        return frozenset(names)

    def idle_of(self, nodes: Iterable[str]) -> int:
        """Return how many slots of some nodes seem idle on loan."""
        return sum(map(self.lending.idle_of, nodes))

    def _call_back(self, nodes: Iterable[str]) -> None:
        for name, recall in self.lending.recall(nodes):
            self._members.say(name, recall)

    def let_stay(self, member: Member, node: str, now_s: float) -> Iterator[Lent]:
        """Leave a slot with another replica that used it, where nobody waits for it."""
        name, lending, view = member.about.member, self.lending, self._views.merged.get(node)
        if name == self._members.me or view is None or not lending.may_stay(name, node):
            return
        busy = self._tickets.busy(node) + 1  # with the one that would stay
        if not lending.is_too_much(view, busy) and not self._tickets.is_wanted(view):
            member.out.append(lending.lend(name, node, 1, now_s))
            yield Lent(node, 1)

    def balance(self, patience_s: float, now_s: float) -> Iterator[Lent]:
        """Share out what is idle."""
        members = [member.about.member for member in self._members.others()]
        for node in self._views.merged.values():
            busy = self._tickets.busy(node.name)
            if self.lending.is_too_much(node, busy) or self._tickets.is_wanted(node):
                self._call_back([node.name])
                continue
            others = [name for name in members if self._views.reaches(name, node.name)]
            for name, order in self.lending.balance(node, busy, others, patience_s, now_s):
                if isinstance(order, Lend):
                    yield Lent(node.name, order.slots)
                self._members.say(name, order)
