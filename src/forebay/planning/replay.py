"""One replay: the real scheduler, fed with recorded arrivals, on nodes that only take time.

The nodes and the clock are those of the simulation: virtual time jumps from event to event, so a
day takes as long as its requests cost the scheduler.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from forebay.core import Arrived, Options
from forebay.load.samples import UNFINISHED, RequestSample
from forebay.planning.fleet import PlannedNode
from forebay.testing.simulation.playing import Simulation
from forebay.testing.simulation.scenario import NodePlan, Recorded, Scenario

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from forebay.planning.traffic import TrafficRequest
    from forebay.testing.simulation.report import RequestRecord

FAMILIES: Final = ("openai", "anthropic", "ollama")


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


def replay(requests: Sequence[TrafficRequest], plan: ReplayPlan) -> Replayed:
    """Play requests, which come in order of arrival, until nothing comes, runs or falls due."""
    scenario = Scenario(
        tuple(_node(node, plan) for node in plan.nodes),
        (),
        plan.options,
        duration_s=inf,
        recording=(_recorded(one, number) for number, one in enumerate(requests)),
        probe_s=inf,
    )
    report = Simulation(scenario, seed=0, checked=False).run()
    pairs = zip(requests, report.requests, strict=True)
    live = [(one, record) for one, record in pairs if not one.job]
    span_s = requests[-1].at_s
    busy_s = {node.name: 0.0 for node in plan.nodes}
    for one in report.requests:
        if one.node:
            started_s = one.arrived_s + (one.waited_s or 0.0)
            busy_s[one.node] += max(0.0, min(one.ended_s, span_s) - started_s)
    return Replayed(
        [_sample(one, record) for one, record in live],
        _depths(record for _, record in live),
        report.loads,
        busy_s,
        span_s,
        max(report.ended_s, span_s),
    )


def _node(node: PlannedNode, plan: ReplayPlan) -> NodePlan:
    return NodePlan(
        node.name,
        node.slots,
        node.models,
        FAMILIES,
        swaps=plan.load_s > 0 and len(node.models) > 1,
        load_s=plan.load_s,
        tells_loads=False,  # real ones do not say how long theirs take
        slowness=node.slowness / plan.speed,
    )


def _recorded(one: TrafficRequest, number: int) -> Recorded:
    arrived = Arrived(
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
    leaves = one.leaves_after_s is not None and not one.job  # nobody waits for a job
    leaves_after_s = one.leaves_after_s if leaves else None
    return Recorded(one.at_s, arrived, one.service_s, one.output_tokens, leaves_after_s)


def _sample(one: TrafficRequest, record: RequestRecord) -> RequestSample:
    if not record.node:
        return RequestSample(one.at_s, one.user, one.priority, record.outcome or UNFINISHED)
    return RequestSample(
        one.at_s,
        one.user,
        one.priority,
        total_s=record.ended_s - one.at_s,
        wait_s=record.waited_s,
        tokens_in=one.prompt_tokens,
        tokens_out=one.output_tokens,
        queued=record.queued,
        node=record.node,
    )


def _depths(live: Iterable[RequestRecord]) -> list[tuple[float, int]]:
    """Return how many waited from when on."""
    changes: Counter[float] = Counter({0.0: 0})
    for one in live:
        if one.queued:
            until_s = one.ended_s if one.waited_s is None else one.arrived_s + one.waited_s
            changes[one.arrived_s] += 1
            changes[until_s] -= 1
    depths: list[tuple[float, int]] = []
    waiting = 0
    for at_s in sorted(changes):
        waiting += changes[at_s]
        if not depths or waiting != depths[-1][1]:
            depths.append((at_s, waiting))
    return depths
