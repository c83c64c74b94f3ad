"""Who is next, the slow and obvious way: plain dicts, a sum or a sort for every question."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from .naive_swaps import Memory

if TYPE_CHECKING:
    from forebay.core import Arrived, NodeChanged, Options

Lane: TypeAlias = tuple[str, str, int]
"""Model, family, and the number of its birth: one that was forgotten comes back as another."""
Line: TypeAlias = tuple[int, Lane]
"""The rank of a class, and a lane."""

RECENT = 100


@dataclass(eq=False)
class Ticket:
    """One accepted request or job."""

    arrival: Arrived
    seq: int
    rank: int
    lane: Lane
    since_s: float
    wait_left_s: float
    state: Literal["new", "waiting", "running"] = "new"
    waited_s: float = 0.0
    deadline_s: float = float("inf")
    stood: int = 0
    promote_left_s: float = 0.0
    """How much longer it must wait to count one class higher."""
    returned: bool = False
    excluded: set[str] = field(default_factory=set)
    node: str = ""
    came_from: str = ""
    revoked: str = ""
    """The code it was told to stop with while it ran."""
    guest: bool = False
    """Whether it may wait only because a job is in its way."""
    fresh: bool = False
    """Whether it began to compete in the present step."""
    attempt: int = 0
    cost: float = 0.0
    charged: float = 0.0
    charged_on: NaiveNode | None = None
    charged_line: Line | None = None
    class_charged: float = 0.0

    def is_too_old(self, now_s: float, told: set[str]) -> bool:
        return self.deadline_s <= now_s and (not self.fresh or self.id in told)

    @property
    def id(self) -> str:
        return self.arrival.id

    @property
    def line(self) -> Line:
        return (self.rank, self.lane)

    @property
    def user(self) -> str:
        return self.arrival.user


@dataclass
class NodeTime:
    """How one node compares lines, and in weighted order classes."""

    clock: dict[int, float] = field(default_factory=dict)
    offset: dict[Line, float] = field(default_factory=dict)
    class_clock: float = 0.0
    class_tag: dict[int, float] = field(default_factory=dict)

    def place(self, line: Line, counter: float, largest: float) -> float:
        """Say where a counter of a line stands in this node's time, moving the line if need be."""
        clock = self.clock.get(line[0], 0.0)
        tag = counter + self.offset.get(line, 0.0)
        tag = min(max(tag, clock), clock + largest)
        self.offset[line] = tag - counter
        return tag

    def class_start(self, rank: int) -> float:
        return max(self.class_tag.get(rank, 0.0), self.class_clock)


@dataclass
class NaiveNode:
    """What was last said of a node, and what it did."""

    said: NodeChanged
    slots: int
    rest_until_s: float = 0.0
    broken_off_s: list[float] = field(default_factory=list)
    strikes: dict[str, int] = field(default_factory=dict)
    """By user; the model's days are too short for any to expire."""
    away_since_s: float = 0.0
    used_at: tuple[int, int] = (0, 0)
    removed: bool = False
    time: NodeTime = field(default_factory=NodeTime)
    memory: Memory = field(default_factory=Memory)

    def break_off(self, now_s: float) -> None:
        if not self.removed:
            self.broken_off_s.append(now_s)

    def excuses(self, now_s: float) -> bool:
        """Each request that was broken off within the last second excuses one refusal."""
        late = [at_s for at_s in self.broken_off_s if now_s - at_s <= 1.0]
        self.broken_off_s = late[1:]
        return bool(late)

    def before_the_struck(self, tickets: list[Ticket]) -> list[Ticket]:
        """Of one class: who has three strikes goes only where nobody else is left."""
        others = [ticket for ticket in tickets if self.strikes.get(ticket.user, 0) < 3]
        return others or tickets

    def serves(self, lane: Lane) -> bool:
        listed = lane[0] in self.said.models and lane[1] in self.said.families
        return listed and not self.removed

    def has_said(self) -> bool:
        """Say whether it is known which models it has."""
        said = self.said
        return self.removed or bool(said.models) or not (said.is_new or said.state == "loading")

    def hope(self, now_s: float, offline_wait_s: float) -> str:
        """Say why it may be up soon; empty where it will not."""
        if self.said.state == "loading":
            return "loading"
        if now_s - self.away_since_s >= offline_wait_s:
            return ""
        return "starting" if self.said.is_new else "offline"


