"""Watches every step from outside and raises at the first that breaks a promise.

It follows each ticket through arrival, waiting, running and its one end, and applies the
`rules` to what the scheduler decided. It reads events and actions only.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import TYPE_CHECKING

from forebay.core.actions import (
    Abort,
    Action,
    Audit,
    Describe,
    Expire,
    Reject,
    Route,
    SlotsChanged,
    Wait,
)
from forebay.core.events import (
    Arrived,
    Audited,
    Cancelled,
    Event,
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
    Ticked,
)
from forebay.core.snapshot import Snapshot
from forebay.testing.simulation import rules
from forebay.testing.simulation.mirror import Mirror, SeenNode, SeenTicket

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from forebay.core.options import Options

AWAY = ("loading", "starting", "offline")
"""What one waits for whose nodes are not up."""
WITHOUT_EFFECT = (Arrived, Ticked, Observed, Audited, Inspected, Revoked)
"""Events that by themselves change nothing that can be seen: only what is done about them does."""


class Census:
    """Counts everything a second time, and compares the scheduler's own picture with it."""

    def __init__(self) -> None:
        self.enqueued = 0
        self.returned = 0
        self._ended: Counter[str] = Counter()

    def end(self, how: str) -> None:
        """Count one accepted ticket that is over."""
        self._ended[how] += 1

    def check(self, seen: Snapshot, mirror: Mirror) -> None:
        """Compare a snapshot with the mirror, and the totals with what was counted."""
        tickets = mirror.tickets.values()
        jobs = [ticket for ticket in tickets if ticket.arrived.job]
        live = [ticket for ticket in tickets if not ticket.arrived.job]
        expected = {
            "waiting": mirror.waiting,
            "running": sum(ticket.state == "running" for ticket in live),
            "waiting_bytes": mirror.waiting_bytes,
            "waiting_jobs": sum(ticket.state == "waiting" for ticket in jobs),
            "running_jobs": sum(ticket.state == "running" for ticket in jobs),
        }
        found = {name: getattr(seen, name) for name in expected}
        assert found == expected, f"the snapshot says {found}, true is {expected}"
        self._check_nodes(seen, mirror)
        self._check_totals(seen, mirror)

    def check_leases(self, seen: Audit, mirror: Mirror) -> None:
        found = {lease.id: lease.node for lease in seen.leases}
        running = (one for one in mirror.tickets.values() if one.state == "running")
        expected = {ticket.arrived.id: ticket.node for ticket in running}
        assert found == expected, f"the leases are {found}, true is {expected}"
        assert seen.tickets == len(mirror.tickets), f"{seen.tickets} tickets are {mirror.tickets}"

    def _check_nodes(self, seen: Snapshot, mirror: Mirror) -> None:
        shown = {node.name: (node.slots, node.in_flight, node.state) for node in seen.nodes}
        expected = {
            node.name: (node.slots, len(node.leases), node.state)
            for node in mirror.nodes.values()
            if not node.removed
        }
        assert shown == expected, f"the snapshot shows {shown}, true is {expected}"
        for lane in seen.lanes:
            kept = mirror.lanes.get((lane.model, lane.family), {})
            waiting = sum(not ticket.arrived.job for ticket in kept)
            assert lane.waiting <= waiting, f"{lane} has {waiting} waiting"

    def _check_totals(self, seen: Snapshot, mirror: Mirror) -> None:
        expected = {
            "accepted": mirror.accepted,
            "enqueued": self.enqueued,
            "returned": self.returned,
            **{name: self._ended[name] for name in ("served", "failed", "expired", "cancelled")},
        }
        shown = {name: getattr(seen.totals, name) for name in expected}
        assert shown == expected, f"the totals say {shown}, true is {expected}"
        ended = sum(self._ended.values())
        assert ended + len(mirror.tickets) == mirror.accepted, "a ticket got lost"

    def check_description(self, ticket: SeenTicket, seen: Describe, mirror: Mirror) -> None:
        """Compare what a waiter is told about itself."""
        assert seen.state == ticket.state, f"{seen} is {ticket.state}"
        assert abs(seen.waited_s - ticket.total_wait_s(mirror.now_s)) <= rules.TOLERANCE_S, (
            f"{seen} waited {ticket.total_wait_s(mirror.now_s)}"
        )
        if ticket.state == "running":
            assert (seen.node, seen.attempt) == (ticket.node, ticket.attempt)
        elif seen.position is not None:
            assert 1 <= seen.position <= len(mirror.tickets), f"{seen} stands nowhere"


