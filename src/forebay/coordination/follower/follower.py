"""One replica's side of the shared queue: events and orders in, actions and messages out; no I/O.

It keeps the state of its own tickets, so that it can announce them to the next leader; fills the
slots lent to it without asking; and forwards everything else to the leader. It accepts orders only
from the leader of its epoch, and only in the order of their numbers.

**Safety.** A ticket starts only by a `Route` of the present epoch and generation, and never while
it runs already. A loan is used only for two thirds of a lease after the last heartbeat that the
leader echoed, and the leader takes the slots back only a whole lease after it received that
heartbeat. So without a change of leader no slot has two users, whatever the clocks say: only
differences of one clock are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from forebay.coordination.follower.borrowed_slots import BorrowedSlots
from forebay.coordination.follower.local_ticket import (
    LocalTicket,
    announce_all,
    audit,
    own_picture,
    record,
)
from forebay.coordination.follower.wait_limits import WaitLimits
from forebay.coordination.leader.node_views import OwnNodeViews
from forebay.coordination.leader.totals import KnownTotals
from forebay.coordination.protocol.messages import (
    About,
    Announced,
    Broadcast,
    Down,
    GaveBack,
    Heartbeat,
    HeartbeatReply,
    Lend,
    MemberLeft,
    Orders,
    Owner,
    ProbeNode,
    Recall,
    ReplicaBatch,
    Resigned,
    Resync,
    Up,
    in_batches,
)
from forebay.core import (
    Abort,
    Arrived,
    Audited,
    Cancelled,
    Expire,
    Finished,
    Lent,
    NodeChanged,
    NodeRemoved,
    NodeRested,
    Observed,
    Options,
    OptionsChanged,
    Reject,
    Resumed,
    Returned,
    Revoked,
    Route,
    ShutDown,
    SlotsChanged,
    Snapshot,
    Ticked,
    Wait,
)
from forebay.core.arrivals import REASONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from forebay.coordination.follower.loan_reports import LoanReports
    from forebay.coordination.follower.share import Share
    from forebay.coordination.protocol.fleet import Mode
    from forebay.coordination.protocol.messages import MemberStatus
    from forebay.core import Action, Event, RejectCode

USABLE = 2 / 3
"""The part of a lease for which a loan, or leadership, is used without being renewed."""


class Outbox:
    """Messages to the leader: in order, and in numbered batches when they leave this process."""

    def __init__(self) -> None:
        self.generation = 0
        """Of the announcement that these messages follow."""
        self.items: list[Up] = []
        self._number = 0  # of the next batch

    def begin(self, announcement: Iterable[Up]) -> None:
        """Replace everything by a new announcement."""
        self.generation += 1
        self._number = 0
        self.items = [*announcement]

    def take(self) -> list[Up]:
        items, self.items = self.items, []
        return items

    def batches(self, member: str) -> list[ReplicaBatch]:
        batches = in_batches(member, self.generation, self._number, self.take())
        self._number += len(batches)
        return batches

    def last(self, member: str) -> ReplicaBatch:
        """Return the message that this replica has left; it is outside the numbering."""
        return ReplicaBatch(member, self.generation, -1, (MemberLeft(member),))


class Follower:
    """The state of one replica, independent of who is the leader."""

    def __init__(
        self,
        about: About,
        options: Options,
        lease_s: float,
        reports: LoanReports,
    ) -> None:
        self.about = about
        self.options = options
        self.reports = reports
        self._lease_s = lease_s
        self.epoch, self.leader = 0, ""
        self.share: Share | None = None
        """Of the slots, while this replica has no other leader than itself."""
        self.tickets: dict[str, LocalTicket] = {}
        self.counts = KnownTotals()
        self.replicas: tuple[MemberStatus, ...] = ()
        self.members: tuple[str, ...] = ()  # as the store said last; standalone shares go by them
        self.stopping = False
        self.on_notice: Callable[[ProbeNode | Owner | Broadcast | MemberLeft | Resigned], None] = (
            lambda _: None
        )
        self._views = OwnNodeViews()
        self._borrowed = BorrowedSlots(options)
        self.stamp_s = -lease_s
        """Of the last heartbeat that the leader echoed."""
        self._received = 0
        self.outbox = Outbox()
        """What waits to be sent to the leader."""
        self._wait_limits = WaitLimits(self.tickets)

    def post(self, event: Event, now_s: float) -> list[Action]:
        """Take an event of this replica; return what can be done without the leader."""
        if isinstance(event, Arrived):
            return self._arrive(event, now_s)
        if isinstance(event, Finished | Cancelled | Returned):
            self._update_ticket(event, now_s)
            return []
        if isinstance(event, Revoked) and self.stopping and event.id in self.tickets:
            return [Abort(event.id, event.code)]  # all run, and the leader may be gone already
        return self._take_other(event, now_s)

    def _arrive(self, arrival: Arrived, now_s: float) -> list[Action]:
        if self.stopping:
            return [rejection(arrival.id, "shutting_down")]
        if not self.leader and len(self.tickets) >= self.options.max_size + self._views.slots():
            return [rejection(arrival.id, "queue_full")]  # nobody else bounds the whole queue
        ticket = self.tickets[arrival.id] = LocalTicket(arrival, now_s)
        self._watch(ticket, now_s)
        self.send(arrival)
        return []

    def start_on_loan(self, arrival: Arrived, now_s: float) -> Route | None:
        """Start an arrival on a lent slot, of which the leader hears later."""
        if not self._borrowed.idle or not self.leader:
            return None
        if self.stopping or not self.may_use_loans(now_s):
            return None
        route = self._borrowed.start(arrival, now_s)
        if route is not None:
            self.reports.start(arrival, route, now_s)
        return route

    def end_on_loan(self, event: Finished, now_s: float) -> None:
        """End a request of which the leader has not heard."""
        node = self.reports.end(event, now_s).route.node
        self.counts.count(event)
        if owed := self._borrowed.end(event.id, node, now_s):
            self.send(GaveBack(node, owed))

    def report(self, before_s: float | None = None) -> None:
        """Tell the leader what it has not heard of: what has ended, and what runs since then.

        Without a time it is all that runs.
        """
        self._send_ended()
        for own_id in self.reports.running(before_s):
            self.report_one(own_id)

    def report_one(self, own_id: str) -> None:
        """Report a request by itself, because something happens to it that no sum can say."""
        ticket = self.reports.take_ticket(own_id)
        self.tickets[ticket.arrival.id] = ticket
        self.send(Resumed(ticket.arrival, node=ticket.node, attempt=1, lent=True))

    def _send_ended(self) -> None:
        if self.leader:
            self.outbox.items += self.reports.take_ended(self.about.member)

    def _watch(self, ticket: LocalTicket, now_s: float) -> None:
        if self.leader != self.about.member:  # a leader expires its own in time
            self._wait_limits.watch(ticket, self.options.wait_s_max, now_s)

    def may_use_loans(self, now_s: float) -> bool:
        """Say whether what the leader granted or lent may still be used."""
        return now_s < self.stamp_s + USABLE * self._lease_s

    @property
    def mode(self) -> Mode:
        if self.share is not None:
            return self.share.mode(self._views.events())
        return "coordinated" if self.leader else "seeking"

    def _update_ticket(self, event: Finished | Cancelled | Returned, now_s: float) -> None:
        ticket = self.tickets.get(event.id)
        if ticket is None:
            return
        owed, node = 0, ticket.node
        if ticket.lent:
            ticket.lent = False
            owed = self._borrowed.end(ticket.loan_id or event.id, node, now_s)
        if isinstance(event, Returned):
            ticket.requeue(now_s, exclude=event.exclude)
            self._watch(ticket, now_s)
        else:
            if isinstance(event, Finished) and ticket.stage == "running":
                self.counts.count(event)
            del self.tickets[event.id]
        self.send(event)
        if owed:
            self.send(GaveBack(node, owed))

    def _take_other(self, event: Event, now_s: float) -> list[Action]:
        match event:
            case NodeChanged():
                self._views.change(event, now_s)
                self._borrowed.change(event, now_s)
            case NodeRested():
                self._borrowed.rest(event, now_s)
            case NodeRemoved():
                self._views.remove(event.name)
                self._borrowed.remove(event.name, now_s)
            case ShutDown() | Ticked() | Audited() | OptionsChanged() | Lent():
                return self._take_local(event, now_s)
            case Observed() if not self.leader:
                views, tickets = self._views.at(now_s), self.tickets.values()
                return self._perform([own_picture(self.options, views, tickets, now_s)], now_s)
            case _:
                pass
        self.send(event)
        return []

    def _take_local(
        self, event: ShutDown | Ticked | Audited | OptionsChanged | Lent, now_s: float
    ) -> list[Action]:
        """Handle what the leader need not hear of, or hears in another way."""
        match event:
            case ShutDown():
                return self._shut_down(now_s)
            case Ticked():
                return self.tick(now_s)
            case Audited():
                self.report()
                return [audit(self.tickets)]
            case OptionsChanged():
                self.options = event.options
                self._borrowed.paced = event.options.key_limits
            case Lent():  # only cores know of them
                pass
        return []

    def send(self, item: Up) -> None:
        """Queue a message for the leader; without one, the next announcement covers it."""
        if self.leader:
            self.outbox.items.append(item)

    def _shut_down(self, now_s: float) -> list[Action]:
        """Reject all that wait here at once; the leader is told that they are gone."""
        self.stopping = True
        actions: list[Action] = []
        for name in [name for name, ticket in self.tickets.items() if ticket.stage != "running"]:
            actions.append(rejection(name, "shutting_down"))
            self._update_ticket(Cancelled(name), now_s)
        for node in self._borrowed.nodes:  # the others need not wait until the lease expires
            self._give_back(node, 0, now_s)
        return actions

    def _give_back(self, node: str, keep: int, now_s: float) -> None:
        if freed := self._borrowed.recall(node, keep, now_s):
            self.send(GaveBack(node, freed))

    def tick(self, now_s: float) -> list[Action]:
        """Expire what has waited too long where no leader does, or not in time."""
        expired = self._wait_limits.take_expired(now_s)
        for action in expired:
            self.counts.count(action)
            del self.tickets[action.id]
            self.send(Cancelled(action.id))
        return [*expired]

    def next_deadline_s(self) -> float | None:
        """Return when to `tick` if nothing happens."""
        return self._wait_limits.next_s

    def join(self, epoch: int, leader: str, now_s: float, share: Share | None = None) -> None:
        """Announce everything to a leader; with a share that is this replica itself."""
        self.report()  # to be announced with the others
        self.epoch, self.leader, self.share = epoch, leader, share
        self._received = 0
        self.stamp_s = now_s  # orders that follow from this announcement are younger than it
        self._wait_limits.restart(self.options.wait_s_max, now_s)
        self._borrowed = BorrowedSlots(self.options)
        views = self._views.at(now_s).values()
        for view in views:
            self._borrowed.change(view, now_s)
        for ticket in self.tickets.values():
            ticket.lent = False  # from now on a lease like any other
        tickets = announce_all(self.tickets.values(), now_s)
        last = (Announced(self.about), Heartbeat(now_s, self.counts.own))
        self.outbox.begin((*views, *tickets, *last))

    def seek(self, now_s: float) -> None:
        """Wait for the next leader: there is none, but the store is reachable."""
        self.report()
        if self.leader:
            self.leader, self.share = "", None
            self.outbox.items.clear()  # the next announcement covers it
            self._wait_limits.restart(self.options.wait_s_max, now_s)

    def send_heartbeat(self, now_s: float) -> None:
        self._send_ended()  # a summary after the count that holds it would count twice
        self.send(Heartbeat(now_s, self.counts.own))

    def take_batches(self) -> list[ReplicaBatch]:
        """Take the messages to the leader as numbered batches."""
        return self.outbox.batches(self.about.member) if self.outbox.items else []

    def final_batches(self) -> list[ReplicaBatch]:
        """Take the last messages before this replica leaves; nothing runs here any more."""
        if not self.leader:
            return []
        return [*self.take_batches(), self.outbox.last(self.about.member)]

    def receive(self, orders: Orders, now_s: float) -> list[Action]:
        """Take orders, unless they are late, early or from another leader."""
        if orders.epoch > self.epoch:
            self.join(orders.epoch, orders.leader, now_s)
            return []
        if not self.leader or self.share is not None or orders.epoch < self.epoch:
            return []
        number, expected = orders.number, self._received
        known = orders.leader == self.leader  # a store that lost its data may give an epoch twice
        late = orders.generation != self.outbox.generation  # for an earlier announcement
        if known and orders.are_last and (late or number != expected):
            # Whatever is missing before them, the next leader will ask for.
            return self._apply(orders.items[-1], now_s)
        if late:
            return []
        if not known or number == -1 or number > expected or not self.may_use_loans(now_s):
            # It asks for an announcement, orders are missing, or it may have forgotten us already.
            self.join(self.epoch, orders.leader, now_s)
        elif number == expected:
            self._received += 1
            return self.apply(orders.items, now_s)
        return []

    def apply(self, items: Sequence[Down], now_s: float) -> list[Action]:
        """Carry out orders, one after the other."""
        generation = self.outbox.generation
        actions: list[Action] = []
        for item in items:
            if self.outbox.generation != generation:
                break  # it has announced itself anew: the rest is void
            if type(item) is Route or type(item) is Wait:  # nearly all are
                if record(self.tickets, item, now_s):
                    actions.append(item)
            else:
                actions += self._apply(item, now_s)
        return actions

    def _apply(self, item: Down, now_s: float) -> list[Action]:
        match item:
            case Lend():
                self._borrowed.lend(item.node, item.slots, now_s)
                if self.stopping:
                    self._give_back(item.node, 0, now_s)
            case Recall():
                self.report()  # what is busy must not look idle
                self._give_back(item.node, item.keep, now_s)
            case HeartbeatReply():
                self._note_reply(item)
            case Resigned():
                self.on_notice(item)
                self.seek(now_s)
            case Resync():
                self.join(self.epoch, self.leader, now_s)
            case ProbeNode() | Owner() | Broadcast() | MemberLeft():
                self.on_notice(item)
            case _:
                return self._perform([item], now_s)
        return []

    def _note_reply(self, reply: HeartbeatReply) -> None:
        self.stamp_s = max(self.stamp_s, reply.stamp_s)
        self.counts.learn(reply.totals, reply.endings)
        if self.share is None:  # else it says nothing of the others
            self.replicas = reply.replicas

    def _perform(self, actions: list[Action], now_s: float) -> list[Action]:
        """Record decisions; leave out those about tickets that have ended."""
        done: list[Action] = []
        for action in actions:
            if not record(self.tickets, action, now_s):
                continue
            if isinstance(action, Expire):
                self.counts.count(action)
            elif isinstance(action, SlotsChanged):
                self._views.change_slots(action.name, action.slots)
            elif isinstance(action, Snapshot):
                action = replace(action, totals=self.counts.shown(action.totals, self.about.member))
            elif self.share is not None and isinstance(action, Reject):
                action = self.share.explained(action)
            done.append(action)
        return done


def rejection(ticket_id: str, code: RejectCode) -> Reject:
    """Return a refusal in the same words that the core would use."""
    return Reject(ticket_id, code, (REASONS[code],))
