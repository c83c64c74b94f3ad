"""What the leader decides: the core, with the tickets, nodes and loans of all replicas around it.

What is for a replica is appended to its `Member.out`. An event that the core refuses as invalid
ends the ticket that it is about, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from forebay.coordination.leader.deferred_decisions import DeferredDecisions
from forebay.coordination.leader.lending import Lending
from forebay.coordination.leader.node_views import NodeViews
from forebay.coordination.leader.takeover import first_seq
from forebay.coordination.leader.tickets import FleetTickets
from forebay.coordination.protocol.messages import ProbeNode
from forebay.core import (
    Audit,
    Cancelled,
    Expire,
    Finished,
    Lent,
    NodeChanged,
    NodeRemoved,
    Reject,
    Resumed,
    Returned,
    Route,
    Scheduler,
    SlotsChanged,
    Snapshot,
    Wait,
)
from forebay.errors import ForebayError

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.coordination.leader.members import Members
    from forebay.coordination.leader.tickets import FleetTicket, Member
    from forebay.coordination.leader.totals import FleetTotals
    from forebay.coordination.protocol.messages import RanOnLoan
    from forebay.core import Action, Arrived, Event, Options


class Decisions:
    """The one scheduler of an epoch."""

    def __init__(
        self,
        options: Options,
        epoch: int,
        members: Members,
        counts: FleetTotals,
        share: Callable[[NodeChanged], NodeChanged] | None,
    ) -> None:
        """`share` returns a node with the slots that may be used of it; None: all of them."""
        self.errors: list[ForebayError] = []
        """Events of replicas that the core refused as invalid; to be logged."""
        self._members = members
        self._counts = counts
        self._share = share
        self.tickets = FleetTickets()
        self.views = NodeViews()
        self.scheduler = Scheduler(options, first_seq(epoch), self._reaches)
        self.lending = Lending(options, members, self.tickets, self.views, self.scheduler.may_lend)
        self.deferred = DeferredDecisions()

    # -- nodes and their slots

    def _reaches(self, ticket_id: str, node: str) -> bool:
        """Say whether a ticket's own replica knows a node, and reaches it.

        The core knows one opinion of each node, but a replica may not have heard of it yet, or may
        be the only one that cannot get there: a grant would be of no use to it, and the failure
        would count against its request. The ticket keeps its place, off that node.
        """
        ticket = self.tickets.get(ticket_id)
        return ticket is None or self.views.reaches(ticket.member.about.member, node)

    def take_view(self, member: Member, item: NodeChanged | NodeRemoved, now_s: float) -> None:
        """Take a replica's report of a node."""
        change, failed = self.views.take(member.about.member, item, now_s)
        if change is not None:
            self._change_node(change, now_s)
        if failed:
            self._members.send_to_others(ProbeNode(item.name), but=member.about.member)

    def _change_node(self, change: NodeChanged | NodeRemoved, now_s: float) -> None:
        if self._share is not None and isinstance(change, NodeChanged):
            change = self._share(change)
        self.handle(change, now_s)
        self.lending.note_change(change)

    def change_shares(self, now_s: float) -> None:
        """Use other parts of the nodes from now on: `share` has another answer."""
        for view in list(self.views.merged.values()):
            self._change_node(view, now_s)

    def free(self, node: str, slots: int, now_s: float) -> None:
        """Free slots: first for those that wait, then for deferred decisions."""
        self.handle(Lent(node, -slots), now_s)
        self._retry_deferred(node, slots, now_s)

    def release(self, reserved: dict[str, int], now_s: float) -> None:
        """Free slots that were reserved for a replica, or withheld."""
        while reserved:
            self.free(*reserved.popitem(), now_s)

    def withhold(self, now_s: float) -> None:
        """Start nothing until `lending.withheld` is released."""
        for lent in self.lending.withhold():
            self.handle(lent, now_s)

    def balance(self, patience_s: float, now_s: float) -> None:
        """Share out idle slots."""
        for lent in self.lending.balance(patience_s, now_s):
            self.handle(lent, now_s)

    def _retry_deferred(self, node: str, slots: int, now_s: float) -> None:
        """Decide again about deferred tickets, as long as there are slots for them."""
        for ticket in self.deferred.fitting(self.views.merged.get(node)):
            if slots > 0:
                self.decide(ticket, ticket.arrival, now_s)
                slots -= ticket.node == node

    # -- tickets

    def take_ticket(self, member: Member, item: Arrived | Resumed, now_s: float) -> None:
        """Take a ticket that is new here."""
        ticket = self.tickets.add(member, item.arrival if isinstance(item, Resumed) else item)
        if ticket is None:
            return
        if isinstance(item, Resumed):
            self._counts.accepted_again += not item.lent
            self.tickets.resume(ticket, item)
            if item.lent:
                self.lending.loans.use(member.about.member, item.node, now_s)
        elif self._waits_for_loan(ticket, item, now_s):
            return
        self.decide(ticket, item, now_s)
        if isinstance(item, Resumed) and item.lent:
            self._note_use(item.node, now_s)

    def _waits_for_loan(self, ticket: FleetTicket, arrival: Arrived, now_s: float) -> bool:
        """Let a newcomer wait for a moment for a node where it ends sooner.

        Where the free slots of that node are all on loan; the leader can have them back.
        """
        nodes = self.lending.idle_for(arrival)
        if not nodes:
            return False
        node, saves_s = self.scheduler.better_on_loan(arrival, nodes)
        return saves_s > 0.0 and self.deferred.want(ticket, node, saves_s, self.lending, now_s)

    def _note_use(self, node: str, now_s: float) -> None:
        """Decide again about what is deferred for a node of which a lent slot is in use.

        Short requests are reported late: what one of them uses seemed idle.
        """
        for deferred in self.deferred.fitting(self.views.merged.get(node)):
            if not deferred.wanted or not self.lending.idle_of((node,)):
                self.decide(deferred, deferred.arrival, now_s)

    def take_ended(self, member: Member, item: RanOnLoan, now_s: float) -> None:
        """Count requests that ran on lent slots: the last as the core counts, the others beside.

        What it learns of one is what it would learn of all: how long such a request runs. And fair
        queueing remembers nothing of what ran while nobody waited.
        """
        event = item.event
        ran_s = event.ran_s or 0.0
        ran = Resumed(item.arrival, node=item.node, attempt=1, ran_s=ran_s, lent=True)
        self.take_ticket(member, ran, now_s)
        self.take_event(member, event, now_s)
        if event.count > 1:
            self._counts.add_more(member.about.member, event.count - 1, ok=event.ok)

    def take_event(self, member: Member, event: Event, now_s: float) -> None:
        """Take an event of a replica, about one of its tickets or about none."""
        ticket_id = getattr(event, "id", None)
        if ticket_id is None:
            self.handle(event, now_s, member)
            return
        ticket = member.tickets.get(ticket_id)
        if ticket is None:
            return  # it has ended, and the replica knows, or will
        if ticket in self.deferred and (answer := self.deferred.answer(ticket, event, now_s)):
            member.out.append(answer)  # the core has it no more
            event = Cancelled(ticket.id) if isinstance(answer, Reject) else event
        if isinstance(event, Finished | Cancelled):
            self._end(ticket, event, now_s)
            return
        if isinstance(event, Returned):
            self._leave_node(ticket)
            self.tickets.wait(ticket, waits=True)
        self.handle(event, now_s, member)
        self.lending.recall_for_waiting(ticket)

    def decide(self, ticket: FleetTicket, event: Arrived | Resumed, now_s: float) -> None:
        """Have the core decide about a new ticket, or one that was deferred."""
        if ticket.wanted:
            self.deferred.drop(ticket)
        if not self.handle(event, now_s) and self.tickets.get(ticket.id) is ticket:
            self._close(ticket)
            ticket.member.out.append(Reject(ticket.id, "internal_error"))
        self.lending.recall_for_waiting(ticket)

    def _end(self, ticket: FleetTicket, event: Finished | Cancelled, now_s: float) -> None:
        node, lent = ticket.node, ticket.lent
        if node and isinstance(event, Finished):
            self._counts.end(ticket.member.about.member, event)
        self._close(ticket)
        # The core ignores a `Finished` of what does not run there: the ticket would stay behind.
        self.handle(event if node else Cancelled(ticket.id), now_s)
        if node and not lent:
            self._retry_deferred(node, 1, now_s)
            if isinstance(event, Finished):
                stays = self.lending.extend_loan(ticket, node, now_s)
                if stays is not None:
                    self.handle(stays, now_s)

    def _close(self, ticket: FleetTicket) -> None:
        self._leave_node(ticket)
        self.deferred.drop(ticket)
        self.tickets.remove(ticket)

    def _leave_node(self, ticket: FleetTicket) -> None:
        if ticket.lent:
            self.lending.loans.leave(ticket.member.about.member, ticket.node)
        self.tickets.leave(ticket)

    def end_all_of(self, member: Member, now_s: float, *, announces: bool) -> dict[str, int]:
        """End everything of a replica: its slots are free, its places in the queue are gone.

        Unless it `announces` itself anew: then its slots are reserved for it, and returned.
        """
        name, reserved = member.about.member, member.reserved
        for ticket in list(member.tickets.values()):
            if announces and ticket.node and not ticket.lent:
                reserved[ticket.node] = reserved.get(ticket.node, 0) + 1
                self.handle(Lent(ticket.node, 1), now_s)
            self._counts.cancelled_again += announces and not self.deferred.drop(ticket)
            self._close(ticket)
            self.handle(Cancelled(ticket.id), now_s)
        for node, slots in self.lending.loans.forget(name).items():
            reserved[node] = reserved.get(node, 0) + slots
        if not announces:
            self.release(reserved, now_s)
        for change in self.views.forget(name, now_s):
            self._change_node(change, now_s)
        return reserved

    # -- the core

    def handle(self, event: Event, now_s: float, asker: Member | None = None) -> bool:
        """Let the core decide; False when it refuses the event as invalid."""
        try:
            for action in self.scheduler.handle(event, now_s):
                self._send_action(action, asker, now_s)
        except ForebayError as error:
            self.errors.append(error)
            return False
        return True

    def _send_action(self, action: Action, asker: Member | None, now_s: float) -> None:
        if type(action) is not Route and isinstance(action, Snapshot | Audit | SlotsChanged):
            if isinstance(action, SlotsChanged):
                self.lending.change_slots(action)
            elif asker is not None and isinstance(action, Snapshot):
                asker.out.append(replace(action, totals=self._counts.all(action.totals)))
            return
        ticket = self.tickets.get(action.id)
        if ticket is None or not self._record(ticket, action, now_s):
            return
        ticket.member.out.append(action)

    def _record(self, ticket: FleetTicket, action: Action, now_s: float) -> bool:
        """Record a decision; False when a rejection is deferred."""
        if isinstance(action, Route):
            self.lending.loans.queue_is_full = False
            self.deferred.drop(ticket)
            self.tickets.run(ticket, action.node)
        elif isinstance(action, Wait):
            self.deferred.drop(ticket)
            self.tickets.wait(ticket, waits=True)
        elif isinstance(action, Reject | Expire):
            self.lending.note_ending(action)
            if self.deferred.defer(ticket, action, self.lending, now_s):
                self._counts.uncount_rejection(ticket.arrival, action.code)
                return False
            if isinstance(action, Expire):
                self._counts.end(ticket.member.about.member, action)
            self._close(ticket)
        return True
