"""Which idle slots are lent to whom, so that using them costs no round trip.

Two rules, both only for nodes that nobody waits for:

1. A slot stays with the replica that used it last: its next request is likely to need it. But not
   after a request that goes by node, for a session or a cached prompt: the leader alone knows where
   the next such request must go, which then would find its node full.
2. Three times a lease every replica gets an equal part of what is idle; what it has beyond
   that and has not used for a lease is recalled.

As soon as anything waits for a node, all that is lent of it is recalled: idle slots return within a
round trip, the others when what runs in them ends. Meanwhile a replica may start something newer
than what waits: at most as many as the idle slots lent to it, for as long as a message takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.coordination.leader.takeover import WITHHELD
from forebay.coordination.leader.tickets import able, goes_by_node
from forebay.coordination.protocol.messages import Lend, Recall
from forebay.core import Expire, Lent, NodeRemoved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from forebay.coordination.leader.members import Members
    from forebay.coordination.leader.node_views import NodeViews
    from forebay.coordination.leader.tickets import FleetTicket, FleetTickets
    from forebay.core import Arrived, NodeChanged, Options, Reject, SlotsChanged


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

    def __init__(self, options: Options, may_lend: Callable[[str], bool]) -> None:
        """`may_lend`: whether nobody would rather have another node, by name."""
        self._may_lend = may_lend
        self._loans: dict[str, dict[str, Loan]] = {}
        self.queue_is_full = False
        """Whether something was refused for want of a place, and none has become free since."""
        self.change_options(options)

    def change_options(self, options: Options) -> None:
        """Lend nothing where nothing may wait: what finds no slot is refused, so none may hide."""
        self._allowed = (
            options.enabled
            and options.max_size > 0
            and options.wait_s_max > 0
            and options.queue_streams
        )

    def must_recall(self, node: NodeChanged, busy: int) -> bool:
        """Say whether too much is lent of a node: it drains, has failed, or has shrunk.

        Nothing is lent while the queue is full: a newcomer can only start at once or be refused,
        and must find whatever is idle. Nor of a node that tells what its cache has room for: who
        borrows a slot does not know what others have started there. Nor of one that is slower than
        another: who borrows it would use it where waiting for the faster one is better.
        """
        if node.kv_free_tokens >= 0 or not self._may_lend(node.name):
            return True
        if not self._allowed or self.queue_is_full or node.state != "online":
            return True
        return busy + self.idle_of(node.name) > node.slots

    def lend(self, member: str, node: str, slots: int, now_s: float) -> Lend:
        """Lend more; the core must hear of it before anything else happens."""
        loan = self._loans.setdefault(node, {}).setdefault(member, Loan(now_s))
        loan.slots += slots
        loan.recalled = False
        return Lend(node, slots)

    def may_extend(self, member: str, node: str) -> bool:
        """Say whether a slot may stay with the replica that used it: not while it is recalled."""
        loan = self._loans.get(node, {}).get(member)
        return loan is None or not loan.recalled

    def use(self, member: str, node: str, now_s: float) -> None:
        loan = self._loans.get(node, {}).get(member)
        if loan is not None:
            loan.busy += 1
            loan.used_s = now_s

    def leave(self, member: str, node: str) -> None:
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
        return list(self._loans)

    def of(self, nodes: Mapping[str, NodeChanged]) -> list[NodeChanged]:
        """Return those of which anything is lent."""
        return [nodes[name] for name in self._loans if name in nodes]

    def recall(self, nodes: Iterable[str]) -> list[tuple[str, Recall]]:
        """Recall all that is lent of some nodes, once; return the orders by replica."""
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
    """Decides which loans are made and recalled, by what waits.

    Every change of what the core may use is returned as a `Lent`, which the core must take before
    anything else happens.
    """

    def __init__(
        self,
        options: Options,
        members: Members,
        tickets: FleetTickets,
        views: NodeViews,
        may_lend: Callable[[str], bool],
    ) -> None:
        self.loans = Loans(options, may_lend)
        self._members = members
        self._tickets = tickets
        self._views = views
        self.withheld: dict[str, int] = {}
        """Slots by node that the core may not use while waiting tickets are announced."""

    def withhold(self) -> list[Lent]:
        """Withhold all slots until `withheld` is given back to the core."""
        if self.withheld:
            return []
        self.withheld.update(dict.fromkeys(self._views.merged, WITHHELD))
        return [Lent(node, slots) for node, slots in self.withheld.items()]

    def note_ending(self, ending: Reject | Expire) -> None:
        """Note whether the queue is full; recall all loans when it is."""
        if isinstance(ending, Expire):
            self.loans.queue_is_full = False
        elif ending.code == "queue_full":
            self.loans.queue_is_full = True
            self.recall(self.loans.nodes())

    def note_change(self, change: NodeChanged | NodeRemoved) -> None:
        """Recall the loans of a node that is gone, fails or has shrunk."""
        busy = self._tickets.busy(change.name)
        if isinstance(change, NodeRemoved) or self.loans.must_recall(change, busy):
            self.recall([change.name])

    def change_slots(self, change: SlotsChanged) -> None:
        """Lend by the number that the core has found, and have all members log and show it."""
        view = self._views.change_slots(change.name, change.slots)
        if view is not None:
            self.note_change(view)
        for member in self._members:
            member.out.append(change)

    def recall_for_waiting(self, ticket: FleetTicket) -> None:
        """Recall what a ticket could use, if it waits."""
        if ticket.waiting:
            self.recall_for(ticket)

    def recall_for(self, ticket: FleetTicket) -> frozenset[str]:
        """Recall what a ticket could use; return the nodes."""
        names = able(ticket.arrival, self.loans.of(self._views.merged))
        self.recall(names)
        return frozenset(names)

    def idle_for(self, arrival: Arrived) -> list[str]:
        """Return the nodes with idle slots on loan that a ticket could use, where none waits."""
        nodes = [
            node for node in self.loans.of(self._views.merged) if self.loans.idle_of(node.name)
        ]
        return able(arrival, [node for node in nodes if not self._tickets.is_wanted(node)])

    def idle_of(self, nodes: Iterable[str]) -> int:
        """Return how many slots of some nodes seem idle on loan."""
        return sum(map(self.loans.idle_of, nodes))

    def recall(self, nodes: Iterable[str]) -> None:
        for name, recall in self.loans.recall(nodes):
            self._members.send_to(name, recall)

    def extend_loan(self, ticket: FleetTicket, node: str, now_s: float) -> Lent | None:
        """Lend a slot to the replica that just used it, where nothing waits for it."""
        member, loans, view = ticket.member, self.loans, self._views.merged.get(node)
        name = member.about.member
        if goes_by_node(ticket.arrival, self._views.merged.values()):
            return None
        if view is None or not loans.may_extend(name, node):
            return None
        busy = self._tickets.busy(node) + 1  # with the one that would stay
        if loans.must_recall(view, busy) or self._tickets.is_wanted(view):
            return None
        member.out.append(loans.lend(name, node, 1, now_s))
        return Lent(node, 1)

    def balance(self, patience_s: float, now_s: float) -> list[Lent]:
        """Share out idle slots; the orders are sent to the members."""
        lent: list[Lent] = []
        members = [member.about.member for member in self._members]
        for node in self._views.merged.values():
            busy = self._tickets.busy(node.name)
            if self.loans.must_recall(node, busy) or self._tickets.is_wanted(node):
                self.recall([node.name])
                continue
            others = [name for name in members if self._views.reaches(name, node.name)]
            for name, order in self.loans.balance(node, busy, others, patience_s, now_s):
                if isinstance(order, Lend):
                    lent.append(Lent(node.name, order.slots))
                self._members.send_to(name, order)
        return lent
