"""Which model a node should have in memory, the slow and obvious way; for nodes with one slot.

With one slot nothing runs while the node is free, so that a swap is decided and made in one step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.core import NodeChanged, Options

    from .naive_order import Lane, Line, Ticket

RECENT = 100
LOADS = 9


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values[-RECENT:])
    return ordered[int(share * (len(ordered) - 1))]


@dataclass
class Memory:
    """What a node has in memory, since when, and what it had before."""

    ready_s: dict[str, float] | None = None
    """From when on each model can serve; None where nothing ever swaps."""
    room: int = 1
    left_s: dict[str, float] = field(default_factory=dict)
    load_s: float = 0.0
    is_told: bool = False
    loads: list[tuple[str, float]] = field(default_factory=list)
    """What loads and the first runs after them took."""
    loaders: dict[str, tuple[Ticket, float]] = field(default_factory=dict)
    proved: set[str] = field(default_factory=set)
    """Models with which a run has ended well since they were loaded."""
    joined: set[str] = field(default_factory=set)
    """Tickets that started with a model that another was having loaded."""

    def hear(self, said: NodeChanged, running: list[str], now_s: float) -> None:
        """Take over a report; what runs is there, whatever it says."""
        self.is_told = said.load_s > 0.0
        self.load_s = said.load_s if self.is_told else self.load_s
        if said.loaded is None:
            self.ready_s = None
            return
        self.room = max(1, said.loaded_max, len(said.loaded))
        before = self.ready_s or {}
        present = dict.fromkeys((*running, *said.loaded))
        fits = islice(present, max(self.room, len(set(running))))
        self.ready_s = {model: before.get(model, now_s) for model in fits}
        gone = {model: now_s for model in before if model not in self.ready_s}
        self.left_s = {m: s for m, s in {**self.left_s, **gone}.items() if m in said.models}

    def has(self, model: str) -> bool:
        return self.ready_s is None or model in self.ready_s

    def has_room(self) -> bool:
        return self.ready_s is None or len(self.ready_s) < self.room

    def start(self, ticket: Ticket, models: tuple[str, ...], now_s: float) -> float:
        """Have a ticket's model ready, loading it if need be; return from when on it is."""
        model = ticket.lane[0]
        self.joined.discard(ticket.id)
        if self.ready_s is None or (not self.loaders and all(map(self.has, models))):
            return now_s
        if model in self.ready_s:
            if self.loaders.get(model, (None, 0.0))[0] is ticket:
                del self.loaders[model]
            elif model in self.loaders and model not in self.proved:
                self.joined.add(ticket.id)
        else:
            if not self.has_room():
                (out,) = self.ready_s
                del self.ready_s[out]
                self.left_s[out] = now_s
                self.loaders.pop(out, None)
            self.ready_s[model] = now_s + self.load_s
            self.loaders[model] = (ticket, now_s)
            self.proved.discard(model)
        return max(now_s, self.ready_s[model])


