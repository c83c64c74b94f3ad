"""Which replica has which ticket, what of them waits and what runs where: the leader's register."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from msgspec.structs import replace

from forebay.coordination.messages import Signed
from forebay.core import Resumed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.coordination.messages import About, Batch, Down
    from forebay.core import Arrived, NodeChanged


class Member:
    """One replica, as the leader knows it."""

    __slots__ = (
        "about", "generation", "heard_s", "held", "numbers_in", "numbers_out", "out", "running",
        "signed", "tickets",
    )  # fmt: skip

    def __init__(self, about: About, generation: int, now_s: float) -> None:
        self.about = about
        self.generation = generation
        self.numbers_in = 0
        self.numbers_out = 0
        self.heard_s = now_s
        self.signed = Signed(0.0)
        self.held: dict[str, int] = {}  # slots by node, kept for what it is about to announce
        self.tickets: dict[str, Ticket] = {}  # by the id that the replica knows
        self.running = 0  # of these
        self.out: list[Down] = []

    def has_gap_before(self, batch: Batch) -> bool:
        """Say whether something is missing that this replica has said."""
        if batch.generation != self.generation:
            return batch.generation > self.generation
        return batch.number > self.numbers_in


class Ticket:
    """One ticket of any replica."""

    __slots__ = ("arrival", "asked_until_s", "id", "lent", "member", "node", "own_id", "waiting")

    def __init__(self, arrival: Arrived, member: Member, own_id: str) -> None:
        self.arrival = arrival
        self.member = member
        self.id = arrival.id  # in the core: two replicas may have requests of the same id
        self.own_id = own_id  # as its replica knows it
        self.waiting = False
        self.asked_until_s = inf  # until when it is asked for again, once it was refused
        self.node = ""  # where it runs
        self.lent = False  # on a slot that is lent to its replica

    @property
    def models(self) -> tuple[str, ...]:
        """All models that it may run with."""
        return (self.arrival.model, *self.arrival.fallbacks)


class Tickets:
    """All of them."""

    def __init__(self) -> None:
        self._by_id: dict[str, Ticket] = {}  # the id in the core
        self._waiting: dict[tuple[str, str], int] = {}  # how many wait, by model and family
        self._busy: dict[str, int] = {}  # leases by node

    def get(self, ticket_id: str) -> Ticket | None:
        """Return a ticket by its id in the core."""
        return self._by_id.get(ticket_id)

    def owner_of(self, ticket_id: str) -> str:
        """Return the name of the replica that has a ticket; empty when it has ended."""
        ticket = self._by_id.get(ticket_id)
        return ticket.member.about.name if ticket is not None else ""

    def add(
        self, member: Member, event: Arrived | Resumed
    ) -> tuple[Ticket, Arrived | Resumed] | None:
        """Open a ticket; return it with the event as the core must see it, or None: said twice."""
        arrival = event.arrival if isinstance(event, Resumed) else event
        own_id = arrival.id
        if own_id in member.tickets:
            return None
        if own_id in self._by_id:
            arrival = replace(arrival, id=f"{own_id} of {member.about.member}")
            event = replace(event, arrival=arrival) if isinstance(event, Resumed) else arrival
        ticket = Ticket(arrival, member, own_id)
        self._by_id[ticket.id] = member.tickets[own_id] = ticket
        return ticket, event

    def remove(self, ticket: Ticket) -> None:
        """Close a ticket."""
        del self._by_id[ticket.id]
        del ticket.member.tickets[ticket.own_id]
        self.wait(ticket, waits=False)
        self.leave(ticket)

    def wait(self, ticket: Ticket, *, waits: bool) -> None:
        """Take note of whether it waits."""
        if waits == ticket.waiting:
            return
        ticket.waiting = waits
        for model in ticket.models:
            lane = (model, ticket.arrival.family)
            left = self._waiting.get(lane, 0) + (1 if waits else -1)
            if left:
                self._waiting[lane] = left
            else:
                del self._waiting[lane]

    def run(self, ticket: Ticket, node: str, *, lent: bool = False) -> None:
        """Take note that it runs."""
        self.wait(ticket, waits=False)
        ticket.node, ticket.lent = node, lent
        ticket.member.running += 1
        self._busy[node] = self._busy.get(node, 0) + 1

    def resume(self, ticket: Ticket, event: Resumed) -> None:
        """Take note of what it does already."""
        if event.node:
            self.run(ticket, event.node, lent=event.lent)
        else:
            self.wait(ticket, waits=True)

    def leave(self, ticket: Ticket) -> None:
        """Take note that it does not run any more."""
        if not ticket.node:
            return
        ticket.member.running -= 1
        left = self._busy[ticket.node] - 1
        if left:
            self._busy[ticket.node] = left
        else:
            del self._busy[ticket.node]
        ticket.node, ticket.lent = "", False

    def busy(self, node: str) -> int:
        """Return how many leases there are on a node."""
        return self._busy.get(node, 0)

    def is_wanted(self, node: NodeChanged) -> bool:
        """Say whether anyone waits for a node."""
        return bool(self._waiting) and any(
            model in node.models and family in node.families for model, family in self._waiting
        )


def able(ticket: Ticket, nodes: Iterable[NodeChanged]) -> list[str]:
    """Return the nodes that a ticket could run on."""
    family, models = ticket.arrival.family, ticket.models
    return [
        node.name
        for node in nodes
        if family in node.families and any(model in node.models for model in models)
    ]
