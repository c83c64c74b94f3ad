"""What one person looks at: the newest snapshot, and what they have chosen, typed and asked for."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from forebay.sdk.status import LiveHello, LiveSnapshot

if TYPE_CHECKING:
    from forebay.sdk import ListedRequest
    from forebay.sdk.status import LiveModel, NodeStatus

SECONDS_MAX = 900
STEPS_S = (1, 2, 5, 10, 15, 30, 60)
SHOWN_S = 300
"""What a chart shows at least, if it has a column for each step."""
LINE_TAB = 4
"""The part of the view that shows requests one by one."""
NOT_ADMIN = "Only an admin's key may drain and resume nodes: name one with --key-env VAR."


class Second(NamedTuple):
    """How many waited, in all and at most in one priority, and were served."""

    waiting: int
    most: int
    served: int


class Timeline:
    """The last minutes, second by second: what `hello` brought and what the snapshots have added.

    Columns of a chart stand for whole steps of the gateway's own count of samples, so what has been
    drawn stays as it is and only moves by whole columns: less to send over a slow line.
    """

    def __init__(self) -> None:
        self._seconds: deque[Second] = deque(maxlen=SECONDS_MAX)
        self._newest = 0

    def begin(self, hello: LiveHello) -> None:
        """Take what the gateway remembers; what was known before is replaced."""
        past = hello.history
        depths = list(zip(*past.depth.values(), strict=False))
        served = [*[0] * len(depths), *past.served][-len(depths) :]
        self._seconds.clear()
        for depth, count in zip(depths, served, strict=False):
            self._seconds.append(Second(sum(depth), max(depth), count))
        self._newest = past.sample_number

    def add(self, snapshot: LiveSnapshot) -> None:
        """Take a snapshot's sample, unless it has been taken."""
        missed = min(SECONDS_MAX, snapshot.sample_number - self._newest - 1)
        if missed < 0:
            return
        if self._seconds:  # a slow reader misses some: the line stays where it was
            self._seconds.extend([self._seconds[-1]._replace(served=0)] * missed)
        depth = snapshot.sample.depth.values()
        self._seconds.append(Second(sum(depth), max(depth, default=0), snapshot.sample.served))
        self._newest = snapshot.sample_number

    @property
    def peak_by_priority(self) -> int:
        return max((second.most for second in self._seconds), default=0)

    def depth(self, columns: int) -> list[int]:
        """Return the greatest depth of each step, the newest last."""
        return [max(second.waiting for second in group) for group in self._groups(columns)]

    def served(self, columns: int) -> list[int]:
        """Return how many were served in each step, the newest last."""
        return [sum(second.served for second in group) for group in self._groups(columns)]

    def _groups(self, columns: int) -> list[list[Second]]:
        step_s = step(columns)
        groups: dict[int, list[Second]] = {}
        for place, second in enumerate(self._seconds, self._newest - len(self._seconds) + 1):
            groups.setdefault(place // step_s, []).append(second)
        return list(groups.values())[-columns:] if columns > 0 else []


def step(columns: int) -> int:
    """Return how many seconds a column stands for.

    >>> step(30), step(60), step(300), step(1)
    (10, 5, 1, 60)
    """
    return next((length for length in STEPS_S if length * columns >= SHOWN_S), STEPS_S[-1])


@dataclass
class TopView:
    """All that the panels are drawn from."""

    url: str
    hello: LiveHello = field(default_factory=LiveHello)
    snapshot: LiveSnapshot = field(default_factory=LiveSnapshot)
    has_snapshot: bool = False
    """Whether the first has come."""
    timeline: Timeline = field(default_factory=Timeline)
    is_live: bool = False
    """Whether the gateway is connected."""
    lost_reason: str = ""
    lost_s: float | None = None
    """When the connection was lost; None before the first attempt has ended."""
    now: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    now_s: float = 0.0
    tab: int = 0
    filter: str = ""
    is_paused: bool = False
    is_helping: bool = False
    chosen: str | None = None
    """The name of the node that the cursor was put on; it stays when the node is gone a while."""
    requests: list[ListedRequest] = field(default_factory=list)
    """Those that run and wait, while they are looked at and the caller may see them."""
    has_requests: bool = False
    """Whether the gateway has been asked for them."""
    requests_problem: str = ""
    """Why there are none to be seen."""
    chosen_id: str | None = None
    """Of the request that the cursor was put on."""
    question: tuple[str, str] | None = None
    """What waits for a yes: `drain` or `resume` with the name of a node, `cancel` with an id."""
    message: str = ""
    message_is_bad: bool = False
    is_still: bool = False
    """Drawn once, for a pipe: no keys, no cursor."""

    def take_hello(self, hello: LiveHello) -> None:
        """Begin anew with what a connection says first."""
        if self.hello.epoch and hello.epoch != self.hello.epoch:
            self.say("The gateway has been restarted; totals count from its start.")
        elif self.lost_s is not None:
            self.say("The gateway is back.")
        self.hello = hello
        self.timeline.begin(hello)
        self.is_live, self.lost_reason, self.lost_s = True, "", None

    def take_snapshot(self, snapshot: LiveSnapshot) -> None:
        """Take the next snapshot; while paused only the time line goes on."""
        self.timeline.add(snapshot)
        if not self.is_paused or not self.has_snapshot:
            self.snapshot, self.has_snapshot = snapshot, True

    def lose(self, reason: str) -> None:
        """Note that the connection is lost, and why."""
        self.is_live, self.lost_reason = False, reason
        self.lost_s = self.now_s if self.lost_s is None else self.lost_s

    def say(self, message: str, *, is_bad: bool = False) -> None:
        """Show a message until the next key."""
        self.message, self.message_is_bad = message, is_bad

    def take_requests(self, requests: list[ListedRequest], problem: str = "") -> None:
        """Take the requests as they are now, or why they cannot be seen."""
        if not self.is_paused or not self.has_requests:
            self.requests, self.requests_problem, self.has_requests = requests, problem, True

    def ask(self, verb: str) -> None:
        """Ask whether to do something to what is chosen, or say why that cannot be."""
        request = self.chosen_request()
        if not self.is_live:
            self.say("The gateway cannot be reached now.", is_bad=True)
        elif verb != "cancel":
            self._ask_about_node(verb)
        elif request is None:
            self.say("There is no request to choose.", is_bad=True)
        else:
            self.question = (verb, request.id)

    def _ask_about_node(self, verb: str) -> None:
        node = self.chosen_node()
        if not self.hello.admin:
            self.say(NOT_ADMIN, is_bad=True)
        elif node is None:
            self.say("There is no node to choose.", is_bad=True)
        elif verb == "drain" and node.state == "draining":
            self.say(f"{node.name} is draining already; r resumes it.")
        elif verb == "resume" and node.state != "draining":
            self.say(f"{node.name} is not draining; there is nothing to resume.")
        else:
            self.question = (verb, node.name)

    # -- what is shown

    def nodes(self) -> list[NodeStatus]:
        """Return the nodes that the filter lets through."""
        if not self.filter:
            return self.snapshot.nodes
        return [node for node in self.snapshot.nodes if self._lets_through(node)]

    def models(self) -> list[LiveModel]:
        """Return the models that the filter lets through."""
        wanted = self.filter.casefold()
        return [model for model in self.snapshot.models if wanted in model.model.casefold()]

    def chosen_node(self) -> NodeStatus | None:
        """Return the node that the cursor is on; the first, while the chosen one is not there."""
        nodes = self.nodes()
        first = nodes[0] if nodes else None
        return next((node for node in nodes if node.name == self.chosen), first)

    def shown_requests(self) -> list[ListedRequest]:
        """Return the requests that the filter lets through."""
        wanted = self.filter.casefold()
        return [
            one
            for one in self.requests
            if any(wanted in text.casefold() for text in (one.id, one.user, one.model))
        ]

    def chosen_request(self) -> ListedRequest | None:
        """Return the request that the cursor is on; the first, while that one is not there."""
        found = self.shown_requests()
        first = found[0] if found else None
        return next((one for one in found if one.id == self.chosen_id), first)

    def move(self, by: int) -> None:
        """Move the cursor, no further than the first and the last."""
        if self.tab == LINE_TAB:
            self.chosen_id = _moved([one.id for one in self.shown_requests()], self.chosen_id, by)
        else:
            self.chosen = _moved([node.name for node in self.nodes()], self.chosen, by)

    def _lets_through(self, node: NodeStatus) -> bool:
        wanted = self.filter.casefold()
        texts = (node.name, node.state, node.kind or "", *node.models, *(node.loaded or ()))
        return any(wanted in text.casefold() for text in texts)


def _moved(names: list[str], chosen: str | None, by: int) -> str | None:
    """Return the name so many places further, no further than the first and the last."""
    if not names:
        return chosen
    place = (names.index(chosen) if chosen in names else 0) + by
    return names[max(0, min(len(names) - 1, place))]
