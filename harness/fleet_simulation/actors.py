"""Those who see what a fleet does: nodes that run things, gateways that have clients."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forebay.core import (
    Audit,
    Audited,
    Cancelled,
    Expire,
    Finished,
    NodeChanged,
    NodeRested,
    Observed,
    Reject,
    Returned,
    Route,
    SlotsChanged,
    Snapshot,
    Wait,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from forebay.coordination.replica import Replica
    from forebay.core import Action, Arrived
    from forebay.testing.clock import FakeClock
    from harness.fleet_simulation.checker import FleetChecker
    from harness.fleet_simulation.clocks import MachineClock
    from harness.fleet_simulation.store import Line

ATTEMPTS_MAX = 3
REST_S = 0.5
PROBE_S = 1.0
ENDED = 3


@dataclass(eq=False)
class Request:
    """One client and what became of it."""

    arrival: Arrived
    gateway: Gateway
    arrived_s: float
    patience_s: float
    service_s: float
    state: str = "asked"
    waits_since_s: float = 0.0
    node: str = ""
    attempt: int = 0
    outcome: str = ""
    in_storm: bool = False
    """Whether it came while something was wrong."""
    failed_on: set[str] = field(default_factory=set)
    idle_since_s: float | None = None
    """Since when a slot has been free that it could use."""


@dataclass(eq=False)
class Backend:
    """A model server: runs whatever reaches it."""

    name: str
    slots: int
    models: tuple[str, ...]
    running: set[Request] = field(default_factory=set)
    last_start_s: float = 0.0
    last_full_s: float = 0.0
    rests_until_s: float = 0.0
    """It said that it is busy: until then, and the next probe after it, less is sent to it."""
    changes: list[tuple[float, int]] = field(default_factory=list)
    """Slots it had before, and until when."""

    def leave(self, request: Request, now_s: float) -> None:
        """Have a slot free again, if it was there."""
        if request in self.running:
            if len(self.running) >= self.slots:
                self.last_full_s = now_s
            self.running.discard(request)

    def idle_since_s(self) -> float:
        """Return since when it has had a free slot, and the same requests."""
        return max(self.last_start_s, self.last_full_s)

    def resize(self, slots: int, now_s: float) -> None:
        self.changes.append((now_s, self.slots))
        self.slots = slots

    def changed_since(self, since_s: float) -> bool:
        return any(until_s >= since_s for until_s, _ in self.changes)

    def slots_since(self, since_s: float) -> int:
        """Return the most slots it had since then."""
        return max([self.slots, *(slots for until_s, slots in self.changes if until_s >= since_s)])


class Gateway:
    """One replica with its clients: posts what they do, performs what is decided."""

    def __init__(
        self,
        name: str,
        member: str,
        clock: MachineClock,
        line: Line,
        stage: Stage,
    ) -> None:
        self.name = name
        self.member = member
        self.clock = clock
        self.line = line
        self.stage = stage
        self.replica: Replica
        self.ready = False
        self.closing = False
        self.isolated = False
        self.out_since_s: float | None = None
        """Since when it has been out of touch with the store, by a fault."""
        self.settled_s = 0.0
        """When it will have been in touch for long enough to be known to whoever leads."""
        self.requests: dict[str, Request] = {}
        self.ended: deque[str] = deque(maxlen=ENDED)
        """The ids of the last that were here."""

    @property
    def alive(self) -> bool:
        return not self.clock.dead

    def running_on(self, node: str) -> int:
        """Return how many requests of this gateway a node runs."""
        return sum(one.gateway is self for one in self.stage.backends[node].running)

    # -- what clients do

    def arrive(self, request: Request) -> None:
        name = request.arrival.id
        if not self.alive or self.closing or name in self.requests:
            return
        self.requests[name] = request
        self.stage.checker.arrived(request)
        self.replica.post(request.arrival)
        self.later(request.patience_s, lambda: self._leave(request))

    def _leave(self, request: Request) -> None:
        if not request.outcome:
            self._end(request, "left")
            self.replica.post(Cancelled(request.arrival.id))

    def later(self, after_s: float, callback: Callable[[], None]) -> None:
        """Call back after a while of the world, if this gateway is there then."""
        world = self.stage.world
        world.call_at(world.monotonic_s() + after_s, lambda: self.clock.deliver(callback))

    # -- what it sees of the nodes

    def probe(self) -> None:
        """Report how the nodes are, and look at the whole picture."""
        if self.closing:
            return
        for backend in self.stage.backends.values():
            self.replica.post(NodeChanged(backend.name, backend.slots, backend.models))
        self.replica.post(Observed())
        self.replica.post(Audited())
        self.later(self.stage.random.uniform(0.5, 1.0) * PROBE_S, self.probe)

    # -- what is decided

    def perform(self, action: Action) -> None:
        checker = self.stage.checker
        if isinstance(action, Snapshot):
            checker.observed(self, action)
            return
        if isinstance(action, Audit):
            checker.audited(self, action)
            return
        if isinstance(action, SlotsChanged):
            return
        request = self.requests.get(action.id)
        if request is None:
            checker.broken(f"{self.name} is told {action} of a request that has ended")
        elif isinstance(action, Route):
            self._start(request, action)
        elif isinstance(action, Wait):
            checker.waits(request)
        elif isinstance(action, Reject | Expire):
            checker.refused(request, action.code)
            self._end(request, action.code)

    def _start(self, request: Request, route: Route) -> None:
        stage = self.stage
        at_once = request.state == "asked" and stage.world.monotonic_s() == request.arrived_s
        stage.checker.starts(request, route, at_once=at_once)
        request.state, request.node = "running", route.node
        request.attempt = route.attempt
        backend = stage.backends[route.node]
        backend.running.add(request)
        backend.last_start_s = stage.world.monotonic_s()
        stage.checker.started(request, at_once=at_once)
        chance = stage.random.random() / stage.trouble if stage.trouble else 2.0
        if chance < 1.0 and route.attempt < ATTEMPTS_MAX:
            how = "busy" if chance < 0.3 else "error" if chance < 0.5 else "lost"
            stage.after(0.05, lambda: self._stop(request, lambda: self._come_back(request, how)))
        else:
            stage.after(
                request.service_s, lambda: self._stop(request, lambda: self._finish(request))
            )

    def _stop(self, request: Request, then: Callable[[], None]) -> None:
        """The node is done with it; its gateway learns of it when it can."""
        running = self.stage.backends[request.node].running if request.node else set()
        if request in running:
            self.stage.backends[request.node].leave(request, self.stage.world.monotonic_s())
            self.clock.deliver(then)

    def _finish(self, request: Request) -> None:
        if not request.outcome:
            self._end(request, "served")
            self.replica.post(Finished(request.arrival.id))

    def _come_back(self, request: Request, how: str) -> None:
        """Return: the node said it is busy, answered an error (try it there again), or was lost."""
        if request.outcome:
            return
        request.state = "back"
        if how == "busy":
            until_s = self.stage.world.monotonic_s() + REST_S + PROBE_S
            self.stage.backends[request.node].rests_until_s = until_s
            self.replica.post(NodeRested(request.node, REST_S))
        elif how == "lost":
            request.failed_on.add(request.node)
        request.node = ""
        self.replica.post(Returned(request.arrival.id, exclude=how == "lost"))

    def _end(self, request: Request, outcome: str) -> None:
        del self.requests[request.arrival.id]
        self.ended.append(request.arrival.id)
        if request.node:
            self.stage.backends[request.node].leave(request, self.stage.world.monotonic_s())
        request.outcome = outcome
        request.state = "ended"
        self.stage.checker.ended(request)

    def die(self, *, stops: bool) -> None:
        """Be gone at once; nodes may notice, or go on with what nobody waits for."""
        self.clock.dead = True
        self.replica.stop()
        for request in list(self.requests.values()):
            node = request.node if not stops else ""
            if not stops:
                request.node = ""
            self._end(request, "lost")
            request.node = node


@dataclass(eq=False)
class Stage:
    """What all actors share."""

    world: FakeClock
    random: Random
    trouble: float
    checker: FleetChecker
    backends: dict[str, Backend]

    def after(self, after_s: float, callback: Callable[[], None]) -> None:
        self.world.call_at(self.world.monotonic_s() + after_s, callback)
