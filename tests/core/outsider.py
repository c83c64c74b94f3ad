"""What anyone can check who sees only events and actions: the invariants of the policy.

It keeps its own ledger of tickets, knows nothing of fairness or estimates, and so holds for every
mix of options, model swaps included. The numbers are those of the list of invariants in the theory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forebay.core import (
    Arrived,
    Cancelled,
    Expire,
    Finished,
    NodeChanged,
    NodeRemoved,
    NodeRested,
    OptionsChanged,
    Reject,
    Returned,
    Route,
    ShutDown,
    Snapshot,
    Wait,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from forebay.core import Action, Event, NodeView, Options


@dataclass(eq=False)
class Seen:
    """One ticket, from outside."""

    arrival: Arrived
    limit_s: float
    guest: bool = False
    """Whether it may wait only because a job is in its way."""
    state: str = "arriving"
    node: str = ""
    waited_s: float = 0.0
    """Time that counts against its limit: not while it runs."""
    failed_on: set[str] = field(default_factory=set)
    excluded: set[str] = field(default_factory=set)
    """Of those that failed it, the ones that have not had a good probe since."""


class Outsider:
    """Follows a scheduler from outside and fails when an invariant does not hold."""

    def __init__(self, options: Options, is_held: Callable[[str], bool]) -> None:
        """`is_held` asks whether a ticket waits for a better node than those that are free."""
        self.is_held = is_held
        self.options = options
        self.now_s = 0.0
        self.tickets: dict[str, Seen] = {}
        self.accepted = 0
        self.ended = 0
        self.nodes: dict[str, NodeChanged] = {}
        self.slots: dict[str, int] = {}
        self.rest_until_s: dict[str, float] = {}
        self.broken_off_s: dict[str, list[float]] = {}
        self.stopping = False
        self.totals: dict[str, int] = {}

    def watch(self, event: Event, now_s: float, actions: Sequence[Action]) -> None:
        """Follow one event and what was done about it."""
        self.pass_time(now_s)
        if isinstance(event, Arrived):
            self.note_arrival(event)
        else:
            self.note_event(event)
        for action in actions:
            self.note_action(action)
        if isinstance(event, Arrived) and event.id in self.tickets:
            assert self.tickets[event.id].state != "arriving", "an arrival is always answered"
        if isinstance(event, ShutDown):
            waiting = [t for t in self.tickets.values() if t.state == "waiting"]
            assert waiting == [], "shutdown answers everyone"

    def pass_time(self, now_s: float) -> None:
        """11: the clock never runs backwards."""
        passed_s = max(0.0, now_s - self.now_s)
        self.now_s += passed_s
        for ticket in self.tickets.values():
            if ticket.state == "waiting":
                ticket.waited_s += passed_s

    def note_arrival(self, event: Arrived) -> None:
        most_s = self.options.wait_s_max
        own_s = most_s if event.max_wait_s is None else min(event.max_wait_s, most_s)
        limit_s = float("inf") if event.job else own_s
        assert event.id not in self.tickets
        self.tickets[event.id] = Seen(event, limit_s)

    def note_event(self, event: Event) -> None:
        match event:
            case Finished() | Cancelled():
                ticket = self.tickets.get(event.id)
                if ticket and isinstance(event, Cancelled) and ticket.node in self.nodes:
                    self.broken_off_s.setdefault(ticket.node, []).append(self.now_s)
                if ticket and (ticket.state == "running" or isinstance(event, Cancelled)):
                    self.end(event.id)
            case Returned():
                self.note_return(event)
            case OptionsChanged():
                self.options = event.options
            case ShutDown():
                self.stopping = True
            case _:
                self.note_node(event)

    def note_return(self, event: Returned) -> None:
        ticket = self.tickets.get(event.id)
        if ticket is not None and ticket.state == "running":
            if event.exclude:
                ticket.excluded.add(ticket.node)
                ticket.failed_on.add(ticket.node)
            ticket.state, ticket.node = "waiting", ""

    def note_node(self, event: Event) -> None:
        match event:
            case NodeChanged():
                self.nodes[event.name] = event
                self.slots[event.name] = event.slots
                if event.state == "online":  # a good probe may end an exclusion
                    for ticket in self.tickets.values():
                        ticket.excluded.discard(event.name)
            case NodeRested() if event.name in self.nodes:
                slots, broken_off_s = self.slots[event.name], self.broken_off_s.get(event.name, [])
                late = [at_s for at_s in broken_off_s if self.now_s - at_s <= 1.0]
                broken_off_s[:] = late[1:]
                rest_s = event.rest_s
                if not late:
                    self.slots[event.name] = max(min(slots, 1), slots - 1)
                elif rest_s <= 1.0:
                    rest_s = min(rest_s, 0.1)
                until_s = self.now_s + rest_s
                self.rest_until_s[event.name] = max(until_s, self.rest_until_s.get(event.name, 0.0))
            case NodeRemoved():
                self.nodes.pop(event.name, None)
                self.rest_until_s.pop(event.name, None)
                self.broken_off_s.pop(event.name, None)
            case _:
                pass

    def note_action(self, action: Action) -> None:
        match action:
            case Route():
                self.check_start(action)
            case Wait():
                self.check_admission(self.tickets[action.id])
            case Reject() | Expire():
                state = self.tickets[action.id].state
                assert state in ("arriving", "waiting"), f"{action} of one that is {state}"
                if isinstance(action, Expire) and state == "waiting":
                    self.check_expiry(action)
                if state == "waiting" or isinstance(action, Expire):
                    self.accepted += state == "arriving"
                    self.end(action.id)
                else:
                    del self.tickets[action.id]
            case Snapshot():
                self.check_picture(action)
            case _:
                pass

    def check_start(self, route: Route) -> None:
        ticket = self.tickets[route.id]
        node = self.nodes[route.node]
        # 1: each id is in exactly one state.
        assert ticket.state in ("arriving", "waiting"), f"{route} of one that is {ticket.state}"
        self.accepted += ticket.state == "arriving"
        # 2: never more leases than slots, and only where it can be served.
        assert self.leases(route.node) < self.slots[route.node], f"{route}: no slot"
        assert node.state == "online"
        assert self.now_s >= self.rest_until_s.get(route.node, 0.0)
        assert ticket.arrival.model in node.models
        assert ticket.arrival.family in node.families
        assert route.node not in ticket.excluded, f"{route}: it failed there"
        # 8: nothing starts after its deadline, nor after the end.
        late = ticket.waited_s >= ticket.limit_s and ticket.waited_s > 0.0
        assert not late, f"{route}: its time was up at {ticket.limit_s}"
        assert not self.stopping, f"{route}: shutting down"
        ticket.state, ticket.node, ticket.guest = "running", route.node, False

    def check_admission(self, ticket: Seen) -> None:
        """12: the bounds hold for every newcomer."""
        ticket.state = "waiting"
        self.accepted += 1
        if ticket.arrival.job:
            return
        options = self.options
        queued = [t for t in self.tickets.values() if t.state == "waiting" and not t.arrival.job]
        mine = [t for t in queued if t.arrival.user == ticket.arrival.user]
        ticket.guest = not options.enabled or options.max_size == 0
        ticket.guest |= ticket.arrival.stream and not options.queue_streams
        guests = sum(t.guest for t in queued)
        if ticket.guest:  # live calls come before jobs: one for each that runs
            jobs = [t for t in self.tickets.values() if t.state == "running" and t.arrival.job]
            assert guests <= len(jobs)
        else:
            assert len(queued) - guests <= options.max_size
        assert sum(t.arrival.size_bytes for t in queued) <= options.bytes_max
        assert not options.per_user_max or len(mine) <= options.per_user_max

    def check_expiry(self, action: Expire) -> None:
        """8, the other side: nobody is sent away before the time is up."""
        ticket = self.tickets[action.id]
        assert ticket.waited_s >= ticket.limit_s, f"{action}: it had {ticket.limit_s} s"

    def check_picture(self, seen: Snapshot) -> None:
        """1: queued + running + ended = accepted. 2: leases are what runs, zero when idle."""
        unfinished = seen.waiting + seen.waiting_jobs + seen.running + seen.running_jobs
        assert unfinished + self.ended == self.accepted == seen.totals.accepted
        assert unfinished == len(self.tickets)
        for node in seen.nodes:
            assert node.in_flight == self.leases(node.name)
        totals = {name: getattr(seen.totals, name) for name in seen.totals.__struct_fields__}
        totals["rejected"] = sum(seen.totals.rejected.values())
        assert all(totals[name] >= before for name, before in self.totals.items())
        self.totals = totals

    def leases(self, name: str) -> int:
        return sum(1 for t in self.tickets.values() if t.state == "running" and t.node == name)

    def end(self, ticket_id: str) -> None:
        del self.tickets[ticket_id]
        self.ended += 1

    # -- 3: a free slot with an eligible entry waiting never lasts beyond the step

    def check_free_slots(self, seen: Snapshot) -> None:
        """Only a swap or a better node may keep a slot free, and only while that has a reason."""
        for view in seen.nodes:
            resting = self.now_s < self.rest_until_s.get(view.name, 0.0)
            if view.state == "online" and view.in_flight < view.slots and not resting:
                able = [t for t in self.tickets.values() if self.may_run(t, view.name)]
                able = [t for t in able if not self.is_held(t.arrival.id)]
                doubtful = any(view.name in ticket.failed_on for ticket in able)
                if able and not doubtful:  # whether a good probe ended an exclusion is not told
                    self.check_hold(view, able)

    def may_run(self, ticket: Seen, name: str) -> bool:
        node, arrival = self.nodes[name], ticket.arrival
        served = arrival.model in node.models and arrival.family in node.families
        return served and ticket.state == "waiting" and name not in ticket.excluded

    def check_hold(self, view: NodeView, able: list[Seen]) -> None:
        names = [ticket.arrival.id for ticket in able]
        assert view.loaded is not None, f"{view.name} has a free slot and {names} wait"
        cold = [t for t in able if t.arrival.model not in view.loaded]
        live = [t for t in able if not t.arrival.job]
        assert cold, f"{view.name} has the models of all of {names} in memory"
        assert len(view.loaded) >= self.nodes[view.name].loaded_max, f"{view.name} has room"
        assert view.in_flight or not live, f"{view.name} is idle and {names} wait"
