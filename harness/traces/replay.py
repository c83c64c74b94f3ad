"""One trace through one scheduler in virtual time: what was promised, and what became of it."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from forebay.core import (
    Arrived,
    Cancelled,
    Finished,
    NodeChanged,
    Options,
    Returned,
    Route,
    Scheduler,
    Wait,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from forebay.core import Action
    from harness.traces.calls import Call

Fairness: TypeAlias = Literal["fifo", "round_robin", "tokens"]
Priority: TypeAlias = Literal["high", "normal", "low"]
NODES = 4
SLOTS_MIN = 8
MODEL = "model"
LOST = "node3"
SHORT_S = 1.0
"""Waits up to this are not judged: nobody looks at a promise so short."""
NEAR_S = 2.0
AFTER_LOSS_S = 60.0


class Trouble(NamedTuple):
    """What goes wrong in a replay, in shares of all calls."""

    high: float = 0.0
    low: float = 0.0
    retried: float = 0.0
    cancelled: float = 0.0
    node_lost: bool = False


QUIET = Trouble()
MIXED = Trouble(high=0.1, low=0.2, retried=0.05, cancelled=0.05)
LOSING = Trouble(node_lost=True)


class Promise(NamedTuple):
    """What one that waited was told, and how long it waited in the end."""

    told_s: float
    p50_s: float
    p90_s: float
    waited_s: float


class Verdict(NamedTuple):
    """How good the promises of a replay were; shares are of waits above a second."""

    promises: int
    judged: int
    within_2: float
    near: float
    within_125: float
    covered: float
    thirds: tuple[float, ...]
    width: float
    largest: float
    """The largest promise over the longest wait."""


def service_s(call: Call) -> float:
    """Return how long a call would take on a server of a usual speed."""
    return 0.02 + 0.0002 * call.prompt_tokens + 0.015 * call.output_tokens


class Replay:
    """Slots are fixed and service times scaled, so that the load is exactly what was asked for."""

    def __init__(
        self,
        calls: Sequence[Call],
        load: float,
        fairness: Fairness,
        trouble: Trouble = QUIET,
        slots: int = 0,
        seed: int = 7,
    ) -> None:
        self.calls = calls
        self.span_s = calls[-1].at_s
        work_s = sum(map(service_s, calls))
        self.slots = slots or max(SLOTS_MIN, round(work_s / self.span_s))
        self.scale = load * self.slots * self.span_s / work_s
        self.trouble = trouble
        self.scheduler = Scheduler(Options(max_size=10**6, wait_s_max=1e9, fairness=fairness))
        self.waited_s: dict[str, float] = {}
        self.lost_at_s = self.span_s / 2 if trouble.node_lost else float("inf")
        self.left_out: set[str] = set()
        self._rng = Random(seed)
        self._due: list[tuple[float, int, str, str]] = []
        self._pushed = 0
        self._told: dict[str, tuple[float, float | None, float | None]] = {}
        self._running: dict[str, tuple[int, str]] = {}  # id -> number of its end, and node
        self._tried: set[str] = set()

    def run(self) -> list[Promise]:
        """Play the whole trace; return the promises of those that waited and started."""
        for number in range(NODES):
            self._handle(self._node(f"node{number}"), 0.0)
        if self.trouble.node_lost:
            self._push(self.lost_at_s, "lose", LOST)
        for number, call in enumerate(self.calls):
            self._play_until(call.at_s)
            self._arrive(str(number), call)
        self._play_until(float("inf"))
        return [
            Promise(told_s, p50_s, p90_s, self.waited_s[name])
            for name, (told_s, p50_s, p90_s) in self._told.items()
            if p50_s is not None and p90_s is not None
            if name in self.waited_s and name not in self.left_out
        ]

    def _node(self, name: str, state: Literal["online", "offline"] = "online") -> NodeChanged:
        number = int(name[-1])
        slots = self.slots // NODES + (number < self.slots % NODES)
        return NodeChanged(name, slots=slots, models=(MODEL,), state=state)

    def _arrive(self, name: str, call: Call) -> None:
        priority = self.draw_priority(call)
        if self._rng.random() < self.trouble.cancelled:
            self._push(call.at_s + self._rng.expovariate(1.0 / 60.0), "cancel", name)
        if self.lost_at_s <= call.at_s <= self.lost_at_s + AFTER_LOSS_S:
            self.left_out.add(name)
        arrived = Arrived(
            name, MODEL, user=call.user, prompt_tokens=call.prompt_tokens, priority=priority
        )
        self._handle(arrived, call.at_s)

    def draw_priority(self, call: Call) -> Priority:
        """Return the class of a call."""
        draw = self._rng.random()
        if draw >= 1.0 - self.trouble.low:
            return "low"
        return "high" if draw < self.trouble.high else "normal"

    def _play_until(self, at_s: float) -> None:
        while self._due and self._due[0][0] <= at_s:
            due_s, number, kind, name = heappop(self._due)
            if kind == "lose":
                self._lose_node(due_s)
            elif kind == "cancel":
                self._running.pop(name, None)
                self._handle(Cancelled(name), due_s)
            elif self._running.get(name, (0, ""))[0] == number:  # not stopped meanwhile
                del self._running[name]
                call = self.calls[int(name)]
                ended = Finished(
                    name, prompt_tokens=call.prompt_tokens, output_tokens=call.output_tokens
                )
                self._handle(ended if kind == "finish" else Returned(name), due_s)

    def _lose_node(self, now_s: float) -> None:
        self.left_out |= self._told.keys() - self.waited_s.keys()
        self._handle(self._node(LOST, "offline"), now_s)
        for name in [name for name, (_, node) in self._running.items() if node == LOST]:
            del self._running[name]
            self._handle(Returned(name), now_s)

    def _push(self, at_s: float, kind: str, name: str) -> int:
        self._pushed += 1
        heappush(self._due, (at_s, self._pushed, kind, name))
        return self._pushed

    def _handle(
        self, event: Arrived | Finished | Returned | Cancelled | NodeChanged, now_s: float
    ) -> None:
        for action in self.scheduler.handle(event, now_s):
            self._act(action, now_s)

    def _act(self, action: Action, now_s: float) -> None:
        if isinstance(action, Wait):
            self._told[action.id] = (now_s, action.p50_s, action.p90_s)
        elif isinstance(action, Route):
            self.waited_s.setdefault(action.id, action.waited_s)
            run_s, kind = self.scale * service_s(self.calls[int(action.id)]), "finish"
            if action.id not in self._tried and self._rng.random() < self.trouble.retried:
                run_s, kind = run_s * self._rng.random(), "return"
            self._tried.add(action.id)
            self._running[action.id] = self._push(now_s + run_s, kind, action.id), action.node
        else:
            raise AssertionError(f"nothing else may happen: {action}")


def judge(promises: Sequence[Promise], span_s: float, longest_s: float) -> Verdict:
    """Hold promises against what happened; thirds are of the time in which they were made."""
    long = [one for one in promises if one.waited_s > SHORT_S]

    def near(factor: float, slack_s: float = 0.0) -> float:
        return share(
            one.waited_s / factor <= one.p50_s <= one.waited_s * factor
            or abs(one.p50_s - one.waited_s) <= slack_s
            for one in long
        )

    def covered(some: Sequence[Promise]) -> float:
        return share(one.waited_s <= one.p90_s for one in some)

    parts: list[list[Promise]] = [[], [], []]
    for one in promises:
        parts[min(2, int(3.0 * one.told_s / span_s))].append(one)
    return Verdict(
        promises=len(promises),
        judged=len(long),
        within_2=near(2.0),
        near=near(2.0, NEAR_S),
        within_125=near(1.25),
        covered=covered(promises),
        thirds=tuple(map(covered, parts)),
        width=median([one.p90_s / max(one.p50_s, 1e-3) for one in long] or [0.0]),
        largest=max((one.p50_s for one in promises), default=0.0) / max(longest_s, 1e-9),
    )


def share(answers: Iterable[bool]) -> float:
    """Return the share of those that are true; of none, all."""
    held = list(answers)
    return sum(held) / len(held) if held else 1.0
