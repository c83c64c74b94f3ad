"""Which idle slots are lent to whom, so that using them costs no round trip.

Two rules, both only for nodes that nobody waits for:

1. A slot stays with the replica that used it last: who had one request has the next.
2. Ahead of need, three times a lease, every other replica gets an equal part of what is idle; what
   it has beyond that and has not used for a lease is called back.

As soon as anyone waits for a node, all that is lent of it is called back: idle slots return within
a round trip, the others when what runs in them ends. Meanwhile a replica may start something newer
than what waits: at most as many as the idle slots lent to it, for as long as a message takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.coordination.leader.takeover import KEPT
from forebay.coordination.leader.tickets import able
from forebay.coordination.protocol.messages import Lend, Recall
from forebay.core import Expire, Lent, NodeRemoved

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from forebay.coordination.leader.members import Members
    from forebay.coordination.leader.node_views import NodeViews
    from forebay.coordination.leader.tickets import Member, Ticket, Tickets
    from forebay.core import NodeChanged, Options, Reject


class Loan:
    """What one replica has of one node."""

    __slots__ = ("busy", "recalled", "slots", "used_s")

    def __init__(self, now_s: float) -> None:
        self.slots = 0  # lent, used or not
        self.busy = 0  # of those, in use as far as we know
        self.recalled = False  # whether it was told to give back
        self.used_s = now_s


class Loans:
    """All loans, by node and replica."""

    def __init__(self, options: Options) -> None:
        self._loans: dict[str, dict[str, Loan]] = {}
        self.line_is_full = False
        """Whether someone was refused for want of a place, and none has become free since."""
        self.change_options(options)

    def change_options(self, options: Options) -> None:
        """Take new limits: where nothing may wait, who finds no slot is refused: none is lent."""
        self._allowed = (
            options.enabled
            and options.max_size > 0
            and options.wait_s_max > 0
            and options.queue_streams
        )

    def is_too_much(self, node: NodeChanged, busy: int) -> bool:
        """Say whether too much is lent of a node: it drains, has failed, or has shrunk.

        Nothing is lent while the line is full: who comes now can only start at once or be refused,
        and must find whatever is idle.
        """
        if not self._allowed or self.line_is_full or node.state != "online":
            return True
        return busy + self.idle_of(node.name) > node.slots

    def lend(self, member: str, node: str, slots: int, now_s: float) -> Lend:
        """Lend more; the core must hear of it before anything else happens."""
        loan = self._loans.setdefault(node, {}).setdefault(member, Loan(now_s))
        loan.slots += slots
        loan.recalled = False
        return Lend(node, slots)

    def may_stay(self, member: str, node: str) -> bool:
        """Say whether a slot may stay with whoever used it: not while it is being called back."""
        loan = self._loans.get(node, {}).get(member)
        return loan is None or not loan.recalled

    def use(self, member: str, node: str, now_s: float) -> None:
        """Take note that a replica filled a slot of its loan."""
        loan = self._loans.get(node, {}).get(member)
        if loan is not None:
            loan.busy += 1
            loan.used_s = now_s

    def leave(self, member: str, node: str) -> None:
        """Take note that what ran in a loan has ended."""
        loan = self._loans.get(node, {}).get(member)
        if loan is not None:
            loan.busy = max(0, loan.busy - 1)

    def give_back(self, member: str, node: str, slots: int) -> int:
        """Take slots back; return how many that really are."""
        loan = self._loans.get(node, {}).get(member)
        if loan is None:
            return 0
        slots = min(slots, loan.slots)
        loan.slots -= slots
        if not loan.slots:
            self._drop(member, node)
        return slots

    def forget(self, member: str) -> dict[str, int]:
        """Take everything back from a replica that is gone, or has announced anew; by node."""
        nodes = [node for node, loans in self._loans.items() if member in loans]
        return {node: self._drop(member, node).slots for node in nodes}

    def nodes(self) -> list[str]:
        """Return the nodes of which anything is lent."""
        return list(self._loans)

    def of(self, nodes: Mapping[str, NodeChanged]) -> list[NodeChanged]:
        """Return those of which anything is lent: none, as soon as all of them are wanted."""
        return [nodes[name] for name in self._loans if name in nodes]

    def recall(self, nodes: Iterable[str]) -> list[tuple[str, Recall]]:
        """Call back all that is lent of some nodes, once; return the orders by replica."""
        orders: list[tuple[str, Recall]] = []
        for node in nodes:
            for member, loan in self._loans.get(node, {}).items():
                if not loan.recalled:
                    loan.recalled = True
                    orders.append((member, Recall(node)))
        return orders

    def balance(
        self, node: NodeChanged, busy: int, members: list[str], patience_s: float, now_s: float
    ) -> list[tuple[str, Lend | Recall]]:
        """Share out what is idle of a node that nobody waits for; `members` are the others."""
        orders: list[tuple[str, Lend | Recall]] = []
        loans = self._loans.get(node.name, {})
        idle_lent = self.idle_of(node.name)
        idle = max(0, node.slots - busy - idle_lent)
        part = (idle + idle_lent) // (len(members) + 1)
        for member in members:
            loan = loans.get(member)
            has = 0 if loan is None else loan.slots - loan.busy
            if has < part and idle and (loan is None or not loan.recalled):
                slots = min(part - has, idle)
                idle -= slots
                orders.append((member, self.lend(member, node.name, slots, now_s)))
            elif loan is not None and has > part and now_s - loan.used_s > patience_s:
                orders.append((member, Recall(node.name, loan.busy + part)))
        return orders

    def lent_to(self, member: str) -> int:
        """Return how many slots a replica has, used or not."""
        return sum(loans[member].slots for loans in self._loans.values() if member in loans)

    def idle_of(self, node: str) -> int:
        """Return how many lent slots of a node are not in use, as far as we know."""
        return sum(loan.slots - loan.busy for loan in self._loans.get(node, {}).values())

    def _drop(self, member: str, node: str) -> Loan:
        loans = self._loans[node]
        loan = loans.pop(member)
        if not loans:
            del self._loans[node]
        return loan


class Lending:
    """Decides which loans are made and called back, by who waits for what.

    Every change of what the core may use is returned as a `Lent`, which the core must take before
    anything else happens.
    """

    def __init__(
        self, options: Options, members: Members, tickets: Tickets, views: NodeViews
    ) -> None:
        self.loans = Loans(options)
        self._members = members
        self._tickets = tickets
        self._views = views
        self.kept: dict[str, int] = {}
        """Slots by node that nobody gets while those who wait are announced."""

    def keep(self) -> list[Lent]:
        """Keep all back, until the core has back what is `kept`."""
        if self.kept:
            return []
        self.kept.update(dict.fromkeys(self._views.merged, KEPT))
        return [Lent(node, slots) for node, slots in self.kept.items()]

    def note_ending(self, ending: Reject | Expire) -> None:
        """Know whether there is a place in the line: who was just refused found none."""
        if isinstance(ending, Expire):
            self.loans.line_is_full = False
        elif ending.code == "queue_full":
            self.loans.line_is_full = True
            self._call_back(self.loans.nodes())

    def note_change(self, change: NodeChanged | NodeRemoved) -> None:
        """Call back what a node does not have any more."""
        busy = self._tickets.busy(change.name)
        if isinstance(change, NodeRemoved) or self.loans.is_too_much(change, busy):
            self._call_back([change.name])

    def make_way_for(self, ticket: Ticket) -> None:
        """Let nobody fill slots by itself that someone waits for."""
        if ticket.waiting:
            self.call_back_for(ticket)

    def call_back_for(self, ticket: Ticket) -> frozenset[str]:
        """Call back what a ticket could use; return of which nodes that is."""
        names = able(ticket, self.loans.of(self._views.merged))
        self._call_back(names)
        return frozenset(names)

    def idle_of(self, nodes: Iterable[str]) -> int:
        """Return how many slots of some nodes seem idle on loan."""
        return sum(map(self.loans.idle_of, nodes))

    def _call_back(self, nodes: Iterable[str]) -> None:
        for name, recall in self.loans.recall(nodes):
            self._members.say(name, recall)

    def let_stay(self, member: Member, node: str, now_s: float) -> Lent | None:
        """Leave a slot with another replica that used it, where nobody waits for it."""
        name, loans, view = member.about.member, self.loans, self._views.merged.get(node)
        if name == self._members.me or view is None or not loans.may_stay(name, node):
            return None
        busy = self._tickets.busy(node) + 1  # with the one that would stay
        if loans.is_too_much(view, busy) or self._tickets.is_wanted(view):
            return None
        member.out.append(loans.lend(name, node, 1, now_s))
        return Lent(node, 1)

    def balance(self, patience_s: float, now_s: float) -> list[Lent]:
        """Share out what is idle."""
        lent: list[Lent] = []
        members = [member.about.member for member in self._members.others()]
        for node in self._views.merged.values():
            busy = self._tickets.busy(node.name)
            if self.loans.is_too_much(node, busy) or self._tickets.is_wanted(node):
                self._call_back([node.name])
                continue
            others = [name for name in members if self._views.reaches(name, node.name)]
            for name, order in self.loans.balance(node, busy, others, patience_s, now_s):
                if isinstance(order, Lend):
                    lent.append(Lent(node.name, order.slots))
                self._members.say(name, order)
        return lent
