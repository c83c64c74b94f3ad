"""What one person looks at: the newest snapshot, and what they have chosen, typed and asked for."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from forebay.api.events import DashboardSnapshot, Hello, TimelineSample
from forebay.terminal.feed import GaveUp

if TYPE_CHECKING:
    from datetime import datetime

    from forebay.api.events import ModelSnapshot, NodeSnapshot
    from forebay.sdk import ListedRequest
    from forebay.terminal.feed import Feed

SECONDS_MAX = 900
STEPS_S = (1, 2, 5, 10, 15, 30, 60)
SHOWN_S = 300
"""What a chart shows at least, if it has a column for each step."""
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

    def begin(self, hello: Hello) -> None:
        """Take what the gateway remembers; what was known before is replaced."""
        past = hello.history
        depths = list(zip(*past.depth.values(), strict=False))
        served = [*[0] * len(depths), *past.served][-len(depths) :]
        self._seconds.clear()
        for depth, count in zip(depths, served, strict=False):
            self._seconds.append(Second(sum(depth), max(depth), count))
        self._newest = past.sample_number

    def add(self, snapshot: DashboardSnapshot) -> None:
        """Take a snapshot's sample, unless it has been taken."""
        missed = min(SECONDS_MAX, snapshot.sample_number - self._newest - 1)
        if missed < 0:
            return
        if self._seconds:  # a slow reader misses some: the line stays where it was
            self._seconds.extend([self._seconds[-1]._replace(served=0)] * missed)
        sample = snapshot.sample or TimelineSample()
        depth = sample.depth.values()
        self._seconds.append(Second(sum(depth), max(depth, default=0), sample.served))
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
    hello: Hello = field(default_factory=Hello)
    snapshot: DashboardSnapshot = field(default_factory=DashboardSnapshot)
    has_snapshot: bool = False
    """Whether the first has come."""
    timeline: Timeline = field(default_factory=Timeline)
    is_live: bool = False
    """Whether the gateway is connected."""
    lost_reason: str = ""
    lost_s: float | None = None
    """When the connection was lost; None before the first attempt has ended."""
    now: datetime | None = None
    """The time of day; None in a picture for a pipe."""
    now_s: float = 0.0
    filter: str = ""
    is_paused: bool = False
    requests: list[ListedRequest] = field(default_factory=list)
    """Those that run and wait, if the caller may see them."""
    has_requests: bool = False
    """Whether the gateway has been asked for them."""
    requests_problem: str = ""
    """Why there are none to be seen."""

    def take_hello(self, hello: Hello) -> str:
        """Begin anew with the first event of a connection; return what has changed, in words."""
        change = ""
        if self.hello.epoch and hello.epoch != self.hello.epoch:
            change = "The gateway has been restarted; totals count from its start."
        elif self.lost_s is not None:
            change = "The gateway is back."
        self.hello = hello
        self.timeline.begin(hello)
        self.is_live, self.lost_reason, self.lost_s = True, "", None
        return change

    def take_snapshot(self, snapshot: DashboardSnapshot) -> None:
        """Take the next snapshot; while paused only the time line goes on."""
        self.timeline.add(snapshot)
        if not self.is_paused or not self.has_snapshot:
            self.snapshot, self.has_snapshot = snapshot, True

    def lose(self, reason: str) -> None:
        """Note that the connection is lost, and why."""
        self.is_live, self.lost_reason = False, reason
        self.lost_s = self.now_s if self.lost_s is None else self.lost_s

    async def fetch_requests(self, feed: Feed) -> None:
        """Ask for the requests as they are now, or keep why they cannot be seen."""
        try:
            found, problem = await feed.requests(), ""
        except GaveUp as error:
            found, problem = [], str(error)
        if not self.is_paused or not self.has_requests:
            self.requests, self.requests_problem, self.has_requests = found, problem, True

    def problem_with(self, verb: str, name: str | None) -> str:
        """Return why a node cannot be drained or resumed, or a request cancelled; "" if it can."""
        node = self.node(name)
        if not self.is_live:
            return "The gateway cannot be reached now."
        if verb != "cancel" and not self.hello.admin:
            return NOT_ADMIN
        if name is None:
            return "There is nothing to choose."
        if node is not None and verb == "drain" and node.state == "draining":
            return f"{name} is draining already; r resumes it."
        if node is not None and verb == "resume" and node.state != "draining":
            return f"{name} is not draining; there is nothing to resume."
        return ""

    # -- what is shown

    def nodes(self) -> list[NodeSnapshot]:
        """Return the nodes that the filter lets through."""
        return [
            node
            for node in self.snapshot.nodes
            if self._matches(
                node.name, node.state, node.kind or "", *node.models, *(node.loaded or ())
            )
        ]

    def models(self) -> list[ModelSnapshot]:
        """Return the models that the filter lets through."""
        return [model for model in self.snapshot.models if self._matches(model.model)]

    def shown_requests(self) -> list[ListedRequest]:
        """Return the requests that the filter lets through."""
        return [one for one in self.requests if self._matches(one.id, one.user, one.model)]

    def node(self, name: str | None) -> NodeSnapshot | None:
        """Return the node of that name; None if there is none."""
        return next((node for node in self.snapshot.nodes if node.name == name), None)

    def request(self, request_id: str | None) -> ListedRequest | None:
        """Return the request of that id; None if it is not in the line."""
        return next((one for one in self.requests if one.id == request_id), None)

    def _matches(self, *texts: str) -> bool:
        wanted = self.filter.casefold()
        return any(wanted in text.casefold() for text in texts)
