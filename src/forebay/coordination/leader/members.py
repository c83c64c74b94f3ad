"""The replicas that the leader knows, and what it has to say to each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.coordination.protocol.messages import ITEMS_MAX, Orders, Resigned, Resync, Standing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from forebay.coordination.leader.lending import Loans
    from forebay.coordination.leader.tickets import Member
    from forebay.coordination.protocol.messages import Batch, Down


GENERATIONS_MAX = 1000


class Members:
    """By name; this replica's own half among them."""

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
        """Return a replica that has announced itself."""
        return self._members.get(name)

    def add(self, member: Member) -> None:
        """Know a replica."""
        name = member.about.member
        self._members[name] = member
        self._generations.pop(name, None)
        self._generations[name] = member.generation
        while len(self._generations) > GENERATIONS_MAX:
            del self._generations[next(iter(self._generations))]

    def is_news(self, batch: Batch) -> bool:
        """Say whether a batch begins an announcement that was not heard before.

        A stream may be read again from its start, and those who were forgotten stay so.
        """
        return batch.number == 0 and batch.generation > self._generations.get(batch.member, 0)

    def next_from(self, batch: Batch, now_s: float) -> Member | None:
        """Return who says a batch, if it is the next thing it says; ask for what is missing."""
        member = self._members.get(batch.member)
        if member is None or member.has_gap_before(batch):
            self.ask_to_announce(batch)
            return None
        if batch.generation != member.generation or batch.number != member.numbers_in:
            return None  # seen already
        member.numbers_in += 1
        member.heard_s = now_s
        return member

    def pop(self, name: str) -> Member | None:
        """Forget a replica."""
        return self._members.pop(name, None)

    def others(self, but: str = "") -> list[Member]:
        """Return all but one of them; without a name, all but this replica's own half."""
        but = but or self.me
        return [member for name, member in self._members.items() if name != but]

    def silent(self, lease_s: float, now_s: float) -> tuple[list[str], float]:
        """Return the others that were not heard for a lease, and when to look again."""
        heard_s = {member.about.member: member.heard_s for member in self.others()}
        gone = [name for name, at_s in heard_s.items() if now_s - at_s >= lease_s]
        kept_s = [at_s for name, at_s in heard_s.items() if name not in gone]
        return gone, min(kept_s, default=now_s) + lease_s

    def say(self, name: str, item: Down) -> None:
        """Say something to one of them, if it is still there."""
        member = self._members.get(name)
        if member is not None:
            member.out.append(item)

    def tell(self, item: Down, but: str) -> None:
        """Say something to all but one of them."""
        for member in self.others(but):
            member.out.append(item)

    def ask_to_announce(self, batch: Batch) -> None:
        """Tell a replica that it is not known, or that something it said is missing."""
        self._unknown[batch.member] = batch.generation

    def resign(self, *, leaves: bool) -> None:
        """Say goodbye to everyone."""
        for member in self._members.values():
            member.out.append(Resigned(leaves))

    def standings(self, loans: Loans, now_s: float) -> tuple[Standing, ...]:
        """Return how everyone is."""
        return tuple(
            Standing(
                member.about,
                len(member.tickets) - member.running,
                member.running,
                loans.lent_to(name),
                now_s - member.heard_s,
            )
            for name, member in self._members.items()
        )

    def has_mail(self) -> bool:
        """Say whether there is something to be sent to others."""
        if self._greeted or self._unknown:
            return True
        for name, member in self._members.items():  # noqa: SIM110  # after each event: be cheap
            if member.out and name != self.me:
                return True
        return False

    def orders_for(self, name: str) -> Orders | None:
        """Return what is to be said to one replica, as much as one message holds; forget it."""
        member = self._members.get(name)
        if member is None or not member.out:
            return None
        items, member.out = tuple(member.out[:ITEMS_MAX]), member.out[ITEMS_MAX:]
        number = member.numbers_out
        member.numbers_out += 1
        return Orders(self._epoch, self.me, member.generation, number, items)

    def take_orders(self) -> list[tuple[str, Orders]]:
        """Return what is to be sent to the other replicas, and forget it."""
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
