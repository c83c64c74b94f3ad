"""A load as a value, and a player that drives a scheduler through it on a fake clock.

Service times are fixed, so that only the order of dispatches decides who gets what.
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, cycle
from typing import Any, Protocol

from forebay.core import Scheduler
from forebay.core.actions import Action, Route
from forebay.core.events import Arrived, Event, Finished, NodeChanged, Returned, Ticked
from forebay.core.options import Options
from forebay.testing import FakeClock


def roomy(**more: Any) -> Options:
    """Return options with the bounds out of the way, counting requests: loads are about order."""
    always = {"max_size": 1_000_000, "wait_s_max": 1e9, "fairness": "round_robin"}
    return Options(**{**always, **more})


FAILS_AFTER_S = 0.01
ROUND_ROBIN = roomy()
FIFO = roomy(fairness="fifo")
TOKENS = roomy(fairness="tokens")


class Decider(Protocol):
    """The scheduler, or a double that is unfair on purpose."""

    def handle(self, event: Event, now_s: float) -> Sequence[Action]: ...

    def next_deadline_s(self) -> float | None: ...


@dataclass(frozen=True)
class Party:
    """One user's part of a load."""

    user: str
    backlog: int = 0
    """Keeps so many waiting from `start_s` on."""
    times: tuple[float, ...] = ()
    """Or sends at these times."""
    start_s: float = 0.0
    weight: float = 1.0
    models: tuple[str, ...] = ("m",)
    """Asked for in turn."""
    priority: str = "normal"
    prompt_tokens: int = 100
    output_tokens: int = 100
    """What the answer really is; the scheduler learns it when it ends."""
    output_limit: int = 0
    service_s: float = 1.0
    conversation: str = ""
    """Of the user; the log tells conversations apart where the load says so."""
    returns: int = 0
    """How often each request comes back before its first byte, and is tried again."""


@dataclass(frozen=True)
class Station:
    """One node."""

    name: str = "n"
    slots: int = 1
    models: tuple[str, ...] = ("m",)
    slowness: float = 1.0
    """Multiplies service times."""


@dataclass(frozen=True)
class Load:
    """Who wants what, from whom, under which options."""

    parties: tuple[Party, ...]
    stations: tuple[Station, ...] = (Station(),)
    options: Options = ROUND_ROBIN
    duration_s: float = 200.0
    by_conversation: bool = False
    """Whether shares are those of one user's conversations, not of users."""

    def name(self, party: Party) -> str:
        """Return between whom fairness is looked at."""
        return party.conversation if self.by_conversation else party.user

    def cost(self, party: Party) -> float:
        """Return what one answer of this party really costs, in the options' own measure."""
        if self.options.fairness != "tokens" and self.options.class_order != "weighted":
            return 1.0
        return (
            self.options.input_weight * party.prompt_tokens
            + self.options.output_weight * party.output_tokens
        )

    def weights(self) -> dict[str, float]:
        if self.by_conversation:
            return {party.conversation: 1.0 for party in self.parties}
        return {party.user: party.weight for party in self.parties}


@dataclass(frozen=True)
class Dispatch:
    """One start that came to an answer, and who was waiting for the same node in that instant."""

    at_s: float
    user: str
    priority: str
    node: str
    waited_s: float
    cost: float
    backlogged: frozenset[tuple[str, str]]
    """(user, priority) of everyone with something waiting that this node could serve."""


@dataclass
class Log:
    """What happened."""

    load: Load
    dispatches: list[Dispatch] = field(default_factory=list)
    offered: list[tuple[float, str, float]] = field(default_factory=list)
    """(when, user, cost) of every arrival."""

    def served(self, start_s: float = 0.0, end_s: float = 1e9, node: str = "") -> Counter[str]:
        """Return the cost of what was started for each user in a window."""
        found: Counter[str] = Counter()
        for one in self.dispatches:
            if start_s <= one.at_s < end_s and node in ("", one.node):
                found[one.user] += one.cost  # type: ignore[assignment]  # a Counter of floats
        return found


def play(load: Load, scheduler: Decider | None = None) -> Log:
    """Drive a scheduler through a load; the real one unless another is given."""
    return _Player(load, scheduler or Scheduler(load.options)).play()


class _Player:
    def __init__(self, load: Load, scheduler: Decider) -> None:
        self._load = load
        self._scheduler = scheduler
        self._clock = FakeClock()
        self._numbers = count()
        self._inbox: deque[Event] = deque()
        self._draining = False
        self._tick_s: float | None = None
        self._waiting: dict[str, tuple[Party, str, float]] = {}
        self._backlog: Counter[tuple[Party, str]] = Counter()  # how many wait, by party and model
        self._models: dict[Party, Iterator[str]] = {}
        self._stations = {station.name: station for station in load.stations}
        self._log = Log(load)

    def play(self) -> Log:
        for station in self._load.stations:
            self._post(NodeChanged(station.name, station.slots, station.models))
        for party in self._load.parties:
            self._models[party] = cycle(party.models)
            at_s = party.times or (party.start_s,) * party.backlog
            for moment_s in at_s:
                self._clock.call_at(moment_s, partial(self._send, party))
        self._clock.advance(self._load.duration_s)
        return self._log

    def _send(self, party: Party) -> None:
        request_id = f"{party.user}-{next(self._numbers)}"
        model, now_s = next(self._models[party]), self._clock.monotonic_s()
        self._waiting[request_id] = (party, model, now_s)
        self._backlog[party, model] += 1
        self._log.offered.append((now_s, self._load.name(party), self._load.cost(party)))
        self._post(
            Arrived(
                id=request_id,
                model=model,
                user=party.user,
                priority=party.priority,
                weight=party.weight,
                prompt_tokens=party.prompt_tokens,
                output_limit=party.output_limit,
                conversation=party.conversation,
            )
        )

    def _post(self, event: Event) -> None:
        self._inbox.append(event)
        if self._draining:
            return
        self._draining = True
        while self._inbox:
            for action in self._scheduler.handle(self._inbox.popleft(), self._clock.monotonic_s()):
                if isinstance(action, Route):
                    self._start(action)
        self._draining = False
        due_s = self._scheduler.next_deadline_s()
        if due_s is not None and due_s <= self._load.duration_s and due_s != self._tick_s:
            self._tick_s = due_s
            self._clock.call_at(due_s, self._tick)

    def _tick(self) -> None:
        self._tick_s = None
        self._post(Ticked())

    def _start(self, action: Route) -> None:
        station, now_s = self._stations[action.node], self._clock.monotonic_s()
        backlogged = frozenset(
            (self._load.name(party), party.priority)
            for (party, model), waiting in self._backlog.items()
            if waiting and model in station.models
        )
        party, model, sent_s = self._waiting[action.id]
        if action.attempt <= party.returns:
            self._clock.call_at(
                now_s + FAILS_AFTER_S, lambda: self._post(Returned(action.id, exclude=False))
            )
            return
        del self._waiting[action.id]
        self._backlog[party, model] -= 1
        cost = self._load.cost(party)
        self._log.dispatches.append(
            Dispatch(
                now_s,
                self._load.name(party),
                party.priority,
                action.node,
                now_s - sent_s,
                cost,
                backlogged,
            )
        )
        end_s = now_s + party.service_s * station.slowness
        self._clock.call_at(end_s, lambda: self._finish(action.id, party))
        if party.backlog:
            self._clock.call_at(now_s, lambda: self._send(party))

    def _finish(self, request_id: str, party: Party) -> None:
        self._post(Finished(request_id, True, party.prompt_tokens, party.output_tokens))
