"""The world as it can be seen from outside: tickets and nodes, told by events and actions.

The checker compares what the scheduler does with this. It is written plainly and apart from the
core on purpose: no heaps, no clocks, no counters that could share a mistake with it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from forebay.core.nodes import BROKEN_OFF_S, NOTICE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from forebay.core.events import Arrived, NodeChanged

Lane: TypeAlias = tuple[str, str]


@dataclass(slots=True, eq=False)
class SeenTicket:
    """One accepted request or job."""

    arrived: Arrived
    order: int
    """Its place among all arrivals."""
    rank: int
    wait_limit_s: float | None
    """How long it may wait; None without limit."""
    state: Literal["new", "waiting", "running", "ended"] = "new"
    node: str = ""
    attempt: int = 0
    queued: bool = False
    counted: bool = False
    """Whether it is among those that had to wait."""
    waited_s: float = 0.0
    """Before the present spell of waiting."""
    waiting_since_s: float = 0.0
    """When the present spell began; valid while waiting."""
    excluded: set[str] = field(default_factory=set)
    """Nodes that failed it and have not reported themselves since."""
    returned: bool = False
    held: bool = False
    """Whether it waited for a better node when that was last asked."""
    promised_s: float | None = None
    """The p50 it was told on arrival."""
    guest: bool = False
    """Whether it may wait only because a job is in its way."""
    revoked: str = ""
    """The code with which its owner must answer, once somebody else wanted it gone."""
    lane: Lane = field(init=False)

    def __post_init__(self) -> None:
        self.lane = (self.arrived.model, self.arrived.family)

    def total_wait_s(self, now_s: float) -> float:
        spell_s = now_s - self.waiting_since_s if self.state == "waiting" else 0.0
        return self.waited_s + spell_s

    def deadline_s(self) -> float | None:
        """Return when it will have waited as long as it may; None while it does not wait."""
        if self.wait_limit_s is None or self.state != "waiting":
            return None
        return self.waiting_since_s + self.wait_limit_s - self.waited_s


@dataclass(slots=True, eq=False)
class SeenNode:
    """One node, by its last report and what was routed to it."""

    name: str
    slots: int = 0
    models: frozenset[str] = frozenset()
    families: frozenset[str] = frozenset()
    state: str = "offline"
    swaps: bool = False
    loaded_max: int = 1
    rest_until_s: float = 0.0
    broken_off_s: list[float] = field(default_factory=list)
    """When requests were cancelled there; each excuses one refusal."""
    removed: bool = False
    leases: dict[str, SeenTicket] = field(default_factory=dict)

    def take_over(self, event: NodeChanged) -> None:
        self.slots = max(0, event.slots)
        self.models = frozenset(event.models)
        self.families = frozenset(event.families)
        self.state = event.state
        self.swaps = event.loaded is not None
        self.loaded_max = max(1, event.loaded_max)
        self.removed = False

    def break_off(self, now_s: float) -> None:
        if not self.removed:
            self.broken_off_s.append(now_s)

    def rest(self, now_s: float, rest_s: float) -> None:
        self.broken_off_s = [at_s for at_s in self.broken_off_s if now_s - at_s <= BROKEN_OFF_S]
        if not self.broken_off_s:
            self.slots = max(min(self.slots, 1), self.slots - 1)
        elif rest_s <= BROKEN_OFF_S:
            rest_s = min(rest_s, NOTICE_S)
        self.broken_off_s = self.broken_off_s[1:]
        self.rest_until_s = max(self.rest_until_s, now_s + rest_s)

    def is_up(self) -> bool:
        return self.state == "online" and not self.removed

    def is_usable(self, now_s: float) -> bool:
        return self.is_up() and now_s >= self.rest_until_s and len(self.leases) < self.slots

    def serves(self, lane: Lane) -> bool:
        return lane[0] in self.models and lane[1] in self.families


class Mirror:
    """Everything that is unfinished, and every node."""

    def __init__(self, asks_held: Callable[[str], bool]) -> None:
        self.asks_held = asks_held
        self.now_s = 0.0
        self.starting: frozenset[str] = frozenset()
        """What is started in this step."""
        self.tickets: dict[str, SeenTicket] = {}
        self.ended: set[str] = set()
        self.accepted = 0
        self.nodes: dict[str, SeenNode] = {}
        self.lanes: dict[Lane, dict[SeenTicket, None]] = {}
        """What waits, by lane."""
        self.waiting = 0
        """Live requests that wait; jobs are not counted."""
        self.waiting_bytes = 0
        self.waiting_by_user: Counter[str] = Counter()
        self.waiting_by_key: Counter[str] = Counter()
        """Live requests that wait, by key."""
        self.held_by_key: Counter[str] = Counter()
        """What counts against a key's cap: unfinished live requests, and jobs once started."""
        self.paced: frozenset[str] = frozenset()
        """Keys with limits: what waits of theirs may not be allowed to start."""
        self._first_deadline_s: float | None = None
        self._is_first_known = True

    # Reading

    def all_waiting(self) -> Iterator[SeenTicket]:
        for tickets in self.lanes.values():
            yield from tickets

    def first_deadline_s(self) -> float | None:
        """Return when the first of those who wait will have waited as long as it may."""
        if not self._is_first_known:
            due_s = [ticket.deadline_s() for ticket in self.all_waiting()]
            self._first_deadline_s = min((at_s for at_s in due_s if at_s is not None), default=None)
            self._is_first_known = True
        return self._first_deadline_s

    def nodes_of(self, lane: Lane) -> list[SeenNode]:
        return [node for node in self.nodes.values() if not node.removed and node.serves(lane)]

    def is_up(self, lane: Lane) -> bool:
        return any(node.is_up() for node in self.nodes_of(lane))

    def strands_too_many(self, lane: Lane, places: int) -> bool:
        """Say whether those whose nodes are not up have half of the places, while others are."""
        up = any(node.is_up() and node.models and node.families for node in self.nodes.values())
        if not up or self.is_up(lane):
            return False
        away = (ticket for ticket in self.all_waiting() if not self.is_up(ticket.lane))
        live = sum(not ticket.arrived.job for ticket in away)
        return live >= max(1, places // 2)

    def finds_a_job(self, lane: Lane) -> bool:
        """Say whether more jobs run on a lane's nodes than others wait for to end."""
        nodes = [node for node in self.nodes_of(lane) if node.is_up()]
        jobs = sum(one.arrived.job for node in nodes for one in node.leases.values())
        guests = [ticket for ticket in self.all_waiting() if ticket.guest]
        return jobs > sum(any(n.serves(g.lane) for n in self.nodes_of(lane)) for g in guests)

    def inside(self) -> int:
        """Return how many of those who wait count against the bound."""
        return self.waiting - sum(ticket.guest for ticket in self.all_waiting())

    def waits_for(self, node: SeenNode) -> Iterator[SeenTicket]:
        """Return what must start on this node now if it has a free slot, whatever the rates."""
        for ticket in self.would_use(node):
            if ticket.arrived.key not in self.paced and not self.is_gated(ticket):
                yield ticket

    def is_held(self, ticket: SeenTicket) -> bool:
        """Say whether a ticket waits for a better node, or did so until this step.

        It was its turn then: from there on it goes before others of its queue, as a returned one.
        """
        before = ticket.held
        ticket.held = self.asks_held(ticket.arrived.id)
        ticket.returned |= ticket.held
        return ticket.held or before

    def is_gated(self, ticket: SeenTicket) -> bool:
        """Say whether a job waits for other requests of its key."""
        key, most = ticket.arrived.key, ticket.arrived.key_running_max
        if not most or not ticket.arrived.job:
            return False
        return self.held_by_key[key] >= most or self.waiting_by_key[key] > 0

    def would_use(self, node: SeenNode) -> Iterator[SeenTicket]:
        """Yield what waits and may run on this node, now or when its key may go on."""
        for lane, tickets in self.lanes.items():
            if tickets and node.serves(lane):
                yield from (one for one in tickets if node.name not in one.excluded)

    # Changing

    def accept(self, ticket: SeenTicket) -> None:
        arrived = ticket.arrived
        self.accepted += 1
        self.tickets[arrived.id] = ticket
        if not arrived.job:
            self.held_by_key[arrived.key] += 1

    def wait(self, ticket: SeenTicket) -> None:
        """Put it, for the first time or again, among those that wait."""
        ticket.state = "waiting"
        ticket.queued = True
        ticket.waiting_since_s = self.now_s
        self.lanes.setdefault(ticket.lane, {})[ticket] = None
        self._count(ticket, 1)
        due_s, first_s = ticket.deadline_s(), self._first_deadline_s
        if due_s is not None and (first_s is None or due_s < first_s):
            self._first_deadline_s = due_s

    def start(self, ticket: SeenTicket, node: SeenNode) -> None:
        if ticket.state == "waiting":
            self._stop_waiting(ticket)
        ticket.state = "running"
        ticket.guest = False
        ticket.node = node.name
        ticket.attempt += 1
        node.leases[ticket.arrived.id] = ticket
        if ticket.arrived.job:
            self.held_by_key[ticket.arrived.key] += 1

    def give_back(self, ticket: SeenTicket, exclude: bool) -> None:
        """End its lease and put it back in its place."""
        node = self.nodes[ticket.node]
        del node.leases[ticket.arrived.id]
        if exclude:
            ticket.excluded.add(node.name)
        if ticket.arrived.job:
            self.held_by_key[ticket.arrived.key] -= 1
        ticket.returned = True
        self.wait(ticket)

    def end(self, ticket: SeenTicket) -> None:
        """End it, whatever it was doing."""
        arrived = ticket.arrived
        if ticket.state == "running":
            del self.nodes[ticket.node].leases[arrived.id]
        else:
            self._stop_waiting(ticket)
        if not arrived.job or ticket.state == "running":
            self.held_by_key[arrived.key] -= 1
        ticket.state = "ended"
        del self.tickets[arrived.id]
        self.ended.add(arrived.id)

    def _stop_waiting(self, ticket: SeenTicket) -> None:
        if ticket.deadline_s() == self._first_deadline_s:
            self._is_first_known = False  # until somebody asks
        ticket.waited_s = ticket.total_wait_s(self.now_s)
        del self.lanes[ticket.lane][ticket]
        self._count(ticket, -1)

    def _count(self, ticket: SeenTicket, step: int) -> None:
        if not ticket.arrived.job:
            self.waiting += step
            self.waiting_bytes += step * ticket.arrived.size_bytes
            self.waiting_by_user[ticket.arrived.user] += step
            self.waiting_by_key[ticket.arrived.key] += step
