"""Plays a scenario around the real scheduler, in virtual time, and checks every step.

The engine stands where the gateway's loop stands: it posts events, performs actions, and keeps
one timer for the next deadline. It sees events and actions, never the state of the core. One seed
drives everything; each actor has its own stream of random numbers, so that a change of policy
does not change who sends what and when.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING, Protocol

import msgspec

from forebay.core import Scheduler
from forebay.core.actions import Abort, Action, Describe, Expire, Reject, Route
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
    Ticked,
)
from forebay.core.snapshot import Snapshot
from forebay.testing.clock import FakeClock, FakeTimer
from forebay.testing.simulation.backends import SimulatedNode
from forebay.testing.simulation.callers import SimulatedClient
from forebay.testing.simulation.checker import Checker
from forebay.testing.simulation.report import Report, ReportRecorder
from forebay.testing.simulation.scenario import (
    Closing,
    Disturbance,
    Outage,
    Reconfigured,
    Remodelled,
    Removal,
    Resized,
    Scenario,
)
from forebay.testing.simulation.stage import SimulationStage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TRACE_STEPS = 40
"""How much of the end of a run a failure shows."""
QUIET_PROBES = 50
"""After so many probe rounds without any action, what still waits is left over for good."""
QUIET_S = 3600.0
"""... and at least this long where the scheduler has asked for a tick meanwhile: no swap hold of a
sensible scenario lasts longer."""
STEPS_IN_ONE_INSTANT_MAX = 100_000
"""More than this without time passing is a livelock."""


class Decider(Protocol):
    """The scheduler, or a double of it that a control test breaks on purpose."""

    def handle(self, event: Event, now_s: float) -> Sequence[Action]: ...

    def next_deadline_s(self) -> float | None: ...


class Simulation:
    """One run of one scenario under one seed.

    >>> from forebay.testing.simulation import Always, ClientPlan, NodePlan, Scenario, Times
    >>> scenario = Scenario(
    ...     nodes=(NodePlan("gpu", service_s=Always(2.0)),),
    ...     clients=(ClientPlan("ann", Times((0.0, 0.0, 1.0))),),
    ... )
    >>> report = Simulation(scenario, seed=1).run()
    >>> [(record.outcome, record.waited_s) for record in report.requests]
    [('served', 0.0), ('served', 2.0), ('served', 3.0)]
    """

    def __init__(self, scenario: Scenario, seed: int, scheduler: Decider | None = None) -> None:
        self._scenario = scenario
        self._seed = seed
        self._scheduler = scheduler if scheduler is not None else Scheduler(scenario.options)
        self._clock = FakeClock()
        self._stage = SimulationStage(self._clock, self._post)
        self._asks = self._stage.asks
        self._random = Random(f"{seed}/ticks")
        self._checker = Checker(scenario.options, lambda ticket: self._is_held(ticket))
        self._recorder = ReportRecorder(scenario.warmup_s)
        self._inbox: deque[Event] = deque()
        self._draining = False
        self._tick: FakeTimer | None = None
        self._tick_due_s: float | None = None
        self._acted_at_s = 0.0
        self._instant_steps = 0
        self._encoder = msgspec.msgpack.Encoder()
        self._hash = blake2b(digest_size=16)
        self._backends: dict[str, SimulatedNode] = {}
        self.trace: deque[tuple[float, Event, Sequence[Action]]] = deque(maxlen=TRACE_STEPS)
        """The last steps, for a look at what went wrong."""

    def run(self) -> Report:
        """Play it to its end; an AssertionError says what broke and how to replay it."""
        try:
            self._start()
            while self._is_going_on() and self._clock.run_next():
                pass
            self._finish()
        except Exception as error:
            raise AssertionError(self._failure(error)) from error
        loads = sum(backend.loads for backend in self._backends.values())
        return self._recorder.report(self._seed, loads, self._hash.hexdigest())

    # Setting out and winding up

    def _start(self) -> None:
        scenario, seed = self._scenario, self._seed
        for node in scenario.nodes:
            random = Random(f"{seed}/node/{node.name}")
            backend = SimulatedNode(node, random, self._stage, scenario.attempts_max)
            self._backends[node.name] = backend
            backend.report()
        for number, client in enumerate(scenario.clients):
            random = Random(f"{seed}/client/{number}")
            SimulatedClient(client, random, self._stage).start(scenario.duration_s)
        for disturbance in scenario.disturbances:
            self._at(disturbance.at_s, partial(self._disturb, disturbance))
        self._every(scenario.probe_s, self._probe)
        if scenario.observe_s:
            self._every(scenario.observe_s, self._observe)

    def _observe(self) -> None:
        self._post(Observed())
        self._post(Audited())

    def _is_going_on(self) -> bool:
        """Say whether anything can still happen; probes alone go on for ever."""
        next_s = self._clock.next_timer_s()
        if next_s is None or next_s >= self._scenario.duration_s:
            return bool(self._asks) and self._clock.monotonic_s() < self._quiet_until_s()
        return True

    def _quiet_until_s(self) -> float:
        """Return until when something may still come of what waits."""
        probed_s = self._acted_at_s + QUIET_PROBES * self._scenario.probe_s
        patient_s = self._acted_at_s + QUIET_S
        is_due = self._tick_due_s is not None and self._tick_due_s < patient_s
        return max(probed_s, patient_s) if is_due else probed_s

    def _finish(self) -> None:
        """Give up what nothing can serve any more, and see that nothing is left over."""
        self._checker.nothing_is_starved()
        for request_id in list(self._asks):
            self._post(Cancelled(request_id))
        self._observe()
        self._checker.everything_is_zero()

    # The loop

    def _post(self, event: Event) -> None:
        """Hand one event to the scheduler and perform what it decides; never re-enters."""
        self._inbox.append(event)
        if self._draining:
            return
        self._draining = True
        while self._inbox:
            self._step(self._inbox.popleft())
        self._draining = False
        self._arm_tick()

    def _step(self, event: Event) -> None:
        now_s = self._clock.monotonic_s()
        actions = self._scheduler.handle(event, now_s)
        self.trace.append((now_s, event, actions))
        self._hash.update(self._encoder.encode(actions))
        self._checker.step(event, now_s, actions, self._scheduler.next_deadline_s())
        self._recorder.note(event, now_s, actions)
        self._instant_steps = self._instant_steps + 1 if now_s == self._acted_at_s else 0
        if self._instant_steps > STEPS_IN_ONE_INSTANT_MAX:
            raise AssertionError("time stands still")
        if actions and not isinstance(event, Observed | Audited):
            self._acted_at_s = now_s
        match event:
            case Finished() | Cancelled():
                self._end(event.id)
            case Returned() if event.id in self._asks:
                self._asks[event.id].running = False
            case _:
                pass
        for action in actions:
            self._perform(action)

    def _is_held(self, ticket_id: str) -> bool:
        seen = self._scheduler.handle(Inspected(ticket_id), self._clock.monotonic_s())
        return any(isinstance(one, Describe) and one.reason == "better_node" for one in seen)

    def _perform(self, action: Action) -> None:
        match action:
            case Route():
                ask = self._asks[action.id]
                ask.running = True
                if ask.vanishes_on_grant:
                    self._post(Cancelled(action.id))
                else:
                    self._backends[action.node].start(ask, action.attempt)
            case Reject() | Expire():
                self._end(action.id, refused=True)
            case Abort():
                for backend in self._backends.values():
                    backend.stop(action.id)
            case _:
                pass

    def _end(self, request_id: str, refused: bool = False) -> None:
        ask = self._asks.pop(request_id, None)
        if ask is None:
            return
        ask.caller.ended(refused)
        late_rate = self._scenario.late_rate
        if late_rate and self._random.random() < late_rate:
            kind = self._random.choice((Finished, Returned, Cancelled, Revoked, Inspected))
            self._stage.after(self._random.random(), lambda: self._post(kind(request_id)))

    def _arm_tick(self) -> None:
        due_s = self._scheduler.next_deadline_s()
        if due_s == self._tick_due_s:
            return
        self._tick_due_s = due_s
        if self._tick is not None:
            self._tick.cancel()
        if due_s is not None:
            late_s = self._scenario.tick_late_s.draw(self._random)
            self._tick = self._clock.call_at(due_s + late_s, self._fire_tick)

    def _fire_tick(self) -> None:
        self._tick_due_s = None
        self._post(Ticked())

    # What happens to the nodes

    def _at(self, at_s: float, action: Callable[[], None]) -> None:
        self._clock.call_at(at_s, action)

    def _every(self, period_s: float, action: Callable[[], None]) -> None:
        def again() -> None:
            action()
            self._at(self._clock.monotonic_s() + period_s, again)

        self._at(period_s, again)

    def _probe(self) -> None:
        for backend in self._backends.values():
            backend.report()

    def _disturb(self, disturbance: Disturbance) -> None:
        match disturbance:
            case Outage():
                self._put_out(disturbance)
            case Resized():
                self._backends[disturbance.node].resize(disturbance.slots)
            case Remodelled():
                self._backends[disturbance.node].remodel(disturbance.models)
            case Removal():
                self._backends[disturbance.node].remove()
            case Reconfigured():
                self._post(OptionsChanged(disturbance.options))
            case Closing():
                self._post(ShutDown())

    def _put_out(self, outage: Outage) -> None:
        backend = self._backends[outage.node]
        if outage.state == "offline":
            backend.fail_all(seen=outage.seen)
        else:
            backend.change(outage.state)
        self._at(outage.at_s + outage.for_s, backend.recover)

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
