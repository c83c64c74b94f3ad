"""Plays a scenario around the real scheduler, in virtual time, and checks every step.

One seed drives everything; each actor has its own stream of random numbers, so that a change of
policy does not change who sends what and when.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from hashlib import blake2b
from math import inf
from random import Random
from typing import TYPE_CHECKING

import msgspec

from forebay.core import Scheduler
from forebay.core.actions import Action, Describe, Expire, Reject
from forebay.core.events import (
    Audited,
    Cancelled,
    Event,
    Finished,
    Inspected,
    Observed,
    OptionsChanged,
    Returned,
    Revoked,
    ShutDown,
)
from forebay.core.snapshot import Snapshot
from forebay.testing.simulation.checker import Checker
from forebay.testing.simulation.clients import RecordedClients, SimulatedClient
from forebay.testing.simulation.engine import Decider, Engine
from forebay.testing.simulation.nodes import SimulatedNode
from forebay.testing.simulation.report import Recorder, Report
from forebay.testing.simulation.scenario import (
    Changed,
    Closing,
    Disturbance,
    Outage,
    Reconfigured,
    Removal,
    Scenario,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

TRACE_STEPS = 40
"""How much of the end of a run a failure shows."""
QUIET_PROBES = 50
"""After so many probe rounds without any action, what still waits is left over for good."""
QUIET_S = 3600.0
"""... and at least this long where the scheduler has asked for a tick meanwhile: no swap hold of a
sensible scenario lasts longer."""


class Simulation:
    """One run of one scenario under one seed.

    >>> from forebay.testing.simulation.scenario import *
    >>> scenario = Scenario(
    ...     nodes=(NodePlan("gpu", service_s=Always(2.0)),),
    ...     clients=(ClientPlan("ann", Times((0.0, 0.0, 1.0))),),
    ... )
    >>> report = Simulation(scenario, seed=1).run()
    >>> [(record.outcome, record.waited_s) for record in report.requests]
    [('served', 0.0), ('served', 2.0), ('served', 3.0)]
    """

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        scheduler: Decider | None = None,
        *,
        checked: bool = True,
    ) -> None:
        """Unless it is `checked`, nobody looks at each step: for figures of long recordings."""
        self._scenario = scenario
        self._seed = seed
        self._random = Random(f"{seed}/ticks")
        decider = scheduler if scheduler is not None else Scheduler(scenario.options)
        self._engine = Engine(decider, lambda: scenario.tick_late_s.draw(self._random))
        self._checker = Checker(scenario.options, lambda ticket: self._is_held(ticket))
        self._recorder = Recorder()
        self._encoder = msgspec.msgpack.Encoder()
        self._hash = blake2b(digest_size=16)
        self._checked = checked
        if checked:
            self._engine.watchers += [self._trace, self._check]
        self._engine.watchers.append(self._recorder.note)
        if scenario.late_rate:
            self._engine.watchers.append(self._repeat_itself)
        self._nodes: dict[str, SimulatedNode] = {}
        self.trace: deque[tuple[float, Event, Sequence[Action]]] = deque(maxlen=TRACE_STEPS)
        """The last steps, for a look at what went wrong."""

    def run(self) -> Report:
        """Play it to its end; an AssertionError says what broke and how to replay it."""
        try:
            self._start()
            if self._scenario.duration_s == inf:
                self._engine.run()
            while self._is_going_on() and self._engine.clock.run_next():
                pass
            if self._checked:
                self._finish()
        except Exception as error:
            raise AssertionError(self._failure(error)) from error
        loads = sum(node.loads for node in self._nodes.values())
        return self._recorder.report(self._seed, loads, self._hash.hexdigest())

    # Setting out and winding up

    def _start(self) -> None:
        scenario, seed, engine = self._scenario, self._seed, self._engine
        for plan in scenario.nodes:
            random = Random(f"{seed}/node/{plan.name}")
            node = SimulatedNode(plan, random, engine, scenario.attempts_max)
            self._nodes[plan.name] = engine.nodes[plan.name] = node
            node.report()
        for number, client in enumerate(scenario.clients):
            random = Random(f"{seed}/client/{number}")
            SimulatedClient(client, random, engine).start(scenario.duration_s)
        RecordedClients(scenario.recording, engine).start()
        for disturbance in scenario.disturbances:
            engine.after(disturbance.at_s, partial(self._disturb, disturbance))
        engine.every(scenario.probe_s, self._probe)
        if scenario.observe_s:
            engine.every(scenario.observe_s, self._observe)

    def _observe(self) -> None:
        self._engine.post(Observed())
        self._engine.post(Audited())

    def _probe(self) -> None:
        for node in self._nodes.values():
            node.report()

    def _is_going_on(self) -> bool:
        """Say whether anything can still happen; probes alone go on for ever."""
        engine = self._engine
        next_s = engine.clock.next_timer_s()
        if next_s is None or next_s >= self._scenario.duration_s:
            return bool(engine.open) and engine.now_s() < self._quiet_until_s()
        return True

    def _quiet_until_s(self) -> float:
        """Return until when something may still come of what waits."""
        probed_s = self._engine.acted_at_s + QUIET_PROBES * self._scenario.probe_s
        patient_s = self._engine.acted_at_s + QUIET_S
        is_due = self._engine.tick_s is not None and self._engine.tick_s < patient_s
        return max(probed_s, patient_s) if is_due else probed_s

    def _finish(self) -> None:
        """Give up what nothing can serve any more, and see that nothing is left over."""
        self._checker.nothing_is_starved()
        for request_id in list(self._engine.open):
            self._engine.post(Cancelled(request_id))
        self._observe()
        self._checker.everything_is_zero()

    # What looks at each step

    def _trace(self, event: Event, now_s: float, actions: Sequence[Action]) -> None:
        self.trace.append((now_s, event, actions))
        self._hash.update(self._encoder.encode(actions))

    def _check(self, event: Event, now_s: float, actions: Sequence[Action]) -> None:
        next_deadline_s = self._engine.scheduler.next_deadline_s()
        self._checker.step(event, now_s, actions, next_deadline_s)

    def _is_held(self, ticket_id: str) -> bool:
        seen = self._engine.scheduler.handle(Inspected(ticket_id), self._engine.now_s())
        return any(isinstance(one, Describe) and one.reason == "better_node" for one in seen)

    def _repeat_itself(self, event: Event, _: float, actions: Sequence[Action]) -> None:
        """Let a late event follow for some that are over."""
        ended = [event.id] if isinstance(event, Finished | Cancelled) else []
        ended += [action.id for action in actions if isinstance(action, Reject | Expire)]
        engine, random = self._engine, self._random
        for request_id in dict.fromkeys(ended):
            if request_id in engine.open and random.random() < self._scenario.late_rate:
                kind = random.choice((Finished, Returned, Cancelled, Revoked, Inspected))
                engine.after(random.random(), partial(engine.post, kind(request_id)))

    # What befalls the nodes

    def _disturb(self, disturbance: Disturbance) -> None:
        match disturbance:
            case Outage():
                self._put_out(disturbance)
            case Changed():
                self._nodes[disturbance.node].remake(disturbance.slots, disturbance.models)
            case Removal():
                self._nodes[disturbance.node].remove()
            case Reconfigured():
                self._engine.post(OptionsChanged(disturbance.options))
            case Closing():
                self._engine.post(ShutDown())

    def _put_out(self, outage: Outage) -> None:
        node = self._nodes[outage.node]
        if outage.state == "offline":
            node.fail_all(seen=outage.seen)
        else:
            node.change(outage.state)
        if outage.for_s < inf:
            self._engine.after(outage.for_s, node.recover)

    # Saying what went wrong

    def _failure(self, error: Exception) -> str:
        name = self._scenario.name or f"Simulation(scenario, seed={self._seed}).run()"
        kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
        steps = "\n".join(self.trace_lines())
        return f"{kind}{error}\nreplay with: {name}\nthe last steps:\n{steps}"

    def trace_lines(self) -> list[str]:
        """Return the end of the trace, one step a line."""
        return [
            f"  {now_s:10.3f}  {_short(event)}  =>  {'; '.join(map(_short, actions)) or '-'}"
            for now_s, event, actions in self.trace
        ]


def _short(value: msgspec.Struct) -> str:
    """Write an event or action with what differs from its defaults."""
    if isinstance(value, Snapshot):
        return f"Snapshot(waiting={value.waiting}, running={value.running}, ...)"
    fields = [
        f"{field.name}={getattr(value, field.name)!r}"
        for field in msgspec.structs.fields(value)
        if getattr(value, field.name) != field.default
    ]
    return f"{type(value).__name__}({', '.join(fields)})"
