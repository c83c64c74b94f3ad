"""The leader's side of the shared queue: batches in, orders out; no I/O.

It keeps the replicas, what they announce and the totals; `Decisions` has the core.

**State.** All of it is soft: which replica has which ticket, what the replicas report of the nodes,
what is lent to whom. A new leader gets it from announcements (`takeover`), and a replica that
announces itself anew replaces whatever was known of it.

**Cost.** O(1) for each message beside the core's own work; one order for each replica it concerns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.coordination.leader.decisions import Decisions
from forebay.coordination.leader.members import Members
from forebay.coordination.leader.takeover import TAKEOVER_LEASES, Takeover
from forebay.coordination.leader.tickets import Member
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
    RanOnLoan,
    ReplicaBatch,
    Said,
    Up,
)
from forebay.core import (
    Arrived,
    Finished,
    KeysUsed,
    NodeChanged,
    NodeRemoved,
    OptionsChanged,
    Resumed,
    Ticked,
    Totals,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from forebay.core import Options
    from forebay.errors import ForebayError


class Leader:
    """Decides for all replicas in one epoch."""

    def __init__(
        self,
        about: About,
        epoch: int,
        options: Options,
        lease_s: float,
        expected: Iterable[str],
        share: Callable[[NodeChanged], NodeChanged] | None = None,
    ) -> None:
        """With a `share` of each node it decides for its own replica only."""
        self.epoch = epoch
        self.about = about
        self._lease_s = lease_s
        self.members = Members(about.member, epoch, expected)
        self._counts = FleetTotals()
        self.decisions = Decisions(options, epoch, self.members, self._counts, share)
        self._takeover: Takeover | None = Takeover({about.member, *expected}, 0.0)
        self._next_silence_s = 0.0  # when to look next for replicas that are silent
        self._is_alone = share is not None

    @property
    def errors(self) -> list[ForebayError]:
        return self.decisions.errors

    def begin(self, totals: Totals, endings: Mapping[str, Endings], now_s: float) -> None:
        """Start to lead; `totals` and `endings` were counted by the leaders before."""
        self._counts.carried, self._counts.endings = totals, dict(endings)
        if self.epoch > 1 or self._is_alone:  # what its keys used lately, only another knew
            self.decisions.handle(KeysUsed(minute_is_used=True), now_s)
        if self._takeover is not None:
            self._takeover.until_s = now_s + TAKEOVER_LEASES * self._lease_s

    # -- messages

    def receive(self, batch: ReplicaBatch, now_s: float) -> None:
        """Take a batch if it is the next of its replica, or its last."""
        if batch.is_last:
            self._remove_member(batch.member, now_s)
            return
        if self.members.begins_announcement(batch):
            self._begin_announcement(batch.member, batch.generation, now_s)
        member = self.members.accept(batch, now_s)
        if member is None:
            return
        if self._takeover is not None:
            self._keep(self._takeover, member, batch.items, now_s)
            return
        for item in batch.items:
            self._take_announced(member, item, now_s)
        self.decisions.release(self.decisions.lending.withheld, now_s)

    def receive_own(self, items: Iterable[Up], now_s: float) -> None:
        """Take items of this replica's own follower: nothing can be lost on the way."""
        me = self.about.member
        member = self.members.get(me) or self._begin_announcement(me, 0, now_s)
        member.heard_s = now_s
        if self._takeover is not None:
            self._keep(self._takeover, member, items, now_s)
            return
        for item in items:
            self._take(member, item, now_s)

    def _remove_member(self, name: str, now_s: float) -> None:
        """Free all that a replica had: it has left, no need to wait for a lease."""
        if self._takeover is not None:
            self._takeover.leave(name)
        self.forget(name, now_s)
        self.members.send_to_others(MemberLeft(name), but=name)

    def _begin_announcement(self, name: str, generation: int, now_s: float) -> Member:
        """Replace all that was known of a replica that announces itself."""
        before = self.members.pop(name)
        member = Member(About(name), generation, now_s)
        if before is not None:
            member.reserved = self.decisions.end_all_of(before, now_s, announces=True)
        self.members.add(member)
        if self._takeover is not None:
            self._takeover.begin(name, now_s)
        return member

    def _keep(self, takeover: Takeover, member: Member, items: Iterable[Up], now_s: float) -> None:
        """Keep what comes in until all have announced themselves."""
        for heartbeat in takeover.keep(member.about.member, items):
            self._take(member, heartbeat, now_s)
        if takeover.is_over(now_s):
            self._take_over(takeover, now_s)

    def _take_over(self, takeover: Takeover, now_s: float) -> None:
        """Handle what was announced, in order, a part at a time."""
        for name, item in takeover.in_order(now_s):
            member = self.members.get(name)
            if member is not None:
                self._take_announced(member, item, now_s)
        if takeover.is_empty:
            self._takeover = None
            self.decisions.release(self.decisions.lending.withheld, now_s)

    def _take_announced(self, member: Member, item: Up, now_s: float) -> None:
        """Take an item of an announcement: nothing starts before all that wait are known."""
        if isinstance(item, Resumed):
            if not item.node:
                self.decisions.withhold(now_s)
        elif not isinstance(item, NodeChanged):
            self.decisions.release(self.decisions.lending.withheld, now_s)
        self._take(member, item, now_s)

    def _take(self, member: Member, item: Up, now_s: float) -> None:
        if type(item) is Arrived:  # nearly all are this or the next
            self.decisions.take_ticket(member, item, now_s)
        elif type(item) is Finished:
            self.decisions.take_event(member, item, now_s)
        else:
            self._take_other(member, item, now_s)

    def _take_other(self, member: Member, item: Up, now_s: float) -> None:
        decisions = self.decisions
        match item:
            case Announced() | Heartbeat() | OwnerAsked() | Broadcast() | MemberLeft():
                self._take_notice(member, item, now_s)
            case GaveBack():
                name = member.about.member
                slots = decisions.lending.loans.give_back(name, item.node, item.slots)
                decisions.free(item.node, slots, now_s)
            case NodeChanged() | NodeRemoved():
                decisions.take_view(member, item, now_s)
            case Arrived() | Resumed():
                decisions.take_ticket(member, item, now_s)
            case RanOnLoan():
                decisions.take_ended(member, item, now_s)
            case _:
                decisions.take_event(member, item, now_s)

    def _take_notice(self, member: Member, item: Said, now_s: float) -> None:
        match item:
            case Announced():
                member.about = item.about
                self.decisions.release(member.reserved, now_s)
                for one in self.members:  # standalone shares go by who is there
                    one.out.append(self._heartbeat_reply(one, now_s))
            case Heartbeat():
                member.heartbeat = item
                self._counts.update(member.about.member, item.endings, self.members)
                member.out.append(self._heartbeat_reply(member, now_s))
            case OwnerAsked():
                member.out.append(Owner(item.id, self.decisions.tickets.owner_of(item.id)))
            case Broadcast() | MemberLeft():
                self.members.send_to_others(item, but=member.about.member)

    # -- time

    def balance(self, now_s: float) -> None:
        """Share out idle slots; call it three times a lease."""
        if self._takeover is None:
            # First what is due in the core: it could start in the slots that are lent now.
            self.decisions.handle(Ticked(), now_s)
            self.decisions.balance(self._lease_s, now_s)

    def tick(self, now_s: float) -> None:
        """Do what is due: in the core, deferred decisions, replicas that are silent."""
        if self._takeover is not None and self._takeover.is_over(now_s):
            self._take_over(self._takeover, now_s)
        self.decisions.handle(Ticked(), now_s)
        for ticket in self.decisions.deferred.due(now_s):
            self.decisions.decide(ticket, ticket.arrival, now_s)
        if now_s >= self._next_silence_s:
            gone, self._next_silence_s = self.members.silent(self._lease_s, now_s)
            for name in gone:
                self.forget(name, now_s)

    def next_deadline_s(self) -> float | None:
        """Return when to `tick` if nothing else happens."""
        if self._takeover is not None:
            return self._takeover.until_s
        due_s = self.decisions.scheduler.next_deadline_s()
        own_s = min(self._next_silence_s, self.decisions.deferred.next_s)
        return own_s if due_s is None else min(due_s, own_s)

    def forget(self, name: str, now_s: float) -> None:
        """End everything of a replica that is gone."""
        member = self.members.pop(name)
        if member is not None:
            self.decisions.end_all_of(member, now_s, announces=False)

    def change_options(self, options: Options, now_s: float) -> None:
        self.decisions.lending.loans.change_options(options)
        self.decisions.handle(OptionsChanged(options), now_s)

    # -- what there is

    def statuses(self, now_s: float) -> tuple[MemberStatus, ...]:
        return self.members.statuses(self.decisions.lending.loans, now_s)

    def _heartbeat_reply(self, member: Member, now_s: float) -> HeartbeatReply:
        endings = dict(self._counts.endings)
        return HeartbeatReply(
            member.heartbeat.stamp_s, self.totals(), endings, self.statuses(now_s)
        )

    @property
    def endings(self) -> dict[str, Endings]:
        return self._counts.endings

    def totals(self) -> Totals:
        """Return all that was counted, by the leaders before this one as well."""
        return self._counts.all(observed(self.decisions.scheduler, 0.0).totals)

    def resign(self, *, leaves: bool, now_s: float) -> None:
        """Tell all replicas that this leader resigns, with all that was counted."""
        for member in self.members:
            member.out.append(self._heartbeat_reply(member, now_s))
        self.members.resign(leaves=leaves)
