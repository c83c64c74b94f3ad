"""A load as a value, and a player that drives a scheduler through it on a fake clock.

Service times are fixed, so that only the order of dispatches decides who gets what.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

from forebay.core import Scheduler
from forebay.core.events import Arrived, Finished, NodeChanged, Returned
from forebay.core.options import Options
from forebay.testing.simulation.engine import Decider, Engine, SentRequest

if TYPE_CHECKING:
    from collections.abc import Iterator


def roomy(**more: Any) -> Options:
    """Return options with the bounds out of the way, counting requests: loads are about order."""
    always = {"max_size": 1_000_000, "wait_s_max": 1e9, "fairness": "round_robin"}
    return Options(**{**always, **more})


FAILS_AFTER_S = 0.01
ROUND_ROBIN = roomy()
FIFO = roomy(fairness="fifo")
TOKENS = roomy(fairness="tokens")


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
    """Sends what the parties want, and serves it on every station."""

    def __init__(self, load: Load, scheduler: Decider) -> None:
        self._load = load
        self._engine = Engine(scheduler)
        self._waiting: dict[str, tuple[Party, str, float]] = {}
        self._backlog: Counter[tuple[Party, str]] = Counter()  # how many wait, by party and model
        self._models: dict[Party, Iterator[str]] = {}
        self._log = Log(load)

    def play(self) -> Log:
        for station in self._load.stations:
            self._engine.nodes[station.name] = _Server(station, self)
            self._engine.post(NodeChanged(station.name, station.slots, station.models))
        for party in self._load.parties:
            self._models[party] = cycle(party.models)
            at_s = party.times or (party.start_s,) * party.backlog
            for moment_s in at_s:
                self._engine.after(moment_s, partial(self._send, party))
        self._engine.clock.advance(self._load.duration_s)
        return self._log

    def _send(self, party: Party) -> None:
        request_id = f"{party.user}-{next(self._engine.numbers)}"
        model, now_s = next(self._models[party]), self._engine.now_s()
        self._waiting[request_id] = (party, model, now_s)
        self._backlog[party, model] += 1
        self._log.offered.append((now_s, self._load.name(party), self._load.cost(party)))
        arrived = Arrived(
            id=request_id,
            model=model,
            user=party.user,
            priority=party.priority,
            weight=party.weight,
            prompt_tokens=party.prompt_tokens,
            output_limit=party.output_limit,
            conversation=party.conversation,
        )
        self._engine.send(SentRequest(arrived))

    def start(self, station: Station, request_id: str, attempt: int) -> None:
        engine, now_s = self._engine, self._engine.now_s()
        backlogged = frozenset(
            (self._load.name(party), party.priority)
            for (party, model), waiting in self._backlog.items()
            if waiting and model in station.models
        )
        party, model, sent_s = self._waiting[request_id]
        if attempt <= party.returns:
            engine.after(FAILS_AFTER_S, lambda: engine.post(Returned(request_id, exclude=False)))
            return
        del self._waiting[request_id]
        self._backlog[party, model] -= 1
        self._log.dispatches.append(
            Dispatch(
                now_s,
                self._load.name(party),
                party.priority,
                station.name,
                now_s - sent_s,
                self._load.cost(party),
                backlogged,
            )
        )
        end = Finished(request_id, True, party.prompt_tokens, party.output_tokens)
        engine.after(party.service_s * station.slowness, lambda: engine.post(end))
        if party.backlog:
            engine.after(0.0, lambda: self._send(party))


@dataclass(frozen=True)
class _Server:
    """One station, as the engine knows it."""

    station: Station
    player: _Player

    def start(self, sent: SentRequest, attempt: int) -> None:
        self.player.start(self.station, sent.arrived.id, attempt)

    def stop(self, request_id: str) -> None:
        raise AssertionError("nobody leaves")