class Services:
    """How long services took, by lane, and since when lines are not served."""

    def __init__(self) -> None:
        self.took_s: dict[Lane, list[float]] = {}
        self.unserved_s: dict[Line, float] = {}
        self.opened: dict[Line, int] = {}  # in which order lines began to wait

    def of_model(self, model: str, lanes: list[Lane], share: float) -> float | None:
        found = [
            quantile(self.took_s[lane], share)
            for lane in lanes
            if lane[0] == model and self.took_s.get(lane)
        ]
        return max(found, default=None)

    def usual_s(self, model: str, lanes: list[Lane]) -> float:
        """Return the median of a model, or the longest of the others on the node."""
        own_s = self.of_model(model, lanes, 0.5)
        others = [self.of_model(lane[0], lanes, 0.5) or 0.0 for lane in lanes]
        return max(others, default=0.0) if own_s is None else own_s

    def finish(self, ticket: Ticket, memory: Memory, lanes: list[Lane], now_s: float) -> None:
        """Measure a service, and the load before it where there was one."""
        model, lane = ticket.lane[0], ticket.lane
        service_s: float | None = now_s - ticket.since_s
        loader, began_s = memory.loaders.get(model, (None, 0.0))
        if memory.ready_s is not None:
            if loader is not None and not memory.is_told:
                memory.ready_s[model] = min(memory.ready_s[model], now_s)
            memory.proved.add(model)
            if loader is ticket:
                del memory.loaders[model]
                service_s = self.measure_load(lane, memory, lanes, now_s - began_s)
            elif ticket.id in memory.joined and not memory.is_told:
                service_s = None
        positive = memory.ready_s is None or (service_s is not None and service_s > 0.0)
        if service_s is not None and positive:
            took_s = self.took_s.setdefault(lane, [])
            took_s.append(service_s)
            if len(took_s) == 1 and memory.ready_s is not None:
                self.learn_load(memory, lanes)

    def measure_load(
        self, lane: Lane, memory: Memory, lanes: list[Lane], took_s: float
    ) -> float | None:
        if memory.is_told:
            return took_s - memory.load_s
        before_s = memory.load_s if self.usual_s(lane[0], lanes) else 0.0
        memory.loads.append((lane[0], took_s))
        self.learn_load(memory, lanes)
        return took_s - before_s if before_s and not self.took_s.get(lane) else None

    def learn_load(self, memory: Memory, lanes: list[Lane]) -> None:
        """Take what loads took beyond a usual service; all of it while none was measured."""
        recent = memory.loads[-LOADS:]
        if recent and not memory.is_told:
            beyond_s = sorted(max(0.0, s - self.usual_s(m, lanes)) for m, s in recent)
            memory.load_s = beyond_s[(len(beyond_s) - 1) // 2]


@dataclass
class Decision:
    """One look at one node: who waits for it, class by class in the order of choice."""

    memory: Memory
    services: Services
    lanes: list[Lane]
    classes: list[list[Ticket]]
    job_rank: int
    heads: dict[Line, Ticket]
    warm_elsewhere: set[Lane]
    now_s: float
    options: Options

    def runnable(self) -> list[Ticket]:
        """Return those of one class of whom the next may run."""
        if not self.classes or self.memory.has_room():
            return self.classes[0] if self.classes else []
        swap = self.swap()
        for tickets in self.classes:
            warm = [ticket for ticket in tickets if self.memory.has(ticket.lane[0])]
            if swap is not None and not self.goes_before(tickets[0].rank, swap[0]):
                warm = [ticket for ticket in tickets if ticket.lane[0] == swap[1][0]]
            if warm:
                return warm
        return []

    def goes_before(self, rank: int, swap_rank: int) -> bool:
        strict = self.options.class_order == "strict"
        return rank < swap_rank and (strict or swap_rank == self.job_rank)

    def swap(self) -> Line | None:
        """Return the line for whose sake the model in memory must leave now."""
        live = [tickets for tickets in self.classes if tickets[0].rank != self.job_rank]
        turn = self.in_turn(live or self.classes)
        for place, line in turn:
            if self.is_due(place, line, live):
                return line
            if live and self.is_last_call(line, turn, live):
                return turn[0][1]
        return None

    def in_turn(self, classes: list[list[Ticket]]) -> list[tuple[int, Line]]:
        cold = {
            (place, ticket.line): None
            for place, tickets in enumerate(classes)
            for ticket in tickets
            if not self.memory.has(ticket.lane[0])
        }
        return sorted(
            cold,
            key=lambda one: (
                one[0],
                one[1][1] in self.warm_elsewhere,
                self.memory.left_s.get(one[1][1][0], 0.0),
                self.services.unserved_s[one[1]],
                self.services.opened[one[1]],
            ),
        )

    def stays_s(self) -> float:
        return self.memory.load_s * (1.0 / self.options.swap_share - 1.0)

    def is_claimed(self, classes: list[list[Ticket]]) -> bool:
        """Say whether someone waits for the model that would leave."""
        return any(self.memory.has(ticket.lane[0]) for some in classes for ticket in some)

    def is_too_late(self, line: Line) -> bool:
        return self.now_s >= self.heads[line].deadline_s

    def is_due(self, place: int, line: Line, live: list[list[Ticket]]) -> bool:
        classes = live or self.classes
        if live and self.is_too_late(line):
            return False
        if not self.is_claimed(classes):
            return bool(live) or self.now_s >= self.since_s() + self.stays_s()
        above = [some for some in classes[: place + 1] if self.is_claimed([some])]
        waited = self.now_s >= self.services.unserved_s[line] + self.options.swap_wait_s
        return self.now_s >= self.since_s() + self.stays_s() and (waited or not above)

    def since_s(self) -> float:
        (since_s,) = (self.memory.ready_s or {"": 0.0}).values()
        return since_s

    def is_last_call(
        self, line: Line, turn: list[tuple[int, Line]], live: list[list[Ticket]]
    ) -> bool:
        model = line[1][0]
        if line[1] in self.warm_elsewhere or self.is_too_late(line) or not self.is_claimed(live):
            return False
        (resident,) = self.memory.ready_s or ("",)
        order = list(dict.fromkeys(other[1][0] for _, other in turn))
        before = order[: order.index(model)]
        before_s = sum(
            self.memory.load_s + self.services.usual_s(other, self.lanes) for other in before
        )
        left_s = self.heads[line].deadline_s - self.now_s
        p90_s = self.services.of_model(resident, self.lanes, 0.9) or 0.0
        half = self.now_s >= self.since_s() + self.stays_s() / 2.0
        return (
            half and left_s <= p90_s + 2.0 + before_s and len(before) * self.memory.load_s < left_s
        )