class Checker:
    """One per run; `step` is called after each event with what it led to."""

    def __init__(self, options: Options, is_held: Callable[[str], bool]) -> None:
        """`is_held` asks the scheduler whether a ticket waits for a better node.

        A function of its own: a method would be copied with all it belongs to, where a step is
        tried in several orders.
        """
        self._mirror = Mirror(is_held)
        self._starts_s: dict[str, list[float]] = {}
        """When requests and jobs of each key with limits have started."""
        self._take_options(options)
        self._census = Census()
        self._event: Event = Ticked()
        self._newcomer: SeenTicket | None = None
        """The arrival of this step, until it has been answered."""
        self._answered: SeenTicket | None = None
        self._due_s = float("inf")
        self._stopping = False
        self._order = 0
        self._snapshot: Snapshot | None = None

    def step(
        self, event: Event, now_s: float, actions: Sequence[Action], next_deadline_s: float | None
    ) -> None:
        """Take in one step, and check it."""
        assert now_s >= self._mirror.now_s, f"time runs backwards, to {now_s}"
        self._mirror.now_s = now_s
        self._mirror.starting = frozenset(one.id for one in actions if isinstance(one, Route))
        self._event = event
        if self._due_s <= now_s and actions and not isinstance(event, WITHOUT_EFFECT):
            self._take_in_late(event, actions)
        else:
            self._take_in_order(event, actions, due=0)
        rules.no_slot_is_idle(self._mirror)
        rules.nothing_is_overdue(self._mirror)
        rules.a_timer_is_set(self._mirror, next_deadline_s)
        self._due_s = float("inf") if next_deadline_s is None else next_deadline_s
        if isinstance(event, Ticked):
            assert next_deadline_s is None or next_deadline_s > now_s, (
                f"a tick at {now_s} asks for another at {next_deadline_s}"
            )

    def _take_in_late(self, event: Event, actions: Sequence[Action]) -> None:
        """Take in a step in which something was overdue: its actions come before the event's.

        Which of them do cannot be seen from outside; there must be one way to read the list.
        """
        values = {id(ticket.arrived): ticket.arrived for ticket in self._mirror.tickets.values()}
        before = copy.deepcopy(self.__dict__, dict(values))
        failure: AssertionError | None = None
        for due in range(len(actions), -1, -1):
            try:
                self._take_in_order(event, actions, due)
            except AssertionError as error:
                failure = failure or error
                self.__dict__.update(copy.deepcopy(before, dict(values)))
            else:
                return
        raise failure or AssertionError(event)

    def _take_in_order(self, event: Event, actions: Sequence[Action], due: int) -> None:
        for action in actions[:due]:
            self._take_out(action)
        self._take_in(event)
        for action in actions[due:]:
            self._take_out(action)
        assert self._newcomer is None, f"{event} was not answered"
        if isinstance(event, Returned) and (back := self._mirror.tickets.get(event.id)) is not None:
            self._count_waiting(back)
        self._started_are_running(actions)
        if self._answered is not None:
            rules.the_bounds_hold(self._mirror, self._options, self._answered)
            self._answered = None

    def _count_waiting(self, ticket: SeenTicket) -> None:
        """Count one that waits, on arrival or after it came back, once."""
        if ticket.state == "waiting" and not ticket.counted:
            ticket.counted = True
            self._census.enqueued += 1

    def _started_are_running(self, actions: Sequence[Action]) -> None:
        """Check that nothing is started and given up in one step: the start would be performed."""
        for action in actions:
            if isinstance(action, Route):
                ticket = self._mirror.tickets.get(action.id)
                assert ticket is not None and ticket.state == "running", (  # noqa: PT018
                    f"{action.id} is started in the step that ended it: {self._event}"
                )

    def nothing_is_starved(self) -> None:
        """Check, when nothing happens any more, that whatever still waits cannot be served."""
        for node in self._mirror.nodes.values():
            if node.is_up() and node.slots:
                left = [ticket.arrived.id for ticket in self._mirror.would_use(node)]
                assert not left, f"{left} wait for ever, though {node.name} is up"

    def everything_is_zero(self) -> None:
        """Check that a drained run leaves nothing behind."""
        seen = self._snapshot
        assert seen is not None, "nobody looked"
        assert not self._mirror.tickets, f"{sorted(self._mirror.tickets)} are unfinished"
        left = (seen.waiting, seen.running, seen.waiting_bytes, seen.waiting_jobs)
        assert left == (0, 0, 0, 0), f"{left} are left of nothing"
        assert all(node.in_flight == 0 for node in seen.nodes), "a lease was never given back"
        assert all(lane.waiting == lane.running == 0 for lane in seen.lanes), "a lane is not empty"

    # Events

    def _take_in(self, event: Event) -> None:
        mirror = self._mirror
        match event:
            case Arrived():
                self._arrive(event)
            case Finished() | Cancelled() | Returned():
                ticket = mirror.tickets.get(event.id)
                if ticket is not None:
                    self._move(ticket, event)
            case NodeChanged() | NodeRested() | NodeRemoved():
                self._change_node(event)
            case OptionsChanged():
                self._take_options(event.options)
            case ShutDown():
                self._stopping = True
            case (
                Revoked() | Ticked() | Inspected() | Observed() | Audited()
                | Resumed() | Lent() | KeysUsed()
            ):  # fmt: skip
                pass  # the last three come of several replicas, and are not played here

    def _take_options(self, options: Options) -> None:
        self._options = options
        self._mirror.paced = frozenset(name for name, asked in options.key_limits.items() if asked)
        self._starts_s = {}  # another limit is another bucket

    def _note_rate(self, ticket: SeenTicket) -> None:
        """Count the first start of a request or job towards the rate of its key."""
        limits = self._options.key_limits.get(ticket.arrived.key)
        if limits is not None and limits.requests_per_minute and not ticket.attempt:
            starts_s = self._starts_s.setdefault(ticket.arrived.key, [])
            starts_s.append(self._mirror.now_s)
            rules.the_rate_holds(starts_s, limits.requests_per_minute)

    def _change_node(self, event: NodeChanged | NodeRested | NodeRemoved) -> None:
        node = self._mirror.nodes.setdefault(event.name, SeenNode(event.name))
        match event:
            case NodeChanged():
                node.take_over(event)
                self._lift_bars(node)
            case NodeRested():
                node.rest(self._mirror.now_s, event.rest_s)
            case NodeRemoved():
                node.removed, node.broken_off_s = True, []

    def _arrive(self, event: Arrived) -> None:
        assert event.id not in self._mirror.tickets, f"{event.id} arrives twice"
        options = self._options
        ranks = {name: rank for rank, name in enumerate(options.priorities)}
        own_s = event.max_wait_s
        limit_s = options.wait_s_max if own_s is None else min(own_s, options.wait_s_max)
        self._order += 1
        self._newcomer = SeenTicket(
            arrived=event,
            order=self._order,
            rank=ranks.get(event.priority, options.normal_rank()),
            wait_limit_s=None if event.job else limit_s,
        )

    def _move(self, ticket: SeenTicket, event: Finished | Cancelled | Returned) -> None:
        mirror = self._mirror
        match event:
            case Returned() if ticket.state == "running":
                self._census.returned += 1
                mirror.give_back(ticket, event.exclude)
            case Finished() if ticket.state == "running":
                self._census.end("served" if event.ok else "failed")
                mirror.end(ticket)
            case Cancelled():
                self._census.end("cancelled")
                if ticket.state == "running":
                    mirror.nodes[ticket.node].break_off(mirror.now_s)
                mirror.end(ticket)
            case _:
                raise AssertionError(f"{event} is posted while the ticket is {ticket.state}")

    def _lift_bars(self, node: SeenNode) -> None:
        """A good probe lets those try again that have no other node."""
        if node.state != "online":
            return
        for ticket in self._mirror.all_waiting():
            if node.name in ticket.excluded:
                others = [
                    other
                    for other in self._mirror.nodes_of(ticket.lane)
                    if other.is_up() and other.name not in ticket.excluded
                ]
                if not others:
                    ticket.excluded.remove(node.name)

    # Actions

    def _take_out(self, action: Action) -> None:
        match action:
            case Route():
                self._start(action)
            case Wait():
                self._wait(action)
            case Reject():
                self._reject(action)
            case Expire():
                self._expire(action)
            case Abort():
                self._abort(action)
            case SlotsChanged():
                self._mirror.nodes[action.name].slots = action.slots
            case Describe() | Snapshot() | Audit():
                self._compare(action)

    def _compare(self, action: Describe | Snapshot | Audit) -> None:
        if isinstance(action, Snapshot):
            self._snapshot = action
            self._census.check(action, self._mirror)
        elif isinstance(action, Audit):
            self._census.check_leases(action, self._mirror)
        else:
            self._census.check_description(self._of(action), action, self._mirror)

    def _of(self, action: Action) -> SeenTicket:
        """Return the ticket an action is about; acting on one that is over is a mistake."""
        assert not isinstance(action, Snapshot | Audit | SlotsChanged)
        if self._newcomer is not None and self._newcomer.arrived.id == action.id:
            return self._newcomer
        ticket = self._mirror.tickets.get(action.id)
        state = "over" if action.id in self._mirror.ended else "unknown"
        assert ticket is not None, f"{action} is about a ticket that is {state}"
        return ticket

    def _start(self, action: Route) -> None:
        ticket = self._of(action)
        assert not self._stopping, f"{action.id} starts after the shutdown"
        rules.may_start(self._mirror, self._options, ticket, action)
        self._note_rate(ticket)
        self._answer(ticket)
        self._mirror.start(ticket, self._mirror.nodes[action.node])

    def _abort(self, action: Abort) -> None:
        assert isinstance(self._event, Revoked), f"nobody revoked {action.id}"
        ticket = self._of(action)
        assert ticket.state == "running", f"{action.id} does not run"
        ticket.revoked = action.code
        assert action.code == self._event.code, f"{action} was {self._event}"

    def _answer(self, ticket: SeenTicket) -> None:
        """Note that the newcomer got its decision and is accepted."""
        if ticket is self._newcomer:
            self._mirror.accept(ticket)
            self._newcomer, self._answered = None, ticket

    def _wait(self, action: Wait) -> None:
        ticket = self._of(action)
        assert ticket is self._newcomer, f"{action} answers nobody"
        assert not self._stopping, f"{action.id} waits in a gateway that stops"
        self._may_wait(ticket)
        self._answer(ticket)
        self._mirror.wait(ticket)
        self._count_waiting(ticket)
        ticket.promised_s = action.p50_s
        assert action.position >= 1, f"{action} stands nowhere"
        if action.reason == "rate":
            assert ticket.arrived.key in self._mirror.paced, f"{action.id} has no rate"
        elif action.reason == "key":
            assert self._mirror.is_gated(ticket), f"{action.id} does not wait for its key"
        elif not self._mirror.is_up(ticket.lane):
            assert action.reason in AWAY, f"{action.id} waits for {action.reason}: its nodes do not"
        if action.p50_s is not None and action.p90_s is not None:
            assert 0.0 <= action.p50_s <= action.p90_s, f"{action} promises nonsense"

    def _may_wait(self, ticket: SeenTicket) -> None:
        """Check that waiting is allowed."""
        name = ticket.arrived.id
        ticket.guest = rules.never_waits(self._options, ticket.arrived)
        assert not ticket.guest or self._mirror.finds_a_job(ticket.lane), f"{name} may not wait"

    def _reject(self, action: Reject) -> None:
        ticket = self._of(action)
        if ticket is self._newcomer:
            self._newcomer = None
            rules.is_deserved(self._mirror, self._options, ticket, action, self._stopping)
            self._mirror.ended.add(action.id)
            return
        assert ticket.state == "waiting", f"{action.id} is rejected while {ticket.state}"
        match self._event:
            case Revoked():
                asked = (self._event.id, self._event.code)
                assert (action.id, action.code) == asked, f"{action} was {self._event}"
            case ShutDown() | Returned():
                expected = ticket.revoked or ("shutting_down" if self._stopping else "nothing")
                assert action.code == expected, f"{action} where {expected} was asked for"
            case NodeChanged() | NodeRemoved():
                is_known = self._mirror.nodes_of(ticket.lane)
                assert not is_known, f"{action.id} is refused with {action.code}, which is not so"
            case Arrived():
                assert self._newcomer is not None, f"{action.id} gives way to nobody"
                rules.displacement_is_right(self._mirror, self._options, ticket, self._newcomer)
            case _:
                raise AssertionError(f"{action.id} is rejected for no reason")
        self._census.end("cancelled" if isinstance(self._event, Revoked) else "rejected")
        self._mirror.end(ticket)

    def _expire(self, action: Expire) -> None:
        ticket, mirror = self._of(action), self._mirror
        self._census.end("expired")
        if ticket is self._newcomer:
            assert ticket.wait_limit_s == 0.0, f"{action.id} expires on arrival"
            self._newcomer = None
            mirror.accepted += 1
            mirror.ended.add(action.id)
            return
        deadline_s = ticket.deadline_s()
        assert ticket.state == "waiting", f"{action.id} expires while {ticket.state}"
        assert deadline_s is not None, f"{action.id} expires without a limit"
        assert mirror.now_s >= deadline_s - rules.TOLERANCE_S, f"{action.id} expires too soon"
        waited_s = ticket.total_wait_s(mirror.now_s)
        assert abs(action.waited_s - waited_s) <= rules.TOLERANCE_S, f"{action} waited {waited_s}"
        is_late = action.code == "queue_timeout"
        assert is_late == mirror.is_up(ticket.lane), f"{action} names the wrong reason"
        mirror.end(ticket)