class Accounts:
    """The counters of users, by line, and the clock of each line."""

    def __init__(self, options: Options) -> None:
        self.burst = options.burst
        self.counter: dict[tuple[Line, str], float] = {}
        self.weight: dict[tuple[Line, str], float] = {}
        self.clock: dict[Line, float] = {}
        self.largest: dict[Line, float] = {}
        self.outputs: dict[Lane, list[int]] = {}
        self.idle: list[str] = []

    def floor(self, line: Line) -> float:
        return self.clock.get(line, 0.0) - self.burst

    def standing(self, line: Line, user: str) -> float:
        return self.counter.get((line, user), self.floor(line))

    def open(self, line: Line, user: str, weight: float) -> None:
        self.counter.setdefault((line, user), self.floor(line))
        self.weight[line, user] = weight

    def lift(self, line: Line, user: str) -> None:
        """A user who comes back has banked no credit, and at most one largest charge of debt."""
        ceiling = self.clock.get(line, 0.0) + self.largest.get(line, 0.0)
        counter = min(self.standing(line, user), ceiling)
        self.counter[line, user] = max(counter, self.floor(line))

    def charge(self, line: Line, user: str, amount: float) -> float:
        """Charge a dispatch; the clock is the counter before the charge, and never runs back."""
        start = max(self.standing(line, user), self.floor(line))
        self.clock[line] = max(self.clock.get(line, 0.0), start)
        self.note(line, amount)
        self.counter[line, user] = start + amount
        return start

    def note(self, line: Line, amount: float) -> None:
        self.largest[line] = max(self.largest.get(line, 0.0), amount)

    def correct(self, line: Line, user: str, amount: float) -> None:
        self.counter[line, user] = max(self.standing(line, user) + amount, self.floor(line))

    def typical_output(self, lane: Lane, unmeasured: int) -> int:
        recent = sorted(self.outputs.get(lane, [])[-RECENT:])
        return recent[len(recent) // 2] if recent else unmeasured

    def forget(self, user: str, idle_max: int) -> None:
        """A user with nothing unfinished is kept only while ahead of some clock."""
        for line, name in [key for key in self.counter if key[1] == user]:
            if self.counter[line, name] <= self.floor(line):
                del self.counter[line, name]
        if any(name == user for _, name in self.counter):
            self.idle.append(user)
        while len(self.idle) > idle_max:
            gone = self.idle.pop(0)
            self.counter = {key: value for key, value in self.counter.items() if key[1] != gone}


def first_in_line(line: Line, tickets: list[Ticket], accounts: Accounts) -> Ticket:
    """Return who is next in one line: retries first, then the user who has had least."""
    retries = [ticket for ticket in tickets if ticket.returned]
    if retries:
        return min(retries, key=lambda ticket: ticket.seq)
    oldest = {ticket.user: ticket for ticket in sorted(tickets, key=lambda t: -t.seq)}
    return min(oldest.values(), key=lambda t: (accounts.standing(line, t.user), t.seq))


def first_of(
    tickets: list[Ticket], node: NaiveNode, accounts: Accounts, *, look_only: bool
) -> Ticket:
    """Return who of one class is next on a node; `look_only` moves no line in the node's time."""
    time = deepcopy(node.time) if look_only else node.time
    by_line: dict[Line, list[Ticket]] = {}
    for ticket in tickets:
        by_line.setdefault(ticket.line, []).append(ticket)
    heads = {line: first_in_line(line, some, accounts) for line, some in by_line.items()}
    if len(heads) == 1:
        return next(iter(heads.values()))

    def key(head: Ticket) -> tuple[float, int]:
        line = head.line
        if head.returned:
            return (time.clock.get(head.rank, 0.0), head.seq)
        counter = accounts.standing(line, head.user)
        return (time.place(line, counter, accounts.largest.get(line, 0.0)), head.seq)

    return min(heads.values(), key=key)
