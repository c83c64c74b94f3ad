"""The leader's side of the shared queue: pure, batches in, orders out. It runs the one core.

**State.** All of it is soft: which replica has which ticket, what the replicas say of the nodes,
what is lent to whom. A new leader gets it from announcements (`gathering`), and a replica that
announces anew replaces whatever was known of it.

**Cost.** O(1) for each message beside the core's own work; one order for each replica it concerns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from forebay.coordination.leader.deferred_refusals import Parking
from forebay.coordination.leader.lending import Lending
from forebay.coordination.leader.members import Members
from forebay.coordination.leader.node_views import NodeViews
from forebay.coordination.leader.takeover import GATHER, Gathering, first_seq
from forebay.coordination.leader.tickets import Member, Ticket, Tickets
from forebay.coordination.leader.totals import Counts, observed
from forebay.coordination.protocol.messages import (
    About,
    Announced,
    Asked,
    Batch,
    Endings,
    GaveBack,
    Left,
    Look,
    Owner,
    Pulse,
    Said,
    Signed,
    Standing,
    Told,
    Up,
)
from forebay.core import (
    Arrived,
    Audit,
    Cancelled,
    Event,
    Expire,
    Finished,
    Lent,
    NodeChanged,
    NodeRemoved,
    OptionsChanged,
    Reject,
    Resumed,
    Returned,
    Route,
    Scheduler,
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
    """Decides for all."""

    def __init__(
        self, about: About, epoch: int, options: Options, lease_s: float, expected: Iterable[str]
    ) -> None:
        self.epoch = epoch
        self.about = about
        self.mistakes: list[ForebayError] = []
        """What replicas asked for that cannot be; to be logged."""
        self._lease_s = lease_s
        self.members = Members(about.member, epoch, expected)
        self._tickets = Tickets()
        self._views = NodeViews()
        self._scheduler = Scheduler(options, first_seq(epoch), self._reaches)
        self._lending = Lending(options, self.members, self._tickets, self._views)
        self._parking = Parking()
        self._gathering: Gathering | None = Gathering({about.member, *expected}, 0.0)
        self._next_silence_s = 0.0  # when to see next who has not been heard of
        self._counts = Counts()

    def begin(self, totals: Totals, endings: Mapping[str, Endings], now_s: float) -> None:
        """Start to lead; `totals` and `endings` are what was counted before."""
        self._counts.carried, self._counts.endings = totals, dict(endings)
        if self._gathering is not None:
            self._gathering.until_s = now_s + GATHER * self._lease_s

    def receive(self, batch: Batch, now_s: float) -> None:
        """Take what one replica says, if it is the next thing it said, or the last."""
        if batch.is_last:
            self._part_with(batch.member, now_s)
            return
        if self.members.is_news(batch):
            self._welcome(batch, now_s)
        member = self.members.next_from(batch, now_s)
        if member is None:
            return
        gathering = self._gathering
        if gathering is None:
            for item in batch.items:
                self._take_claim(member, item, now_s)
            self._release(self._lending.kept, now_s)
            return
        for sign in gathering.keep(batch):
            self._take(member, sign, now_s)
        if gathering.is_over(now_s):
            self._go_to_work(gathering, now_s)

    def _part_with(self, name: str, now_s: float) -> None:
        """Have all back that a replica had: it is gone, and need not be missed for a lease."""
        if self._gathering is not None:
            self._gathering.leave(name)
        self.forget(name, now_s)
        self.members.tell(Left(name), but=name)

    def own_half(self, generation: int) -> Member | None:
        """Return this replica's own half, once it may be spoken to without batches and numbers."""
        member = self.members.get(self.about.member)
        if self._gathering is not None or member is None or member.generation != generation:
            return None
        return member

    def take(self, member: Member, items: Iterable[Up], now_s: float) -> None:
        """Take what the own half says; nothing can be lost on the way."""
        member.heard_s = now_s
        for item in items:
            self._take(member, item, now_s)

    def _welcome(self, batch: Batch, now_s: float) -> None:
        """Begin anew with a replica that announces itself."""
        held = self.forget(batch.member, now_s, announces=True)
        member = Member(About(batch.member), batch.generation, now_s)
        member.held = held
        self.members.add(member)
        if self._gathering is not None:
            self._gathering.begin(batch.member, now_s)

    def _go_to_work(self, gathering: Gathering, now_s: float) -> None:
        """Take what was announced, in order, piece by piece."""
        for name, item in gathering.in_order(now_s):
            member = self.members.get(name)
            if member is not None:
                self._take_claim(member, item, now_s)
        if gathering.is_empty:
            self._gathering = None
            self._release(self._lending.kept, now_s)

    def _take_claim(self, member: Member, item: Up, now_s: float) -> None:
        """Take what may be announced: of those who wait nobody starts before all are known."""
        if isinstance(item, Resumed):
            if not item.node:
                for lent in self._lending.keep():
                    self._handle(lent, now_s)
        elif not isinstance(item, NodeChanged):
            self._release(self._lending.kept, now_s)
        self._take(member, item, now_s)

    def _take(self, member: Member, item: Up, now_s: float) -> None:
        if type(item) is Arrived:  # nearly all are this or the next, and `match` asks them in turn
            self._take_ticket(member, item, now_s)
        elif type(item) is Finished:
            self._take_event(member, item, now_s)
        else:
            self._take_other(member, item, now_s)

    def _take_other(self, member: Member, item: Up, now_s: float) -> None:
        match item:
            case Announced() | Signed() | Asked() | Told() | Left():
                self._listen(member, item, now_s)
            case GaveBack():
                slots = self._lending.loans.give_back(member.about.member, item.node, item.slots)
                self._free(item.node, slots, now_s)
            case NodeChanged() | NodeRemoved():
                self._take_view(member, item, now_s)
            case Arrived() | Resumed():
                self._take_ticket(member, item, now_s)
            case _:
                self._take_event(member, item, now_s)

    def _listen(self, member: Member, item: Said, now_s: float) -> None:
        match item:
            case Announced():
                member.about = item.about
                self._release(member.held, now_s)
                for one in self.members:  # the shares of those who may be alone go by it
                    one.out.append(self._pulse(one, now_s))
            case Signed():
                member.signed = item
                self._counts.hear(member.about.member, item.endings, self.members)
                member.out.append(self._pulse(member, now_s))
            case Asked():
                member.out.append(Owner(item.id, self._tickets.owner_of(item.id)))
            case Told() | Left():
                self.members.tell(item, but=member.about.member)

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
            self.members.tell(Look(item.name), but=member.about.member)

    def _change_node(self, change: NodeChanged | NodeRemoved, now_s: float) -> None:
        self._handle(change, now_s)
        self._lending.note_change(change)

    def _free(self, node: str, slots: int, now_s: float) -> None:
        """Have slots back: they are for those who wait, then for those who may not."""
        self._handle(Lent(node, -slots), now_s)
        self._offer(node, slots, now_s)

    def _offer(self, node: str, slots: int, now_s: float) -> None:
        """Let those ask again whose refusal is held back, as long as there are slots for them."""
        for ticket in self._parking.fitting(self._views.merged.get(node)):
            if slots > 0:
                self._ask(ticket, ticket.arrival, now_s)
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
        self._ask(ticket, item, now_s)

    def _ask(self, ticket: Ticket, event: Arrived | Resumed, now_s: float) -> None:
        """Have the core decide about a ticket that it does not know."""
        if not self._handle(event, now_s) and self._tickets.get(ticket.id) is ticket:
            self._close(ticket)
            ticket.member.out.append(Reject(ticket.id, "internal_error"))
        self._lending.make_way_for(ticket)

    def _take_event(self, member: Member, event: Event, now_s: float) -> None:
        """Take an event about a ticket of that replica, or about nothing in particular."""
        ticket_id = getattr(event, "id", None)
        if ticket_id is None:
            self._handle(event, now_s, member)
            return
        ticket = member.tickets.get(ticket_id)
        if ticket is None:
            return  # it has ended, and the replica will hear of it, or has
        if ticket in self._parking and (answer := self._parking.answer(ticket, event, now_s)):
            member.out.append(answer)  # the core has it no more
            event = Cancelled(ticket.id) if isinstance(answer, Reject) else event
        if isinstance(event, Finished | Cancelled):
            self._end(ticket, event, now_s)
            return
        if isinstance(event, Returned):
            self._leave_node(ticket)
            self._tickets.wait(ticket, waits=True)
        self._handle(event, now_s, member)
        self._lending.make_way_for(ticket)

    def _end(self, ticket: Ticket, event: Finished | Cancelled, now_s: float) -> None:
        node, lent = ticket.node, ticket.lent
        if node and isinstance(event, Finished):
            self._counts.end(ticket.member.about.member, event)
        self._close(ticket)
        # What runs nowhere cannot finish, as far as the core knows; it must not stay behind there.
        self._handle(event if node else Cancelled(ticket.id), now_s)
        if node and not lent:
            self._offer(node, 1, now_s)
            if isinstance(event, Finished):
                stays = self._lending.let_stay(ticket.member, node, now_s)
                if stays is not None:
                    self._handle(stays, now_s)

    def _close(self, ticket: Ticket) -> None:
        self._leave_node(ticket)
        self._parking.drop(ticket)
        self._tickets.remove(ticket)

    def _leave_node(self, ticket: Ticket) -> None:
        if ticket.lent:
            self._lending.loans.leave(ticket.member.about.member, ticket.node)
        self._tickets.leave(ticket)

    def _handle(self, event: Event, now_s: float, asker: Member | None = None) -> bool:
        """Let the core decide; False when a replica asked for what cannot be."""
        try:
            for action in self._scheduler.handle(event, now_s):
                self._pass_down(action, asker, now_s)
        except ForebayError as error:
            self.mistakes.append(error)
            return False
        return True

    def _pass_down(self, action: Action, asker: Member | None, now_s: float) -> None:
        if type(action) is not Route and isinstance(action, Snapshot | Audit):
            if asker is not None and isinstance(action, Snapshot):
                asker.out.append(replace(action, totals=self.totals(action.totals)))
            return
        ticket = self._tickets.get(action.id)
        if ticket is None or not self._note(ticket, action, now_s):
            return
        ticket.member.out.append(action)

    def _note(self, ticket: Ticket, action: Action, now_s: float) -> bool:
        """Take note of what was decided; False when its replica need not hear of it yet."""
        if isinstance(action, Route):
            self._lending.loans.line_is_full = False
            self._parking.drop(ticket)
            self._tickets.run(ticket, action.node)
        elif isinstance(action, Wait):
            self._parking.drop(ticket)
            self._tickets.wait(ticket, waits=True)
        elif isinstance(action, Reject | Expire):
            self._lending.note_ending(action)
            if self._parking.hold_back(ticket, action, self._lending, now_s):
                self._counts.refuse_again(ticket.arrival, action.code)
                return False
            if isinstance(action, Expire):
                self._counts.end(ticket.member.about.member, action)
            self._close(ticket)
        return True

    def balance(self, now_s: float) -> None:
        """Share out what is idle; call it three times a lease."""
        if self._gathering is None:
            self._handle(Ticked(), now_s)  # or what is due there would start in what is lent here
            for lent in self._lending.balance(self._lease_s, now_s):
                self._handle(lent, now_s)

    def tick(self, now_s: float) -> None:
        """Let time pass: what is due in the core, who has not been heard of."""
        if self._gathering is not None and self._gathering.is_over(now_s):
            self._go_to_work(self._gathering, now_s)
        self._handle(Ticked(), now_s)
        for ticket in self._parking.due(now_s):
            self._ask(ticket, ticket.arrival, now_s)
        if now_s >= self._next_silence_s:
            gone, self._next_silence_s = self.members.silent(self._lease_s, now_s)
            for name in gone:
                self.forget(name, now_s)

    def next_deadline_s(self) -> float | None:
        """Return when to `tick` if nothing else happens."""
        if self._gathering is not None:
            return self._gathering.until_s
        due_s = self._scheduler.next_deadline_s()
        own_s = min(self._next_silence_s, self._parking.next_s)
        return own_s if due_s is None else min(due_s, own_s)

    def forget(self, name: str, now_s: float, *, announces: bool = False) -> dict[str, int]:
        """End everything of a replica: its slots are free, its places in line are gone.

        Unless it `announces` itself anew: then its slots are kept for it, and returned.
        """
        member = self.members.pop(name)
        if member is None:
            return {}
        held = member.held
        for ticket in list(member.tickets.values()):
            if announces and ticket.node and not ticket.lent:
                held[ticket.node] = held.get(ticket.node, 0) + 1
                self._handle(Lent(ticket.node, 1), now_s)
            self._counts.cancelled_again += announces and not self._parking.drop(ticket)
            self._close(ticket)
            self._handle(Cancelled(ticket.id), now_s)
        for node, slots in self._lending.loans.forget(name).items():
            held[node] = held.get(node, 0) + slots
        if not announces:
            self._release(held, now_s)
        for change in self._views.forget(name, now_s):
            self._change_node(change, now_s)
        return held

    def _release(self, held: dict[str, int], now_s: float) -> None:
        """Let others have what was kept for a replica."""
        while held:
            self._free(*held.popitem(), now_s)

    def change_options(self, options: Options, now_s: float) -> None:
        """Take new limits."""
        self._lending.loans.change_options(options)
        self._handle(OptionsChanged(options), now_s)

    def standings(self, now_s: float) -> tuple[Standing, ...]:
        """Return how everyone is."""
        return self.members.standings(self._lending.loans, now_s)

    def _pulse(self, member: Member, now_s: float) -> Pulse:
        endings = dict(self._counts.endings)
        return Pulse(member.signed.stamp_s, self.totals(), endings, self.standings(now_s))

    @property
    def endings(self) -> dict[str, Endings]:
        """How requests have ended, by member."""
        return self._counts.endings

    def resign(self, *, leaves: bool, now_s: float) -> None:
        """Say goodbye to everyone, with all that was counted."""
        for member in self.members:
            member.out.append(self._pulse(member, now_s))
        self.members.resign(leaves=leaves)

    def totals(self, now: Totals | None = None) -> Totals:
        """Return all that was counted, by the leaders before this one, too."""
        return self._counts.all(now or observed(self._scheduler, 0.0).totals)
