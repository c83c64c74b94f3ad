"""The scheduler once more, written from its rules alone, to check the real one against.

`NaiveModel.take` is told an event and what the core did about it. It works out by itself what had
to happen and fails where the core did anything else: it consumes the core's actions one by one,
and both too many and too few are errors. What no rule fixes is left to the core: which of several
equally large holders is displaced, which of two nodes never used is taken first, and the numbers
of the estimates (a refusal for the sake of a deadline must agree with the number it tells).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core import (
    Abort,
    Arrived,
    Audit,
    Audited,
    Cancelled,
    Describe,
    Finished,
    Inspected,
    KeysUsed,
    Lent,
    NodeChanged,
    NodeRemoved,
    NodeRested,
    Observed,
    OptionsChanged,
    Resumed,
    Returned,
    Revoked,
    ShutDown,
    Snapshot,
    Ticked,
)

from .naive_arrivals import NaiveArrivals
from .naive_order import NaiveNode, Ticket

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from forebay.core import Action, Event

    AboutOne: TypeAlias = Finished | Returned | Cancelled | Revoked | Inspected


class NaiveModel(NaiveArrivals):
    """Takes events, and judges what the core did about them."""

    snapshot: Snapshot | None = None

    def take(self, event: Event, now_s: float, actions: Sequence[Action]) -> None:
        """Follow one event; fails where `actions` is not what had to be done."""
        self.begin(now_s, actions)
        if isinstance(event, Cancelled):  # what is given up now is not started first
            self.take_event(event)
        self.count_promotions()
        self.drain()
        if not isinstance(event, Cancelled):
            self.take_event(event)
        self.finish()

    def take_event(self, event: Event) -> None:
        match event:
            case Arrived():
                self.arrive(event)
            case Finished() | Returned() | Cancelled() | Revoked() | Inspected():
                ticket = self.tickets.get(event.id)
                if ticket is not None and ticket.state == "running":
                    self.take_running(event, ticket)
                elif ticket is not None:
                    self.take_waiting(event, ticket)
            case NodeChanged() | NodeRested() | NodeRemoved():
                self.take_node(event)
            case Resumed() | Lent() | KeysUsed():
                raise AssertionError("the model knows one core, from its beginning, and no rates")
            case _:
                self.take_whole(event)

    def take_running(self, event: AboutOne, ticket: Ticket) -> None:
        match event:
            case Finished():
                self.settle(ticket, event.prompt_tokens, event.output_tokens)
                node = self.nodes[ticket.node]
                self.note_strike(event, ticket, node)
                if event.ok:
                    self.services.finish(ticket, node.memory, self.lanes_on(node), self.now_s)
                if event.ok and event.output_tokens >= 0:
                    outputs = self.accounts.outputs.setdefault(ticket.lane, [])
                    outputs.append(event.output_tokens)
                self.leave_node(ticket, "done" if event.ok else "failed")
            case Cancelled():
                self.settle(ticket, event.prompt_tokens, event.output_tokens)
                self.nodes[ticket.node].break_off(self.now_s)
                self.leave_node(ticket, "cancelled")
            case Returned():
                self.come_back(event, ticket)
            case Revoked():
                ticket.revoked = event.code
                self.expect(lambda action: action == Abort(ticket.id, event.code), "Abort")
            case Inspected():
                self.inspect(ticket)

    def take_waiting(self, event: AboutOne, ticket: Ticket) -> None:
        match event:
            case Cancelled():
                self.end(ticket, "cancelled")
            case Revoked():
                self.expect_reject(ticket.id, event.code)
                self.end(ticket, "revoked")
            case Inspected():
                self.inspect(ticket)
            case Finished() | Returned():
                pass

    def take_whole(self, event: OptionsChanged | ShutDown | Observed | Audited | Ticked) -> None:
        match event:
            case OptionsChanged():
                self.options = event.options
            case ShutDown():
                self.shut_down()
            case Observed():
                self.observe()
            case Audited():
                self.audit()
            case Ticked():
                pass

    # -- one ticket

    def leave_node(self, ticket: Ticket, how: str) -> None:
        name, ticket.state = ticket.node, "new"
        self.end(ticket, how)
        self.forget_node(name)

    def note_strike(self, event: Finished | Returned, ticket: Ticket, node: NaiveNode) -> None:
        if event.strike:
            node.strikes[ticket.user] = node.strikes.get(ticket.user, 0) + 1
        elif isinstance(event, Finished) and event.ok:
            node.strikes.pop(ticket.user, None)

    def forget_node(self, name: str) -> None:
        """A removed node is forgotten with its last lease."""
        if self.nodes[name].removed and not self.leases(name):
            del self.nodes[name]

    def come_back(self, event: Returned, ticket: Ticket) -> None:
        self.refund_class(ticket)
        name = ticket.node
        self.note_strike(event, ticket, self.nodes[name])
        if event.exclude:
            ticket.excluded.add(name)
        ticket.returned = True
        self.stand_in_line(ticket)
        ticket.node, ticket.came_from = "", name
        self.forget_node(name)
        if ticket.revoked or self.stopping:
            self.expect_reject(ticket.id, ticket.revoked or "shutting_down")
            self.end(ticket, "rejected")
        elif ticket.deadline_s <= self.now_s:  # its time was up when it started, to the instant
            self.expire(ticket)

    def inspect(self, ticket: Ticket) -> None:
        told = self.expect(lambda action: isinstance(action, Describe), "Describe")
        assert isinstance(told, Describe)
        waited_s = ticket.waited_s
        if ticket.state != "running":
            waited_s += self.now_s - ticket.since_s
        got = (told.id, told.state, told.waited_s, told.attempt, told.node)
        assert got == (ticket.id, ticket.state, waited_s, ticket.attempt, ticket.node or None)
        if ticket.state == "waiting":
            assert told.reason == self.reason(ticket)
            self.check_position(ticket, told.position)

    # -- nodes and the whole

    def take_node(self, event: NodeChanged | NodeRested | NodeRemoved) -> None:
        node = self.nodes.get(event.name)
        match event:
            case NodeChanged():
                self.change_node(event, node)
            case NodeRested() if node is not None and not node.removed:
                rest_s = event.rest_s
                if not node.excuses(self.now_s):
                    node.slots = max(min(node.slots, 1), node.slots - 1)
                elif rest_s <= 1.0:
                    rest_s = min(rest_s, 0.1)
                node.rest_until_s = max(node.rest_until_s, self.now_s + rest_s)
            case NodeRemoved() if node is not None and not node.removed:
                node.removed, node.broken_off_s = True, []
                node.time.offset.clear()
                self.forget_node(event.name)
                self.learn_lanes()
                self.refuse_unlisted()
            case _:
                pass

    def change_node(self, event: NodeChanged, node: NaiveNode | None) -> None:
        if node is None:
            node = NaiveNode(event, event.slots)
            self.nodes[event.name] = node
        node.said, node.slots, node.removed = event, event.slots, False
        node.away_since_s = self.now_s - event.away_s
        running = [t.lane[0] for t in self.in_state("running") if t.node == event.name]
        node.memory.hear(event, running, self.now_s)
        offsets = node.time.offset
        node.time.offset = {line: off for line, off in offsets.items() if node.serves(line[1])}
        self.learn_lanes()
        if event.state == "online":
            for ticket in self.in_state("waiting"):
                if node.serves(ticket.lane) and not self.has_other_node(ticket):
                    ticket.excluded.discard(event.name)
        self.refuse_unlisted()

    def refuse_unlisted(self) -> None:
        """Refuse those who waited for what a node might have, once all have said what they have."""
        if self.unsaid():
            return
        for ticket in self.in_state("waiting"):
            key = ticket.lane[:2]
            if key in self.unlisted and ticket.id in self.tickets:
                known = self.is_known(key[0])
                self.expect_reject(ticket.id, "route_not_supported" if known else "model_not_found")
                self.end(ticket, "rejected")

    def has_other_node(self, ticket: Ticket) -> bool:
        """Say whether a node is up that has not failed it yet."""
        return any(
            node.said.state == "online" and name not in ticket.excluded
            for name, node in self.nodes_of(ticket.lane).items()
        )

    def shut_down(self) -> None:
        self.stopping = True
        for ticket in self.in_state("waiting"):
            self.expect_reject(ticket.id, "shutting_down")
            self.end(ticket, "rejected")

    def observe(self) -> None:
        seen = self.expect(lambda action: isinstance(action, Snapshot), "Snapshot")
        assert isinstance(seen, Snapshot)
        self.snapshot = seen

    def audit(self) -> None:
        held = {(ticket.id, ticket.node) for ticket in self.in_state("running")}
        seen = self.expect(lambda action: isinstance(action, Audit), "Audit")
        assert isinstance(seen, Audit)
        assert {(lease.id, lease.node) for lease in seen.leases} == held
        assert (len(seen.leases), seen.tickets) == (len(held), len(self.tickets))
