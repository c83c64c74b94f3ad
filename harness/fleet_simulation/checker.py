"""What is promised of a fleet, checked from outside: by what clients and nodes see, and grants.

**Grants.** A request never starts while it runs, and nothing is said of it after its end. No id is
used twice between replicas (see `wire_checks`), whatever ids clients use again.

**Slots.** When a gateway starts something on a node, count what runs there for it and for all
other gateways that are *settled*: in touch with the store for two leases. That count is never
above the slots, except inside a *window*: from the moment a fault takes the leader or the store
until two leases after its end. Inside windows it is counted, and what runs for living gateways
stays within twice the slots for each fault under way. A gateway that is out of touch starts
nothing after one lease, unless it is alone: then no more than its share. One that is cut off
starts nothing. What runs for a gateway that died goes on to its end, and counts for nobody.

**Order.** Of two requests of one user, class and lane the one that was told to wait before the
other came goes first, and a higher class before a lower one. Only a lent slot may be filled by a
newcomer, within the moment that the recall is under way; these are counted. All this holds for
those that came when nothing was wrong: a leader that has not heard of a place cannot keep it.

**Bounds.** No more wait than may, for longer than messages are under way.

**Limits.** Nobody who came when nothing was wrong waits longer than it may, whoever leads.

**Refusals.** Nobody is refused for want of a slot beside one that was free before and stays so.

**Progress.** A slot that someone could use does not stay free; everything ends.

**Totals.** No observer ever sees a count go down, or more served than were. In the end all that
living gateways have served is counted, whoever led then.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from forebay.core import Audit, Route, Snapshot, Totals
    from forebay.testing.clock import FakeClock
    from harness.fleet_simulation.actors import Backend, Gateway, Request
    from harness.fleet_simulation.plans import FleetPlan

SETTLED = 2
"""Leases after which a gateway in touch is known to whoever leads, and windows are over."""
MOMENT_S = 0.5
"""How long messages may be under way, retries included."""
NO_SLOT = ("queue_full", "user_queue_full", "deadline_unreachable")
"""Refusals that a free slot would have spared."""
TRACE = 80


class FleetChecker:
    """Watches one fleet."""

    def __init__(self, plan: FleetPlan, world: FakeClock) -> None:
        self._plan = plan
        self._world = world
        self.gateways: dict[str, Gateway] = {}
        self.backends: dict[str, Backend] = {}
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        self.overcommit_max = 0
        self.starts_seen: list[tuple[float, str]] = []
        self.outcomes: dict[str, str] = {}
        self.trace: deque[str] = deque(maxlen=TRACE)
        self.windows = 0
        """Faults under way that take the leader or the store."""
        self._window_until_s = 0.0
        self._lost_until_s = 0.0
        self._moment_s = plan.lease_s if plan.drops else MOMENT_S
        self._answer_s = 10 * plan.delay_s  # there and back, and once more, on a bad day
        self._stormy_s = 0.0  # when it was not calm last
        self._suspects: deque[tuple[float, Request, list[Request]]] = deque()
        self._snubbed: deque[tuple[float, Request, list[Backend]]] = deque()
        self._crowded_since_s: float | None = None
        self._totals: dict[str, Totals] = {}
        self.served: Counter[str] = Counter()  # by member

    # -- what the faults explain

    def open_window(self) -> None:
        self.windows += 1

    def close_window(self) -> None:
        self.windows -= 1
        self._window_until_s = self._world.monotonic_s() + SETTLED * self._plan.lease_s

    def lost_one(self) -> None:
        """Know that a gateway is gone: what it held comes free within a lease."""
        self._lost_until_s = self._world.monotonic_s() + SETTLED * self._plan.lease_s

    @property
    def in_window(self) -> bool:
        return self.windows > 0 or self._world.monotonic_s() < self._window_until_s

    def settled(self) -> list[Gateway]:
        """Return the gateways that have been in touch for long enough."""
        now_s = self._world.monotonic_s()
        return [one for one in self.gateways.values() if one.alive and one.settled_s <= now_s]

    @property
    def calm(self) -> bool:
        """Whether nothing has gone wrong for long enough."""
        alive = [one for one in self.gateways.values() if one.alive]
        settled = len(self.settled()) == len(alive)
        return settled and not self.in_window and self._world.monotonic_s() >= self._lost_until_s

    # -- what happens

    def broken(self, what: str) -> None:
        self.note(f"BROKEN {what}")
        self.problems.append(what)

    def note(self, what: str) -> None:
        self.trace.append(f"  {self._world.monotonic_s():10.4f}  {what}")

    def arrived(self, request: Request) -> None:
        self.counts["requests"] += 1
        request.in_storm = not self.calm
        self.note(f"{request.gateway.name} {request.arrival.id} arrives for {request.arrival.user}")

    def waits(self, request: Request) -> None:
        if request.state == "running":
            self.broken(f"{request.arrival.id} is told to wait while it runs")
        if request.state == "asked":
            request.state, request.waits_since_s = "waiting", self._world.monotonic_s()
            self.note(f"{request.gateway.name} {request.arrival.id} waits")

    def starts(self, request: Request, route: Route, *, at_once: bool) -> None:
        """A grant has come, and nothing has been done about it yet."""
        gateway = request.gateway
        how = "at once" if at_once else "by grant"
        self.note(
            f"{gateway.name} {request.arrival.id} starts on {route.node} {how} "
            f"({gateway.replica.mode}, epoch {gateway.replica.epoch})"
        )
        self.counts["starts"] += 1
        self.starts_seen.append((self._world.monotonic_s(), request.arrival.id))
        self.counts["at once"] += at_once
        if request.state == "running":
            self.broken(f"{request.arrival.id} has two live grants")
        self._check_order(request, at_once=at_once)

    def started(self, request: Request, *, at_once: bool) -> None:
        """It runs on its node now."""
        gateway, node = request.gateway, self.backends[request.node]
        mode, now_s = gateway.replica.mode, self._world.monotonic_s()
        slots = node.slots_since(now_s - self._plan.lease_s - 2.0)
        over = len(node.running) - slots
        if over > 0:
            self.counts["over-commits"] += 1
            self.overcommit_max = max(self.overcommit_max, over)
        if mode in ("alone", "cut_off"):
            self._check_share(gateway, node, slots)
            return
        out_s = gateway.out_since_s
        if out_s is not None and now_s > out_s + self._plan.lease_s:
            self.broken(f"{gateway.name} starts something, out of touch for over a lease")
        counted = {*self.settled(), gateway}
        known = sum(one.gateway in counted for one in node.running)
        if known <= slots:
            return
        if not self.in_window:
            self.broken(f"{node.name} runs {known} on {slots} slots, and no fault explains it")
        living = sum(one.gateway.alive for one in node.running)
        if living > (1 + max(1, self.windows)) * slots:
            self.broken(f"{node.name} runs {living} on {slots} slots, beyond what faults explain")

    def _check_share(self, gateway: Gateway, node: Backend, slots: int) -> None:
        self.counts["starts alone"] += 1
        members = len({gateway.member, *gateway.line.members})
        mine = gateway.running_on(node.name)
        if gateway.replica.mode == "cut_off" or mine > -(-slots // members):
            self.broken(
                f"{gateway.name} runs {mine} on {node.name}, {gateway.replica.mode}: "
                f"{slots} slots over {members} replicas"
            )

    def _check_order(self, request: Request, *, at_once: bool) -> None:
        options = self._plan.options
        if options.class_order != "strict" or options.aging_s:
            return  # then others may go first
        if self.in_window or request.attempt or request.gateway not in self.settled():
            return
        passed_over = self._passed_over(request)
        held = self._held() if passed_over else set()
        passed_over = [one for one in passed_over if one not in held]
        if not passed_over:
            return
        now_s = self._world.monotonic_s()
        if at_once and now_s - min(one.waits_since_s for one in passed_over) <= self._moment_s:
            self.counts["inversions on lent slots"] += 1
        else:  # they may have been granted a slot as well, and not know it yet
            self._suspects.append((now_s + self._moment_s, request, passed_over))

    def _look_at_suspects(self, now_s: float) -> None:
        while self._suspects and self._suspects[0][0] <= now_s:
            _, request, passed_over = self._suspects.popleft()
            names = [one.arrival.id for one in passed_over if one.state == "waiting"]
            if names and self.calm:
                self.broken(f"{request.arrival.id} has started before {', '.join(names)}")

    def _passed_over(self, request: Request) -> list[Request]:
        """Return who waits and should have gone first."""
        arrival = request.arrival
        ranks = self._plan.options.priorities
        return [
            one
            for gateway in self.settled()
            for one in gateway.requests.values()
            if one.state == "waiting"
            and not gateway.clock.frozen
            and one.arrived_s > self._stormy_s
            and one.waits_since_s < request.arrived_s - (0.0 if at_zero(self._plan) else MOMENT_S)
            and one.arrival.model == arrival.model
            and (
                ranks.index(one.arrival.priority) < ranks.index(arrival.priority)
                or (
                    one.arrival.priority == arrival.priority
                    and (one.arrival.user == arrival.user or self._plan.options.fairness == "fifo")
                )
            )
        ]

    def refused(self, request: Request, code: str) -> None:
        if request.state == "running":
            self.broken(f"{request.arrival.id} is refused while it runs")
        lossy = self._plan.drops or self._plan.loss  # then slots may come back too late
        if code not in NO_SLOT or request.state != "asked" or not self.calm or lossy:
            return
        now_s = self._world.monotonic_s()
        idle = [
            one for one in self._free_for(request) if one.idle_since_s() < now_s - self._answer_s
        ]
        if idle:  # it may be someone else's, who has not been told yet
            self._snubbed.append((now_s, request, idle))

    def _look_at_snubbed(self, now_s: float) -> None:
        while self._snubbed and self._snubbed[0][0] < now_s - self._answer_s:
            refused_s, request, idle = self._snubbed.popleft()
            names = [one.name for one in idle if one.idle_since_s() < refused_s]
            if names and self.calm:
                self.broken(f"{request.arrival.id} was refused beside a free slot of {names[0]}")

    def ended(self, request: Request) -> None:
        self.counts[request.outcome] += 1
        self.served[request.gateway.member] += request.outcome == "served"
        self.outcomes[request.arrival.id] = request.outcome
        self.note(f"{request.gateway.name} {request.arrival.id} ends: {request.outcome}")

    def observed(self, gateway: Gateway, snapshot: Snapshot) -> None:
        now = snapshot.totals
        if now.served > self.served.total():
            self.broken(f"{gateway.name} saw {now.served} of {self.served.total()} served")
        before = self._totals.get(gateway.member)
        self._totals[gateway.member] = now
        if before is not None:
            for name, count in msgspec.structs.asdict(before).items():
                if name != "rejected" and getattr(now, name) < count:
                    self.broken(f"{gateway.name} saw {count} {name}, and now {getattr(now, name)}")

    def audited(self, gateway: Gateway, audit: Audit) -> None:
        """See that its coordinator keeps just the leases that it uses, whoever leads."""
        kept = {lease.id: lease.node for lease in audit.leases}
        running = (one for one in gateway.requests.values() if one.state == "running")
        used = {one.arrival.id: one.node for one in running}
        if kept != used or audit.tickets != len(gateway.requests):
            self.broken(f"{gateway.name} uses {used} of {len(gateway.requests)}, kept is {audit}")

    # -- from time to time

    def look(self) -> None:
        """See that nobody waits beside a free slot, and not too many wait."""
        now_s = self._world.monotonic_s()
        waiting = [
            one
            for gateway in self.gateways.values()
            if gateway.alive
            for one in gateway.requests.values()
            if one.state != "running"
        ]
        for request in waiting:
            self._look_at_limit(request, now_s)
        self._look_at_slots(waiting, now_s)
        self._look_at_suspects(now_s)
        self._look_at_snubbed(now_s)
        if not self.calm:
            self._stormy_s = now_s
        told = sum(one.state == "waiting" for one in waiting)
        if told <= self._plan.options.max_size or not self._long_calm(now_s):
            self._crowded_since_s = None
        elif self._crowded_since_s is None:
            self._crowded_since_s = now_s
        elif now_s - self._crowded_since_s > self._moment_s:
            self.broken(f"{told} wait where {self._plan.options.max_size} may")

    def _look_at_limit(self, request: Request, now_s: float) -> None:
        if request.attempt or request.gateway.clock.frozen or request.in_storm:
            return
        own_s, all_s = request.arrival.max_wait_s, self._plan.options.wait_s_max
        limit_s = all_s if own_s is None else min(own_s, all_s)
        if now_s - request.arrived_s > (1 + self._plan.drift) * limit_s + MOMENT_S:
            self.broken(f"{request.arrival.id} of {request.gateway.name} waits beyond its limit")

    def _held(self) -> set[Request]:
        """Return who waits for a better node, or has done so: free slots are not for them.

        Only the cores that decide can tell.
        """
        held: set[str] = set()
        for gateway in self.gateways.values():
            leader = gateway.replica.roles.leader
            if leader is not None:
                entries = leader.decisions.scheduler._book.entries.values()
                held |= {entry.id for entry in entries if entry.held_until_s}
        return {
            request
            for gateway in self.gateways.values()
            for name, request in gateway.requests.items()
            if gateway.replica._ids._wire.get(name, name) in held
        }

    def _look_at_slots(self, waiting: list[Request], now_s: float) -> None:
        settled = set() if self.in_window else set(self.settled())
        patience_s = (0.5 if self.calm and not self._plan.drops else 2.0) * self._plan.lease_s
        free: dict[str, list[Backend]] = {}  # by model, for those that have failed nowhere
        for request in waiting:
            if request.gateway not in settled:
                request.idle_since_s = None
            elif request.failed_on:
                self._look_at(request, self._free_for(request), now_s, patience_s)
            else:
                model = request.arrival.model
                if model not in free:
                    free[model] = self._free_for(request)
                self._look_at(request, free[model], now_s, patience_s)

    def _look_at(
        self, request: Request, free: list[Backend], now_s: float, patience_s: float
    ) -> None:
        if not free:
            request.idle_since_s = None
            return
        if request.idle_since_s is None:
            request.idle_since_s = now_s
        idle_s = now_s - max(request.idle_since_s, *(one.last_start_s for one in free))
        if idle_s > patience_s and request not in self._held():
            self.broken(f"{request.arrival.id} is {request.state} beside a free slot")

    def _free_for(self, request: Request) -> list[Backend]:
        """Return the nodes that have a slot which it should get.

        One that has failed on all of them waits for the first that is well again, so nothing can
        be said unless all are free.
        """
        now_s = self._world.monotonic_s()
        able = [one for one in self.backends.values() if request.arrival.model in one.models]
        fresh = [one for one in able if one.name not in request.failed_on]
        free = [
            one
            for one in fresh or able
            if len(one.running) < one.slots
            and now_s >= one.rests_until_s
            and not one.changed_since(now_s - 3.0)
        ]
        return free if fresh or len(free) == len(able) else []

    def _long_calm(self, now_s: float) -> bool:
        """Say whether what waits now came when nothing was wrong."""
        patience_s = self._plan.options.wait_s_max
        return self.calm and all(
            one.settled_s + patience_s <= now_s for one in self.gateways.values() if one.alive
        ) and self._window_until_s + patience_s <= now_s  # fmt: skip


def at_zero(plan: FleetPlan) -> bool:
    """Say whether messages take no time at all in a world."""
    return plan.delay_s == 0.0
