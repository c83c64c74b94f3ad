"""Plays a fleet: real replicas with their real links, around a simulated store, in virtual time.

Nothing is mocked between the store's protocol and the core: `Replica`, `StoreTasks`, `Follower`,
`Leader` are what a gateway runs, on an event loop that never waits: when nothing is left to do it
moves the world on to its next event. One seed drives everything.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from forebay.coordination.protocol.messages import About
from forebay.coordination.replica import Replica
from forebay.core import Arrived, ShutDown
from forebay.testing.clock import FakeClock
from harness.fleet_simulation.actors import Backend, Gateway, Request, Stage
from harness.fleet_simulation.checker import SETTLED, FleetChecker
from harness.fleet_simulation.clocks import MachineClock, virtual_loop
from harness.fleet_simulation.faults import Faults
from harness.fleet_simulation.store import Keyspace, Line, Valkey
from harness.fleet_simulation.tables import leftovers, uncounted
from harness.fleet_simulation.wire_checks import WireChecker

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Coroutine, Sequence

    from harness.fleet_simulation.plans import FleetPlan, Resize

STEPS_MAX = 10_000
"""Many more than a fleet takes in one moment."""
LOOK_S = 0.1
RESTART_S = 1.0
FOR_EVER_S = 1e6
CALM = 3
"""Leases after the last fault from which on everything must be as without any."""


@dataclass
class FleetReport:
    """What came of a world."""

    plan: FleetPlan
    counts: Counter[str]
    overcommit_max: int
    ended_s: float
    problems: list[str]
    trace: list[str]
    starts: list[tuple[float, str]]
    """When which request started, in order."""
    outcomes: dict[str, str]
    """Of each request, by its id."""


class _Listener(logging.Handler):
    """Errors that a replica logs are bugs."""

    def __init__(self, checker: FleetChecker) -> None:
        super().__init__()
        self._checker = checker

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage() + (f": {record.exc_info[1]!r}" if record.exc_info else "")
        if record.levelno >= logging.ERROR:
            self._checker.broken(f"{text} {getattr(record, 'error', '')}")
        else:
            self._checker.note(f"log: {text}")


class FleetSimulation:
    """One run of one world."""

    def __init__(
        self,
        plan: FleetPlan,
        replica: type[Replica] = Replica,
        keyspace: type[Keyspace] = Keyspace,
    ) -> None:
        self.plan = plan
        self.world = FakeClock()
        chance = Random(f"{plan.seed}/store").random
        self.valkey = Valkey(
            self.world, lambda: keyspace(plan.lease_s, lambda: chance() < plan.drops)
        )
        self.checker = FleetChecker(plan, self.world)
        self._wire = WireChecker(self.checker.broken)
        self._make_replica = replica
        self._random = Random(f"{plan.seed}/clients")
        self._hurry = Random(f"{plan.seed}/hurry")
        self._reuse = Random(f"{plan.seed}/reuse")
        backends = {
            name: Backend(name, slots, models) for name, (slots, models) in plan.nodes.items()
        }
        self.checker.backends = backends
        self.stage = Stage(
            self.world, Random(f"{plan.seed}/nodes"), plan.trouble, self.checker, backends
        )
        self.gateways: dict[str, Gateway] = self.checker.gateways
        self._loop = virtual_loop(self._move_on)
        self._tasks: set[asyncio.Task[None]] = set()
        self._faults = Faults(self)
        self._members = 0
        self._here_s, self._steps_here = 0.0, 0
        self.limit_s = (
            plan.duration_s
            + max([0.0, *(one.at_s + one.for_s - plan.duration_s for one in plan.faults)])
            + plan.options.wait_s_max
            + 12 * plan.lease_s
            + 30 * plan.service_s
        )

    def run(self) -> FleetReport:
        """Play it to its end."""
        listener, logger = _Listener(self.checker), logging.getLogger("forebay.coordination")
        logger.addHandler(listener)
        try:
            self._loop.set_exception_handler(self._complain)
            self._loop.call_soon(self._start)
            self._loop.run_forever()
        finally:
            logger.removeHandler(listener)
            self._close()
        checker = self.checker
        return FleetReport(
            self.plan,
            checker.counts,
            checker.overcommit_max,
            self.world.monotonic_s(),
            checker.problems,
            list(checker.trace),
            checker.starts_seen,
            checker.outcomes,
        )

    def _move_on(self) -> bool:
        """Let the world's next event happen; stop the loop and say no when that was the last."""
        now_s = self.world.monotonic_s()
        self._steps_here = self._steps_here + 1 if now_s == self._here_s else 0
        self._here_s = now_s
        if self._steps_here > STEPS_MAX:
            self.checker.broken("time stands still: a timer is armed for the past, again and again")
        if self.checker.problems or self._is_over() or not self.world.run_next():
            self._loop.stop()
            return False
        return True

    def _close(self) -> None:
        for gateway in self.gateways.values():
            gateway.clock.dead = True
            gateway.replica.stop()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self.world = FakeClock()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    def _complain(self, _: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        self.checker.broken(f"{context.get('message')}: {context.get('exception')!r}")

    # -- setting out

    def _start(self) -> None:
        for number in range(self.plan.replicas):
            self.add_gateway(f"{number:08x}")
        self._faults.start()
        for resize in self.plan.resizes:
            self.world.call_at(resize.at_s, partial(self._resize, resize))
        self.world.call_at(1.0, self._arrive)
        self.world.call_at(LOOK_S, self._look)

    def add_gateway(self, name: str) -> None:
        """Start a gateway, under a member id of its own."""
        plan, self._members = self.plan, self._members + 1
        random = Random(f"{plan.seed}/{name}/{self._members}")
        rate = 1.0 + random.uniform(-plan.drift, plan.drift)
        clock = MachineClock(self.world, random.uniform(0.0, 1e5), rate)
        line = Line(self.valkey, clock, random, plan.delay_s, plan.loss)
        line.heard = self._wire.read
        member = f"{name}-{self._members:04x}"
        gateway = Gateway(name, member, clock, line, self.stage)
        about = About(member, f"http://{name}", "1", "same")
        gateway.replica = self._make_replica(
            about, plan.options, gateway.perform, clock, line, lease_s=plan.lease_s
        )
        gateway.replica.ask_peers = lambda _: self._ask_peers(gateway)
        self.gateways[name] = gateway
        self._faults.note_newcomer(gateway)
        self._spawn(self._join(gateway))

    async def _join(self, gateway: Gateway) -> None:
        await gateway.replica.start()
        if gateway.alive:
            gateway.ready = True
            gateway.probe()

    async def _ask_peers(self, asker: Gateway) -> bool:
        """Ask the others whether they are led."""
        answered = asyncio.Event()
        asker.clock.call_at(asker.clock.monotonic_s() + 0.005, answered.set)
        await answered.wait()
        return any(
            one.alive and not one.clock.frozen and one.replica.mode == "coordinated"
            for one in self.gateways.values()
            if one is not asker and not asker.isolated and not one.isolated
        )

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- clients and nodes

    def _arrive(self) -> None:
        plan, random = self.plan, self._random
        now_s = self.world.monotonic_s()
        if now_s >= plan.duration_s:
            return
        self.world.call_at(now_s + random.expovariate(plan.arrivals_per_s), self._arrive)
        ready = [one for one in self.gateways.values() if one.alive and one.ready]
        if not ready:
            return
        gateway = ready[int(random.random() * len(ready))]  # draws alike, however many there are
        models = sorted({model for one in self.stage.backends.values() for model in one.models})
        arrival = Arrived(
            self._new_id(gateway),
            random.choice(models),
            user=f"user{random.randrange(plan.users)}",
            priority=random.choices(plan.options.priorities, (1, 4, 1))[0],
            max_wait_s=0.0 if self._hurry.random() < plan.hurried else None,
        )
        patience_s = random.uniform(0.0, 5.0) if random.random() < plan.leaves else FOR_EVER_S
        service_s = plan.service_s * min(10.0, random.expovariate(1.0) + 0.05)
        request = Request(arrival, gateway, now_s, patience_s, service_s)
        gateway.clock.deliver(lambda: gateway.arrive(request))

    def _new_id(self, gateway: Gateway) -> str:
        """Return an id; sometimes one that another gateway has in use, or this one had before."""
        before = [name for name in gateway.ended if name not in gateway.requests]
        if before and self._reuse.random() < self.plan.reused:
            return self._reuse.choice(before)
        if self._random.random() < self.plan.twins:
            theirs = [
                name
                for other in self.gateways.values()
                if other.name != gateway.name
                for name in other.requests
                if name not in gateway.requests
            ]
            if theirs:
                return self._random.choice(theirs)
        return f"r{self.checker.counts['requests']}.{self._random.randrange(1000)}"

    def _resize(self, resize: Resize) -> None:
        self.checker.note(f"{resize.node} has {resize.slots} slots")
        self.stage.backends[resize.node].resize(resize.slots, self.world.monotonic_s())

    # -- the end

    def retire(self, gateway: Gateway, then: Callable[[], None]) -> None:
        """Let a gateway resign, drain and leave, as on SIGTERM."""
        gateway.ready, gateway.closing = False, True
        gateway.replica.resign()
        gateway.replica.post(ShutDown())
        self._wait_for_drain(gateway, then)

    def _wait_for_drain(self, gateway: Gateway, then: Callable[[], None]) -> None:
        if gateway.requests and gateway.alive:
            gateway.later(LOOK_S, lambda: self._wait_for_drain(gateway, then))
        elif gateway.alive:
            self._spawn(self._leave(gateway, then))

    async def _leave(self, gateway: Gateway, then: Callable[[], None]) -> None:
        await gateway.replica.close()
        gateway.clock.dead = True
        then()

    def _look(self) -> None:
        self.checker.look()
        now_s = self.world.monotonic_s()
        if now_s > self.limit_s:
            left = [
                f"{one.arrival.id} of {gateway.name} ({one.state})"
                for gateway in self.gateways.values()
                for one in gateway.requests.values()
            ]
            self.checker.broken(f"not over: {left} {self._leftovers()}")
        self.world.call_at(now_s + LOOK_S, self._look)

    def _is_over(self) -> bool:
        """Say whether all has ended, and nothing is left anywhere."""
        now_s = self.world.monotonic_s()
        if now_s < self.plan.duration_s:
            return False
        over_s = max(self.plan.duration_s, self._faults.over_s + CALM * self.plan.lease_s)
        if now_s < over_s or any(one.requests for one in self.gateways.values()):
            return False
        return now_s >= over_s + SETTLED and not self._leftovers()

    def _leftovers(self) -> list[str]:
        alive = [one for one in self.gateways.values() if one.alive]
        served = sum(self.checker.served[one.member] for one in alive)
        return [*leftovers(alive), *uncounted(alive, served)]


def play(plan: FleetPlan) -> FleetReport:
    """Play a world; an AssertionError says what broke, and how to replay it."""
    report = FleetSimulation(plan).run()
    if report.problems:
        raise AssertionError(failure(report))
    return report


def failure(report: FleetReport) -> str:
    """Say what went wrong, and how to see it again."""
    steps: Sequence[str] = report.trace
    return "\n".join(
        [
            *report.problems[:3],
            f"replay with: python -m harness.fleet_simulation --seed {report.plan.seed}",
            "the last steps:",
            *steps,
        ]
    )
