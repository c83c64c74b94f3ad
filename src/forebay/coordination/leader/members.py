"""The replicas that the leader knows, and the orders for each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.coordination.protocol.messages import (
    ITEMS_MAX,
    MemberStatus,
    Orders,
    Resigned,
    Resync,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from forebay.coordination.leader.lending import Loans
    from forebay.coordination.leader.tickets import Member
    from forebay.coordination.protocol.messages import Down, ReplicaBatch


GENERATIONS_MAX = 1000


class Members:
    """By name; this replica's own follower among them."""

    def __init__(self, me: str, epoch: int, expected: Iterable[str]) -> None:
        self.me = me
        self._epoch = epoch
        self._members: dict[str, Member] = {}
        self._greeted = sorted({*expected} - {me})
        self._unknown: dict[str, int] = {}  # who must announce anew, and its generation
        self._generations: dict[str, int] = {}  # the last of each, of those forgotten, too

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._members.values()))

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def get(self, name: str) -> Member | None:
        return self._members.get(name)

    def add(self, member: Member) -> None:
        name = member.about.member
        self._members[name] = member
        self._generations.pop(name, None)
        self._generations[name] = member.generation
        while len(self._generations) > GENERATIONS_MAX:
            del self._generations[next(iter(self._generations))]

    def begins_announcement(self, batch: ReplicaBatch) -> bool:
        """Say whether a batch begins a new announcement.

        A stream may be read again from its start: an old announcement does not count again.
        """
        return batch.number == 0 and batch.generation > self._generations.get(batch.member, 0)

    def accept(self, batch: ReplicaBatch, now_s: float) -> Member | None:
        """Return the sender of a batch if it is its next one; ask for what is missing."""
        member = self._members.get(batch.member)
        if member is None or member.has_gap_before(batch):
            self.request_announcement(batch)
            return None
        if batch.generation != member.generation or batch.number != member.received:
            return None  # seen already
        member.received += 1
        member.heard_s = now_s
        return member

    def pop(self, name: str) -> Member | None:
        return self._members.pop(name, None)

    def others(self, but: str = "") -> list[Member]:
        """Return all but one of them; without a name, all but this replica itself."""
        but = but or self.me
        return [member for name, member in self._members.items() if name != but]

    def silent(self, lease_s: float, now_s: float) -> tuple[list[str], float]:
        """Return those that sent nothing for a lease, and when to look again."""
        heard_s = {member.about.member: member.heard_s for member in self.others()}
        gone = [name for name, at_s in heard_s.items() if now_s - at_s >= lease_s]
        kept_s = [at_s for name, at_s in heard_s.items() if name not in gone]
        return gone, min(kept_s, default=now_s) + lease_s

    def send_to(self, name: str, item: Down) -> None:
        member = self._members.get(name)
        if member is not None:
            member.out.append(item)

    def send_to_others(self, item: Down, but: str) -> None:
        for member in self.others(but):
            member.out.append(item)

    def request_announcement(self, batch: ReplicaBatch) -> None:
        """Ask a replica to announce itself: it is not known, or a batch is missing."""
        self._unknown[batch.member] = batch.generation

    def resign(self, *, leaves: bool) -> None:
        for member in self._members.values():
            member.out.append(Resigned(leaves))

    def statuses(self, loans: Loans, now_s: float) -> tuple[MemberStatus, ...]:
        return tuple(
            MemberStatus(
                member.about,
                len(member.tickets) - member.running,
                member.running,
                loans.lent_to(name),
                now_s - member.heard_s,
            )
            for name, member in self._members.items()
        )

    def has_outgoing(self) -> bool:
        if self._greeted or self._unknown:
            return True
        for name, member in self._members.items():  # noqa: SIM110  # after each event: be cheap
            if member.out and name != self.me:
                return True
        return False

    def take_own(self) -> list[Down]:
        """Take what there is for this replica's own follower."""
        member = self._members.get(self.me)
        if member is None or not member.out:
            return []
        items, member.out = member.out, []
        return items

    def orders_for(self, name: str) -> Orders | None:
        """Take the orders for one replica, as many as one message holds."""
        member = self._members.get(name)
        if member is None or not member.out:
            return None
        items, member.out = tuple(member.out[:ITEMS_MAX]), member.out[ITEMS_MAX:]
        number = member.sent
        member.sent += 1
        return Orders(self._epoch, self.me, member.generation, number, items)

    def take_orders(self) -> list[tuple[str, Orders]]:
        epoch, me = self._epoch, self.me
        taken = [(name, Orders(epoch, me, 0, -1, ())) for name in self._greeted]
        taken += [
            (name, Orders(epoch, me, generation, -1, (Resync(),)))
            for name, generation in self._unknown.items()
        ]
        self._greeted, self._unknown = [], {}
        for member in self.others():
            name = member.about.member
            while (orders := self.orders_for(name)) is not None:
                taken.append((name, orders))
        return taken
