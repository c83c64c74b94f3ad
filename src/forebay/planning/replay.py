"""One replay: the real scheduler, fed with recorded arrivals, on nodes that only take time.

Virtual time jumps from event to event, so a day takes as long as its requests cost the scheduler.
A node that holds one model at a time loads
another in `load_s`; what was sent there waits for it in its slot, as it does on a real one.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from forebay.core import (
    Arrived,
    Cancelled,
    Expire,
    Finished,
    NodeChanged,
    Options,
    Reject,
    Route,
    Scheduler,
    Ticked,
    Wait,
)
from forebay.load.samples import UNFINISHED, RequestSample
from forebay.planning.fleet import PlannedNode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forebay.core import Action
    from forebay.planning.traffic import TrafficRequest

FAMILIES: Final = ("openai", "anthropic", "ollama")
LEFT: Final = "cancelled"


class ReplayPlan(Struct, frozen=True):
    """What is replayed on."""

    nodes: list[PlannedNode]
    options: Options
    load_s: float = 0.0
    """How long a node takes to load a model; 0: every node holds all its models."""
    speed: float = 1.0
    """How many times as fast as recorded the nodes are."""


class Replayed(Struct, frozen=True):
    """The result of a replay."""

    samples: list[RequestSample]
    """One for each request but for jobs, in the order of arrival."""
    depths: list[tuple[float, int]]
    """How many waited from when on."""
    loads: int
    busy_s: dict[str, float]
    """For how long the slots of each node were taken while requests came, added up."""
    span_s: float
    """From the first arrival to the last."""
    elapsed_s: float


class Replay:
    """Plays requests to the scheduler and takes its decisions for done."""

    def __init__(self, requests: Sequence[TrafficRequest], plan: ReplayPlan) -> None:
        """Take requests in order of arrival, each with its service time."""
        self._requests = requests
        self._plan = plan
        self._scheduler = Scheduler(plan.options)
        self._nodes = {node.name: node for node in plan.nodes}
        self._running: dict[str, dict[int, str]] = {node.name: {} for node in plan.nodes}
        self._ready_s: dict[str, dict[str, float]] = {node.name: {} for node in plan.nodes}
        self._due: list[tuple[float, int, bool]] = []  # when, which, and whether it ran
        self._waiting: set[int] = set()
        self._samples = [
            RequestSample(one.at_s, one.user, one.priority, UNFINISHED) for one in requests
        ]
        self._depths: list[tuple[float, int]] = [(0.0, 0)]
        self._busy_s = dict.fromkeys(self._nodes, 0.0)
        self._span_s = requests[-1].at_s
        self._loads = 0

    def run(self) -> Replayed:
        """Play it to its end: until nothing comes, runs or falls due any more."""
        for node in self._plan.nodes:
            self._scheduler.handle(self._report(node), 0.0)
        scheduler, due, arrivals = self._scheduler, self._due, enumerate(self._requests)
        place, one = next(arrivals, (0, None))
        now_s = 0.0
        while True:
            arrival_s = inf if one is None else one.at_s
            event_s = due[0][0] if due else inf
            deadline_s = scheduler.next_deadline_s()
            if deadline_s is not None and deadline_s < arrival_s and deadline_s < event_s:
                now_s = max(now_s, deadline_s)
                actions = scheduler.handle(Ticked(), now_s)
            elif due and event_s <= arrival_s:
                now_s, number, ran = heappop(due)
                actions = self._end(number, ran, now_s)
            elif one is not None:
                now_s = one.at_s
                actions = scheduler.handle(_arrived(one, place), now_s)
                place, one = next(arrivals, (0, None))
            else:
                break
            for action in actions:
                self._perform(action, now_s)
            if len(self._waiting) != self._depths[-1][1]:
                self._depths.append((now_s, len(self._waiting)))
        live = zip(self._requests, self._samples, strict=True)
        samples = [sample for request, sample in live if not request.job]
        span_s = self._span_s
        return Replayed(
            samples, self._depths, self._loads, self._busy_s, span_s, max(now_s, span_s)
        )

    def _report(self, node: PlannedNode) -> NodeChanged:
        """Return what a node would tell: not how long its loads take, as real ones do not."""
        swaps = self._plan.load_s > 0 and len(node.models) > 1
        loaded = () if swaps else None
        return NodeChanged(node.name, node.slots, node.models, FAMILIES, loaded=loaded)

    def _end(self, number: int, ran: bool, now_s: float) -> list[Action]:
        """Let one finish, or leave if it still waits."""
        one = self._requests[number]
        if ran:
            del self._running[self._samples[number].node][number]
            event = Finished(str(number), True, one.prompt_tokens, one.output_tokens)
            return self._scheduler.handle(event, now_s)
        if number not in self._waiting:
            return []
        self._waiting.discard(number)
        self._samples[number].code = LEFT
        return self._scheduler.handle(Cancelled(str(number)), now_s)

    def _perform(self, action: Action, now_s: float) -> None:
        if isinstance(action, Route):
            self._run(int(action.id), action, now_s)
        elif isinstance(action, Wait):
            self._wait(int(action.id), now_s)
        elif isinstance(action, Reject | Expire):
            number = int(action.id)
            self._waiting.discard(number)
            self._samples[number].code = action.code

    def _wait(self, number: int, now_s: float) -> None:
        one = self._requests[number]
        if one.job:
            return  # nobody waits for it
        self._waiting.add(number)
        if one.leaves_after_s is not None:
            heappush(self._due, (now_s + one.leaves_after_s, number, False))

    def _run(self, number: int, action: Route, now_s: float) -> None:
        one, sample, node = self._requests[number], self._samples[number], self._nodes[action.node]
        self._waiting.discard(number)
        takes_s = one.service_s * node.slowness / self._plan.speed
        ends_s = self._model_ready_s(node, one.model, now_s) + takes_s
        self._running[node.name][number] = one.model
        sample.code, sample.node, sample.queued = "", node.name, action.queued
        sample.wait_s, sample.total_s = action.waited_s, ends_s - one.at_s
        sample.tokens_in, sample.tokens_out = one.prompt_tokens, one.output_tokens
        self._busy_s[node.name] += max(0.0, min(ends_s, self._span_s) - now_s)
        heappush(self._due, (ends_s, number, True))

    def _model_ready_s(self, node: PlannedNode, model: str, now_s: float) -> float:
        """Return from when on the node can serve a model; loads it where it must."""
        if self._plan.load_s <= 0 or len(node.models) < 2:
            return now_s
        memory = self._ready_s[node.name]
        if model not in memory:
            memory.clear()  # one at a time, and the scheduler sends nothing else while one is busy
            memory[model] = now_s + self._plan.load_s
            self._loads += 1
        return max(now_s, memory[model])


def _arrived(one: TrafficRequest, number: int) -> Arrived:
    return Arrived(
        str(number),
        one.model,
        one.family,
        one.user,
        one.priority,
        one.prompt_tokens,
        one.output_limit,
        one.size_bytes,
        one.weight,
        max_wait_s=one.max_wait_s,
        stream=one.stream,
        job=one.job,
    )
