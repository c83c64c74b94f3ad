"""The figures of a replay, in the form that a run of `forebay bench` has, and some of its own."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict

from forebay.load.document import Series, series
from forebay.load.plan import LoadPlan, Mix
from forebay.load.run import Measured
from forebay.load.summary import RunSummary, summarise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forebay.load.samples import RequestSample
    from forebay.planning.fleet import PlannedNode
    from forebay.planning.replay import Replayed

USERS_MAX = 100
"""Users with figures of their own, those with the most requests."""
TIMED_OUT = ("queue_timeout", "no_node", "model_loading")
LEFT = "cancelled"
SIM_METRICS = frozenset({"refused", "timed_out", "left", "swaps", "utilisation"})


class ReplaySummary(RunSummary, frozen=True):
    """The figures of a replay."""

    refused: int
    timed_out: int
    left: int
    """Clients that gave up waiting, as they did in the log."""
    swaps: int | None
    """Models loaded; None where that is not known."""
    utilisation: float | None
    """Share of the slots that were taken while requests came; None where that is not known."""
    by_node_utilisation: dict[str, float]


class ReplaySeries(Struct, frozen=True):
    """How it went: `requests` in bins of equal width, and the most that waited in each."""

    requests: Series
    depth: list[int]


def summarise_replay(replayed: Replayed, nodes: Sequence[PlannedNode]) -> ReplaySummary:
    """Return the figures of a replay."""
    span_s = replayed.span_s
    offered_s = {node.name: node.slots * span_s for node in nodes}
    busy_s, whole_s = sum(replayed.busy_s.values()), sum(offered_s.values())
    return _summary(
        replayed.samples,
        replayed.elapsed_s,
        swaps=replayed.loads,
        utilisation=busy_s / whole_s if whole_s else None,
        by_node={name: replayed.busy_s[name] / offered_s[name] for name in offered_s if span_s},
    )


def summarise_recorded(samples: list[RequestSample]) -> ReplaySummary:
    """Return the figures of what was recorded."""
    ends_s = (sample.at_s + (sample.total_s or 0.0) for sample in samples)
    return _summary(samples, max(ends_s))


def replay_series(replayed: Replayed) -> ReplaySeries:
    """Return how a replay went over time."""
    requests = series(replayed.samples, replayed.elapsed_s)
    times = [at_s for at_s, _ in replayed.depths]
    depth = []
    for one in requests.bins:
        first = max(0, bisect_right(times, one.start_s) - 1)  # what waited as it began
        last = bisect_right(times, one.start_s + requests.width_s)
        depth.append(max(count for _, count in replayed.depths[first:last]))
    return ReplaySeries(requests, depth)


def _summary(
    samples: list[RequestSample],
    elapsed_s: float,
    swaps: int | None = None,
    utilisation: float | None = None,
    by_node: dict[str, float] | None = None,
) -> ReplaySummary:
    counts = Counter(sample.user for sample in samples).most_common(USERS_MAX)
    users = Mix(tuple(user for user, _ in counts), tuple(float(count) for _, count in counts))
    measured = Measured(samples, samples[-1].at_s, elapsed_s, {}, False)
    figures = summarise(measured, LoadPlan(url="", model="", users=users))
    codes = figures.all.by_code
    timed_out, left = sum(codes.get(code, 0) for code in TIMED_OUT), codes.get(LEFT, 0)
    return ReplaySummary(
        **asdict(figures),
        refused=figures.all.errors - timed_out - left,
        timed_out=timed_out,
        left=left,
        swaps=swaps,
        utilisation=utilisation,
        by_node_utilisation=by_node or {},
    )
