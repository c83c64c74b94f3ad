"""One trace through one scheduler in virtual time: what was promised, and what became of it."""

from __future__ import annotations

from math import inf
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from forebay.core import Arrived, Options
from forebay.testing.simulation.playing import Simulation
from forebay.testing.simulation.scenario import NodePlan, Outage, Recorded, Scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from forebay.testing.simulation.report import RequestRecord
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
PATIENCE_S = 60.0
"""Of callers that leave, on average."""


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


class Replayed(NamedTuple):
    """What became of a trace."""

    promises: list[Promise]
    """Of those that waited and started; none of who was there when a node was lost."""
    span_s: float
    longest_s: float
    """The longest wait."""


class Replay(NamedTuple):
    """One trace, and how it is played; service times are scaled to the load that is asked for."""

    calls: Sequence[Call]
    load: float
    fairness: Fairness
    trouble: Trouble = QUIET
    slots: int = 0
    """0 takes as many as the calls of the trace would fill."""
    seed: int = 7
    class_of: Callable[[Call], Priority] | None = None
    """Says the class of each call; else it is drawn as the trouble says."""

    def run(self) -> Replayed:
        """Play the whole trace."""
        span_s, work_s = self.calls[-1].at_s, sum(map(service_s, self.calls))
        slots = self.slots or max(SLOTS_MIN, round(work_s / span_s))
        scale = self.load * slots * span_s / work_s
        nodes = tuple(
            NodePlan(
                f"node{number}",
                slots // NODES + (number < slots % NODES),
                (MODEL,),
                fail_before_rate=self.trouble.retried,
                first_byte_share=1.0,
            )
            for number in range(NODES)
        )
        lost_s = span_s / 2 if self.trouble.node_lost else inf
        scenario = Scenario(
            nodes,
            (),
            Options(max_size=10**6, wait_s_max=1e9, fairness=self.fairness),
            duration_s=inf,
            recording=self._recorded(scale),
            disturbances=(Outage(lost_s, LOST, inf),) if self.trouble.node_lost else (),
            probe_s=inf,
        )
        records = Simulation(scenario, self.seed, checked=False).run().requests
        promises = [
            Promise(one.arrived_s, one.p50_s, one.p90_s, one.waited_s)
            for one in records
            if one.p50_s is not None and one.p90_s is not None and one.waited_s is not None
            if not _was_there(one, lost_s)
        ]
        return Replayed(promises, span_s, max(one.waited_s or 0.0 for one in records))

    def _recorded(self, scale: float) -> Iterator[Recorded]:
        rng, trouble = Random(self.seed), self.trouble
        for number, call in enumerate(self.calls):
            priority = self._class(call, rng.random())
            leaves = rng.random() < trouble.cancelled
            arrived = Arrived(
                str(number),
                MODEL,
                user=call.user,
                priority=priority,
                prompt_tokens=call.prompt_tokens,
            )
            yield Recorded(
                call.at_s,
                arrived,
                scale * service_s(call),
                call.output_tokens,
                leaves_after_s=rng.expovariate(1.0 / PATIENCE_S) if leaves else None,
                leaves_running=True,
            )

    def _class(self, call: Call, draw: float) -> Priority:
        if self.class_of is not None:
            return self.class_of(call)
        if draw >= 1.0 - self.trouble.low:
            return "low"
        return "high" if draw < self.trouble.high else "normal"


def _was_there(one: RequestRecord, lost_s: float) -> bool:
    """Say whether one waited when a node was lost, or came in the minute after."""
    return (
        one.arrived_s <= lost_s + AFTER_LOSS_S and one.arrived_s + (one.waited_s or 0.0) >= lost_s
    )


def judge(replayed: Replayed) -> Verdict:
    """Hold promises against what happened; thirds are of the time in which they were made."""
    promises, span_s, longest_s = replayed
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
