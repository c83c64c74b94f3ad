"""The leader's register of tickets: which replica has them, what waits, and what runs where."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from forebay.coordination.protocol.messages import Heartbeat

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.coordination.protocol.messages import About, Down, ReplicaBatch
    from forebay.core import Arrived, NodeChanged, Resumed


class Member:
    """One replica, as the leader knows it."""

    __slots__ = (
        "about", "generation", "heard_s", "heartbeat", "out", "received", "reserved", "running",
        "sent", "tickets",
    )  # fmt: skip

    def __init__(self, about: About, generation: int, now_s: float) -> None:
        self.about = about
        self.generation = generation
        self.received = 0  # batches of this generation
        self.sent = 0  # orders of this generation
        self.heard_s = now_s
        self.heartbeat = Heartbeat(0.0)  # the last one
        self.reserved: dict[str, int] = {}  # slots by node, for what it will announce
        self.tickets: dict[str, FleetTicket] = {}
        self.running = 0  # of these
        self.out: list[Down] = []

    def has_gap_before(self, batch: ReplicaBatch) -> bool:
        if batch.generation != self.generation:
            return batch.generation > self.generation
        return batch.number > self.received


class FleetTicket:
    """One ticket of any replica."""

    __slots__ = ("arrival", "asked_until_s", "id", "lent", "member", "node", "waiting", "wanted")

    def __init__(self, arrival: Arrived, member: Member) -> None:
        self.arrival = arrival
        self.member = member
        self.id = arrival.id
        self.waiting = False
        self.asked_until_s = inf  # until when it is asked for again, once it was refused
        self.wanted = ""  # the node with idle slots on loan for which its decision is deferred
        self.node = ""  # where it runs
        self.lent = False  # on a slot that is lent to its replica

    @property
    def models(self) -> tuple[str, ...]:
        return (self.arrival.model, *self.arrival.fallbacks)

    @property
    def request_id(self) -> str:
        """The caller's id: two replicas may have requests with the same one."""
        return self.arrival.request_id or self.id


class FleetTickets:
    """All tickets of all replicas."""

    def __init__(self) -> None:
        self._by_id: dict[str, FleetTicket] = {}
        self._by_request: dict[str, list[FleetTicket]] = {}  # by what callers know them by
        self._waiting: dict[tuple[str, str], int] = {}  # how many wait, by model and family
        self._busy: dict[str, int] = {}  # leases by node

    def get(self, ticket_id: str) -> FleetTicket | None:
        return self._by_id.get(ticket_id)

    def owner_of(self, request_id: str) -> str:
        """Return the name of the replica that has a request; empty when it has ended."""
        found = self._by_request.get(request_id)
        return found[0].member.about.name if found else ""

    def add(self, member: Member, arrival: Arrived) -> FleetTicket | None:
        """Open a ticket; None when it is open already: the message came twice."""
        if arrival.id in self._by_id:
            return None
        ticket = FleetTicket(arrival, member)
        self._by_id[ticket.id] = member.tickets[ticket.id] = ticket
        self._by_request.setdefault(ticket.request_id, []).append(ticket)
        return ticket

    def remove(self, ticket: FleetTicket) -> None:
        del self._by_id[ticket.id], ticket.member.tickets[ticket.id]
        namesakes = self._by_request[ticket.request_id]
        namesakes.remove(ticket)
        if not namesakes:
            del self._by_request[ticket.request_id]
        self.wait(ticket, waits=False)
        self.leave(ticket)

    def wait(self, ticket: FleetTicket, *, waits: bool) -> None:
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

    def run(self, ticket: FleetTicket, node: str, *, lent: bool = False) -> None:
        self.wait(ticket, waits=False)
        ticket.node, ticket.lent = node, lent
        ticket.member.running += 1
        self._busy[node] = self._busy.get(node, 0) + 1

    def resume(self, ticket: FleetTicket, event: Resumed) -> None:
        if event.node:
            self.run(ticket, event.node, lent=event.lent)
        else:
            self.wait(ticket, waits=True)

    def leave(self, ticket: FleetTicket) -> None:
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
        return self._busy.get(node, 0)

    def is_wanted(self, node: NodeChanged) -> bool:
        return bool(self._waiting) and any(
            model in node.models and family in node.families for model, family in self._waiting
        )


def able(arrival: Arrived, nodes: Iterable[NodeChanged]) -> list[str]:
    """Return the nodes that a ticket could run on."""
    family, models = arrival.family, (arrival.model, *arrival.fallbacks)
    return [
        node.name
        for node in nodes
        if family in node.families and any(model in node.models for model in models)
    ]


def goes_by_node(arrival: Arrived, nodes: Iterable[NodeChanged]) -> bool:
    """Say whether it matters on which node a ticket runs: for its session, or a cached prompt.

    Only prompts that several nodes could serve have a prefix.
    """
    return bool(arrival.prefix) or (bool(arrival.affinity) and len(able(arrival, nodes)) > 1)
