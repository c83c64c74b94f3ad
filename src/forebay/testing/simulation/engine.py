"""The scheduler in virtual time: the one loop under everything that is simulated.

An `Engine` stands where the gateway's loop stands: it posts events, performs actions, and keeps one
timer for the next deadline. What runs the requests (`Node`) and what sends them (`Client`) are
parts that are given to it, and so are watchers, who see each event with what was decided. Nothing
here sees the state of the core, and nothing draws a random number.

>>> from forebay.core import NodeChanged, Scheduler
>>> class Echo:
...     def start(self, sent: SentRequest, attempt: int) -> None:
...         engine.after(2.0, lambda: engine.post(Finished(sent.arrived.id)))
...     def stop(self, request_id: str) -> None: ...
>>> engine = Engine(Scheduler())
>>> engine.nodes["gpu"] = Echo()
>>> engine.watchers.append(lambda event, now_s, _: print(now_s, type(event).__name__))
>>> engine.post(NodeChanged("gpu", 1, ("m",)))
0.0 NodeChanged
>>> engine.send(SentRequest(Arrived("a", "m")))
0.0 Arrived
>>> engine.run()
2.0 Finished
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Protocol

from forebay.core.actions import Abort, Action, Expire, Reject, Route
from forebay.core.events import (
    Arrived,
    Audited,
    Cancelled,
    Event,
    Finished,
    Observed,
    Returned,
    Ticked,
)
from forebay.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from forebay.testing.clock import FakeTimer

STEPS_IN_ONE_INSTANT_MAX = 100_000
"""More than this without time passing is a livelock."""


class Decider(Protocol):
    """The scheduler, or a double of it that a control test breaks on purpose."""

    def handle(self, event: Event, now_s: float) -> Sequence[Action]: ...

    def next_deadline_s(self) -> float | None: ...


class Client(Protocol):
    """Whoever sends requests."""

    def note_end(self, sent: SentRequest, refused: bool) -> None: ...


class Node(Protocol):
    """Whatever runs them; it posts what becomes of each."""

    def start(self, sent: SentRequest, attempt: int) -> None: ...

    def stop(self, request_id: str) -> None:
        """Abort a request: its client left."""


@dataclass(slots=True)
class SentRequest:
    """One request as its sender knows it."""

    arrived: Arrived
    client: Client | None = None
    """Whom to tell of its end."""
    output_tokens: int = 0
    """What the answer costs; the scheduler learns it at the end."""
    service_s: float | None = None
    """How long it takes on a node of usual speed; None leaves that to the node."""
    vanish_share: float | None = None
    """After which share of the answer its client leaves; None stays."""
    vanishes_on_grant: bool = False
    running: bool = False


class Engine:
    """One scheduler with a clock of its own."""

    def __init__(self, scheduler: Decider, tick_late_s: Callable[[], float] = float) -> None:
        """`tick_late_s` says how late a timer fires: event loops stall."""
        self.scheduler = scheduler
        self.clock = FakeClock()
        self.nodes: dict[str, Node] = {}
        self.open: dict[str, SentRequest] = {}
        """What has been sent and is not over, by id."""
        self.watchers: list[Callable[[Event, float, Sequence[Action]], None]] = []
        self.numbers: Iterator[int] = count()
        """Makes ids unique."""
        self.acted_at_s = 0.0
        """When the scheduler last decided anything but to show itself."""
        self.tick_s: float | None = None
        """When it wants to be woken."""
        self._tick_late_s = tick_late_s
        self._tick: FakeTimer | None = None
        self._inbox: deque[Event] = deque()
        self._draining = False
        self._instant_s, self._instant_steps = 0.0, 0

    def now_s(self) -> float:
        return self.clock.monotonic_s()

    def after(self, delay_s: float, action: Callable[[], object]) -> FakeTimer:
        return self.clock.call_at(self.clock.monotonic_s() + delay_s, action)

    def every(self, period_s: float, action: Callable[[], object]) -> None:
        """Do something again and again; with an endless period never."""

        def again() -> None:
            action()
            self.after(period_s, again)

        if period_s < inf:
            self.after(period_s, again)

    def run(self) -> None:
        """Go on until no timer is left."""
        while self.clock.run_next():
            pass

    def send(self, sent: SentRequest) -> None:
        """Let a request arrive."""
        self.open[sent.arrived.id] = sent
        self.post(sent.arrived)

    def leave(self, request_id: str) -> None:
        """Let the client of a request go, whether it waits or runs."""
        if self.open[request_id].running:
            self.stop(request_id)
        else:
            self.post(Cancelled(request_id))

    def stop(self, request_id: str) -> None:
        for node in self.nodes.values():
            node.stop(request_id)

    def post(self, event: Event) -> None:
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
        now_s = self.clock.monotonic_s()
        actions = self.scheduler.handle(event, now_s)
        for watch in self.watchers:
            watch(event, now_s, actions)
        self._instant_steps = self._instant_steps + 1 if now_s == self._instant_s else 0
        self._instant_s = now_s
        if self._instant_steps > STEPS_IN_ONE_INSTANT_MAX:
            raise AssertionError("time stands still")
        if actions and not isinstance(event, (Observed, Audited)):
            self.acted_at_s = now_s
        if isinstance(event, (Finished, Cancelled)):
            self._end(event.id)
        elif isinstance(event, Returned) and event.id in self.open:
            self.open[event.id].running = False
        for action in actions:
            self._perform(action)

    def _perform(self, action: Action) -> None:
        if isinstance(action, Route):
            sent = self.open[action.id]
            sent.running = True
            if sent.vanishes_on_grant:
                self.post(Cancelled(action.id))
            else:
                self.nodes[action.node].start(sent, action.attempt)
        elif isinstance(action, (Reject, Expire)):
            self._end(action.id, refused=True)
        elif isinstance(action, Abort):
            self.stop(action.id)

    def _end(self, request_id: str, refused: bool = False) -> None:
        sent = self.open.pop(request_id, None)
        if sent is not None and sent.client is not None:
            sent.client.note_end(sent, refused)

    def _arm_tick(self) -> None:
        due_s = self.scheduler.next_deadline_s()
        if due_s == self.tick_s:
            return
        self.tick_s = due_s
        if self._tick is not None:
            self._tick.cancel()
        if due_s is not None:
            self._tick = self.clock.call_at(due_s + self._tick_late_s(), self._fire_tick)

    def _fire_tick(self) -> None:
        self.tick_s = None
        self.post(Ticked())
