"""The leader's side of the shared queue: batches in, orders out; no I/O. It runs the one core.

**State.** All of it is soft: which replica has which ticket, what the replicas report of the nodes,
what is lent to whom. A new leader gets it from announcements (`takeover`), and a replica that
announces itself anew replaces whatever was known of it.

**Cost.** O(1) for each message beside the core's own work; one order for each replica it concerns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from forebay.coordination.leader.deferred_decisions import DeferredDecisions
from forebay.coordination.leader.lending import Lending
from forebay.coordination.leader.members import Members
from forebay.coordination.leader.node_views import NodeViews
from forebay.coordination.leader.takeover import TAKEOVER_LEASES, Takeover, first_seq
from forebay.coordination.leader.tickets import FleetTicket, FleetTickets, Member
from forebay.coordination.leader.totals import FleetTotals, observed
from forebay.coordination.protocol.messages import (
    About,
    Announced,
    Broadcast,
    Endings,
    GaveBack,
    Heartbeat,
    HeartbeatReply,
    MemberLeft,
    MemberStatus,
    Owner,
    OwnerAsked,
    ProbeNode,
    RanOnLoan,
    ReplicaBatch,
    Said,
    Up,
)
from forebay.core import (
    Arrived,
    Audit,
    Cancelled,
    Event,
    Expire,
    Finished,
    KeysUsed,
    Lent,
    NodeChanged,
    NodeRemoved,
    OptionsChanged,
    Reject,
    Resumed,
    Returned,
    Route,
    Scheduler,
    SlotsChanged,
    Snapshot,
    Ticked,
    Totals,
    Wait,
)
from forebay.errors import ForebayError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from forebay.core import Action, Options


class Leader:
    """Decides for all replicas in one epoch."""

    def __init__(
        self,
        about: About,
        epoch: int,
        options: Options,
        lease_s: float,
        expected: Iterable[str],
    ) -> None:
        self.epoch = epoch
        self.about = about
        self.errors: list[ForebayError] = []
        """Events of replicas that the core refused as invalid; to be logged."""
        self._lease_s = lease_s
        self.members = Members(about.member, epoch, expected)
        self._tickets = FleetTickets()
        self._views = NodeViews()
        self._scheduler = Scheduler(options, first_seq(epoch), self._reaches)
        self._lending = Lending(
            options, self.members, self._tickets, self._views, self._scheduler.may_lend
        )
        self._deferred = DeferredDecisions()
        self._takeover: Takeover | None = Takeover({about.member, *expected}, 0.0)
        self._next_silence_s = 0.0  # when to look next for replicas that are silent
        self._counts = FleetTotals()

    def begin(self, totals: Totals, endings: Mapping[str, Endings], now_s: float) -> None:
        """Start to lead; `totals` and `endings` were counted by the leaders before."""
        self._counts.carried, self._counts.endings = totals, dict(endings)
        if self.epoch > 1:  # what its keys used of the last minute, only the one before knew
            self._handle(KeysUsed(minute_is_used=True), now_s)
        if self._takeover is not None:
            self._takeover.until_s = now_s + TAKEOVER_LEASES * self._lease_s

    def receive(self, batch: ReplicaBatch, now_s: float) -> None:
        """Take a batch if it is the next of its replica, or its last."""
        if batch.is_last:
            self._remove_member(batch.member, now_s)
            return
        if self.members.begins_announcement(batch):
            self._begin_announcement(batch, now_s)
        member = self.members.accept(batch, now_s)
        if member is None:
            return
        takeover = self._takeover
        if takeover is None:
            for item in batch.items:
                self._take_announced(member, item, now_s)
            self._release(self._lending.withheld, now_s)
            return
        for heartbeat in takeover.keep(batch):
            self._take(member, heartbeat, now_s)
        if takeover.is_over(now_s):
            self._take_over(takeover, now_s)

    def _remove_member(self, name: str, now_s: float) -> None:
        """Free all that a replica had: it has left, no need to wait for a lease."""
        if self._takeover is not None:
            self._takeover.leave(name)
        self.forget(name, now_s)
        self.members.send_to_others(MemberLeft(name), but=name)

    def local_member(self, generation: int) -> Member | None:
        """Return this replica's own follower, once items may be passed to it without batches."""
        member = self.members.get(self.about.member)
        if self._takeover is not None or member is None or member.generation != generation:
            return None
        return member

    def receive_local(self, member: Member, items: Iterable[Up], now_s: float) -> None:
        """Take items of this replica's own follower; nothing can be lost on the way."""
        member.heard_s = now_s
        for item in items:
            self._take(member, item, now_s)

    def _begin_announcement(self, batch: ReplicaBatch, now_s: float) -> None:
        """Replace all that was known of a replica that announces itself."""
        reserved = self.forget(batch.member, now_s, announces=True)
        member = Member(About(batch.member), batch.generation, now_s)
        member.reserved = reserved
        self.members.add(member)
        if self._takeover is not None:
            self._takeover.begin(batch.member, now_s)

    def _take_over(self, takeover: Takeover, now_s: float) -> None:
        """Handle what was announced, in order, a part at a time."""
        for name, item in takeover.in_order(now_s):
            member = self.members.get(name)
            if member is not None:
                self._take_announced(member, item, now_s)
        if takeover.is_empty:
            self._takeover = None
            self._release(self._lending.withheld, now_s)

    def _take_announced(self, member: Member, item: Up, now_s: float) -> None:
        """Take an item of an announcement: nothing starts before all that wait are known."""
        if isinstance(item, Resumed):
            if not item.node:
                for lent in self._lending.withhold():
                    self._handle(lent, now_s)
        elif not isinstance(item, NodeChanged):
            self._release(self._lending.withheld, now_s)
        self._take(member, item, now_s)

    def _take(self, member: Member, item: Up, now_s: float) -> None:
        if type(item) is Arrived:  # nearly all are this or the next
            self._take_ticket(member, item, now_s)
        elif type(item) is Finished:
            self._take_event(member, item, now_s)
        else:
            self._take_other(member, item, now_s)

    def _take_other(self, member: Member, item: Up, now_s: float) -> None:
        match item:
            case Announced() | Heartbeat() | OwnerAsked() | Broadcast() | MemberLeft():
                self._take_notice(member, item, now_s)
            case GaveBack():
                slots = self._lending.loans.give_back(member.about.member, item.node, item.slots)
                self._free(item.node, slots, now_s)
            case NodeChanged() | NodeRemoved():
                self._take_view(member, item, now_s)
            case Arrived() | Resumed():
                self._take_ticket(member, item, now_s)
            case RanOnLoan():
                self._take_ended(member, item, now_s)
            case _:
                self._take_event(member, item, now_s)

    def _take_notice(self, member: Member, item: Said, now_s: float) -> None:
        match item:
            case Announced():
                member.about = item.about
                self._release(member.reserved, now_s)
                for one in self.members:  # standalone shares go by who is there
                    one.out.append(self._heartbeat_reply(one, now_s))
            case Heartbeat():
                member.heartbeat = item
                self._counts.update(member.about.member, item.endings, self.members)
                member.out.append(self._heartbeat_reply(member, now_s))
            case OwnerAsked():
                member.out.append(Owner(item.id, self._tickets.owner_of(item.id)))
            case Broadcast() | MemberLeft():
                self.members.send_to_others(item, but=member.about.member)

    def _reaches(self, ticket_id: str, node: str) -> bool:
        """Say whether a ticket's own replica knows a node, and reaches it.

        The core knows one opinion of each node, but a replica may not have heard of it yet, or may
        be the only one that cannot get there: a grant would be of no use to it, and the failure
        would count against its request. The ticket keeps its place, off that node.
        """
        ticket = self._tickets.get(ticket_id)
        return ticket is None or self._views.reaches(ticket.member.about.member, node)

    def _take_view(self, member: Member, item: NodeChanged | NodeRemoved, now_s: float) -> None:
        change, failed = self._views.take(member.about.member, item, now_s)
        if change is not None:
            self._change_node(change, now_s)
        if failed:
            self.members.send_to_others(ProbeNode(item.name), but=member.about.member)

    def _change_node(self, change: NodeChanged | NodeRemoved, now_s: float) -> None:
        self._handle(change, now_s)
        self._lending.note_change(change)

    def _free(self, node: str, slots: int, now_s: float) -> None:
        """Free slots: first for those that wait, then for deferred decisions."""
        self._handle(Lent(node, -slots), now_s)
        self._retry_deferred(node, slots, now_s)

    def _retry_deferred(self, node: str, slots: int, now_s: float) -> None:
        """Decide again about deferred tickets, as long as there are slots for them."""
        for ticket in self._deferred.fitting(self._views.merged.get(node)):
            if slots > 0:
                self._decide(ticket, ticket.arrival, now_s)
                slots -= ticket.node == node

    def _take_ticket(self, member: Member, item: Arrived | Resumed, now_s: float) -> None:
        ticket = self._tickets.add(member, item.arrival if isinstance(item, Resumed) else item)
        if ticket is None:
            return
        if isinstance(item, Resumed):
            self._counts.accepted_again += not item.lent
            self._tickets.resume(ticket, item)
            if item.lent:
                self._lending.loans.use(member.about.member, item.node, now_s)
        elif self._waits_for_loan(ticket, item, now_s):
            return
        self._decide(ticket, item, now_s)
        if isinstance(item, Resumed) and item.lent:
            self._note_use(item.node, now_s)

    def _waits_for_loan(self, ticket: FleetTicket, arrival: Arrived, now_s: float) -> bool:
        """Let a newcomer wait for a moment for a node where it ends sooner.

        Where the free slots of that node are all on loan; the leader can have them back.
        """
        nodes = self._lending.idle_for(arrival)
        if not nodes:
            return False
        node, saves_s = self._scheduler.better_on_loan(arrival, nodes)
        return saves_s > 0.0 and self._deferred.want(ticket, node, saves_s, self._lending, now_s)

    def _note_use(self, node: str, now_s: float) -> None:
        """Decide again about what is deferred for a node of which a lent slot is in use.

        Short requests are reported late: what one of them uses seemed idle.
        """
        for deferred in self._deferred.fitting(self._views.merged.get(node)):
            if not deferred.wanted or not self._lending.idle_of((node,)):
                self._decide(deferred, deferred.arrival, now_s)

    def _take_ended(self, member: Member, item: RanOnLoan, now_s: float) -> None:
        """Count requests that ran on lent slots: the last as the core counts, the others beside.

        What it learns of one is what it would learn of all: how long such a request runs. And fair
        queueing remembers nothing of what ran while nobody waited.
        """
        event = item.event
        ran_s = event.ran_s or 0.0
        ran = Resumed(item.arrival, node=item.node, attempt=1, ran_s=ran_s, lent=True)
        self._take_ticket(member, ran, now_s)
        self._take_event(member, event, now_s)
        if event.count > 1:
            self._counts.add_more(member.about.member, event.count - 1, ok=event.ok)

    def _decide(self, ticket: FleetTicket, event: Arrived | Resumed, now_s: float) -> None:
        """Have the core decide about a new ticket, or one that was deferred."""
        if ticket.wanted:
            self._deferred.drop(ticket)
        if not self._handle(event, now_s) and self._tickets.get(ticket.id) is ticket:
            self._close(ticket)
            ticket.member.out.append(Reject(ticket.id, "internal_error"))
        self._lending.recall_for_waiting(ticket)

    def _take_event(self, member: Member, event: Event, now_s: float) -> None:
        """Take an event of a replica, about one of its tickets or about none."""
        ticket_id = getattr(event, "id", None)
        if ticket_id is None:
            self._handle(event, now_s, member)
            return
        ticket = member.tickets.get(ticket_id)
        if ticket is None:
            return  # it has ended, and the replica is told, or will be
        if ticket in self._deferred and (answer := self._deferred.answer(ticket, event, now_s)):
            member.out.append(answer)  # the core has it no more
            event = Cancelled(ticket.id) if isinstance(answer, Reject) else event
        if isinstance(event, Finished | Cancelled):
            self._end(ticket, event, now_s)
            return
        if isinstance(event, Returned):
            self._leave_node(ticket)
            self._tickets.wait(ticket, waits=True)
        self._handle(event, now_s, member)
        self._lending.recall_for_waiting(ticket)

    def _end(self, ticket: FleetTicket, event: Finished | Cancelled, now_s: float) -> None:
        node, lent = ticket.node, ticket.lent
        if node and isinstance(event, Finished):
            self._counts.end(ticket.member.about.member, event)
        self._close(ticket)
        # The core ignores a `Finished` of what does not run there: the ticket would stay behind.
        self._handle(event if node else Cancelled(ticket.id), now_s)
        if node and not lent:
            self._retry_deferred(node, 1, now_s)
            if isinstance(event, Finished):
                stays = self._lending.extend_loan(ticket, node, now_s)
                if stays is not None:
                    self._handle(stays, now_s)

    def _close(self, ticket: FleetTicket) -> None:
        self._leave_node(ticket)
        self._deferred.drop(ticket)
        self._tickets.remove(ticket)

    def _leave_node(self, ticket: FleetTicket) -> None:
        if ticket.lent:
            self._lending.loans.leave(ticket.member.about.member, ticket.node)
        self._tickets.leave(ticket)

    def _handle(self, event: Event, now_s: float, asker: Member | None = None) -> bool:
        """Let the core decide; False when it refuses the event as invalid."""
        try:
            for action in self._scheduler.handle(event, now_s):
                self._send_action(action, asker, now_s)
        except ForebayError as error:
            self.errors.append(error)
            return False
        return True

    def _send_action(self, action: Action, asker: Member | None, now_s: float) -> None:
        if type(action) is not Route and isinstance(action, Snapshot | Audit | SlotsChanged):
            if isinstance(action, SlotsChanged):
                self._lending.change_slots(action)
            elif asker is not None and isinstance(action, Snapshot):
                asker.out.append(replace(action, totals=self.totals(action.totals)))
            return
        ticket = self._tickets.get(action.id)
        if ticket is None or not self._record(ticket, action, now_s):
            return
        ticket.member.out.append(action)

    def _record(self, ticket: FleetTicket, action: Action, now_s: float) -> bool:
        """Record a decision; False when a rejection is deferred."""
        if isinstance(action, Route):
            self._lending.loans.queue_is_full = False
            self._deferred.drop(ticket)
            self._tickets.run(ticket, action.node)
        elif isinstance(action, Wait):
            self._deferred.drop(ticket)
            self._tickets.wait(ticket, waits=True)
        elif isinstance(action, Reject | Expire):
            self._lending.note_ending(action)
            if self._deferred.defer(ticket, action, self._lending, now_s):
                self._counts.uncount_rejection(ticket.arrival, action.code)
                return False
            if isinstance(action, Expire):
                self._counts.end(ticket.member.about.member, action)
            self._close(ticket)
        return True

    def balance(self, now_s: float) -> None:
        """Share out idle slots; call it three times a lease."""
        if self._takeover is None:
            # First what is due in the core: it could start in the slots that are lent now.
            self._handle(Ticked(), now_s)
            for lent in self._lending.balance(self._lease_s, now_s):
                self._handle(lent, now_s)

    def tick(self, now_s: float) -> None:
        """Do what is due: in the core, deferred decisions, replicas that are silent."""
        if self._takeover is not None and self._takeover.is_over(now_s):
            self._take_over(self._takeover, now_s)
        self._handle(Ticked(), now_s)
        for ticket in self._deferred.due(now_s):
            self._decide(ticket, ticket.arrival, now_s)
        if now_s >= self._next_silence_s:
            gone, self._next_silence_s = self.members.silent(self._lease_s, now_s)
            for name in gone:
                self.forget(name, now_s)

    def next_deadline_s(self) -> float | None:
        """Return when to `tick` if nothing else happens."""
        if self._takeover is not None:
            return self._takeover.until_s
        due_s = self._scheduler.next_deadline_s()
        own_s = min(self._next_silence_s, self._deferred.next_s)
        return own_s if due_s is None else min(due_s, own_s)

    def forget(self, name: str, now_s: float, *, announces: bool = False) -> dict[str, int]:
        """End everything of a replica: its slots are free, its places in the queue are gone.

        Unless it `announces` itself anew: then its slots are reserved for it, and returned.
        """
        member = self.members.pop(name)
        if member is None:
            return {}
        reserved = member.reserved
        for ticket in list(member.tickets.values()):
            if announces and ticket.node and not ticket.lent:
                reserved[ticket.node] = reserved.get(ticket.node, 0) + 1
                self._handle(Lent(ticket.node, 1), now_s)
            self._counts.cancelled_again += announces and not self._deferred.drop(ticket)
            self._close(ticket)
            self._handle(Cancelled(ticket.id), now_s)
        for node, slots in self._lending.loans.forget(name).items():
            reserved[node] = reserved.get(node, 0) + slots
        if not announces:
            self._release(reserved, now_s)
        for change in self._views.forget(name, now_s):
            self._change_node(change, now_s)
        return reserved

    def _release(self, reserved: dict[str, int], now_s: float) -> None:
        """Free slots that were reserved for a replica."""
        while reserved:
            self._free(*reserved.popitem(), now_s)

    def change_options(self, options: Options, now_s: float) -> None:
        self._lending.loans.change_options(options)
        self._handle(OptionsChanged(options), now_s)

    def statuses(self, now_s: float) -> tuple[MemberStatus, ...]:
        return self.members.statuses(self._lending.loans, now_s)

    def _heartbeat_reply(self, member: Member, now_s: float) -> HeartbeatReply:
        endings = dict(self._counts.endings)
        return HeartbeatReply(
            member.heartbeat.stamp_s, self.totals(), endings, self.statuses(now_s)
        )

    @property
    def endings(self) -> dict[str, Endings]:
        return self._counts.endings

    def resign(self, *, leaves: bool, now_s: float) -> None:
        """Tell all replicas that this leader resigns, with all that was counted."""
        for member in self.members:
            member.out.append(self._heartbeat_reply(member, now_s))
        self.members.resign(leaves=leaves)

    def totals(self, now: Totals | None = None) -> Totals:
        """Return all that was counted, by the leaders before this one as well."""
        return self._counts.all(now or observed(self._scheduler, 0.0).totals)
