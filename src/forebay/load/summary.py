"""The figures of a run, from its samples: over all, by priority and by user.

What each of them means is in docs/bench.md; the words there and the code here must agree.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from forebay.load.samples import NOT_SENT, UNFINISHED, RequestSample
from forebay.load.statistics import Spread, fairness, spread

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.load.plan import LoadPlan
    from forebay.load.run import Measured

LATE_S_MAX = 0.05
"""Where the 99th percentile of our own lateness is above this, the run is not to be trusted: it is
what a person just notices, and far above what a healthy event loop needs."""
CODES_MAX = 50


class GroupSummary(Struct, frozen=True):
    """The figures of some requests. Times are spreads in seconds, of successes only."""

    offered: int
    """Due in the measured time."""
    sent: int
    ok: int
    errors: int
    not_sent: int
    unfinished: int
    good: int
    """Successes that met the objectives (all successes where there are none)."""
    tokens_in: int
    tokens_out: int
    good_tokens: int
    goodput: float
    """Good answers a second."""
    goodput_tokens: float
    ttft: Spread | None
    total: Spread | None
    wait: Spread | None
    gap: Spread | None
    stall: Spread | None
    """The longest gap of each answer."""
    by_code: dict[str, int]

    @property
    def ok_share(self) -> float | None:
        """Return the share of what was sent, and ended, that succeeded."""
        ended = self.ok + self.errors
        return self.ok / ended if ended else None


class RunSummary(Struct, frozen=True):
    """The figures of a run."""

    elapsed_s: float
    """From the end of the warm-up to the last answer, or the end of the arrivals if later."""
    span_s: float
    """For how long arrivals were measured."""
    offered_rate: float | None
    """Requests a second; None where all came at one moment."""
    all: GroupSummary
    by_priority: dict[str, GroupSummary]
    by_user: dict[str, GroupSummary]
    fairness_during: float | None
    """Over what was served while requests came."""
    fairness: float | None
    """Over all that was served in the end."""
    late: Spread | None
    """How late this program sent them."""
    queued: int | None
    """How many had to wait, as the server says; None where it does not."""
    by_node: dict[str, int]
    is_late: bool
    is_interrupted: bool


def measured_samples(measured: Measured, plan: LoadPlan) -> list[RequestSample]:
    """Return the samples that count: those due after the warm-up."""
    return [sample for sample in measured.samples if sample.at_s >= plan.warmup_s]


def summarise(measured: Measured, plan: LoadPlan) -> RunSummary:
    """Return the figures of a run."""
    samples = measured_samples(measured, plan)
    elapsed_s = max(measured.elapsed_s - plan.warmup_s, 1e-9)
    span_s = max(measured.span_s - plan.warmup_s, 0.0)
    late = spread(sample.late_s for sample in samples)
    told = [sample.queued for sample in samples if sample.queued is not None]
    offered = _per_user(samples)
    served = _per_user(sample for sample in samples if sample.is_ok)
    in_time = _per_user(
        sample for sample in samples if sample.is_ok and (sample.ended_s or 0) <= measured.span_s
    )
    groups = _grouped(samples, plan, elapsed_s)
    return RunSummary(
        elapsed_s=elapsed_s,
        span_s=span_s,
        offered_rate=len(samples) / span_s if span_s else None,
        all=group(samples, plan, elapsed_s),
        by_priority=groups[0],
        by_user=groups[1],
        fairness_during=fairness(offered, in_time),
        fairness=fairness(offered, served),
        late=late,
        queued=sum(told) if told else None,
        by_node=dict(Counter(s.node for s in samples if s.node).most_common(CODES_MAX)),
        is_late=late is not None and late.p99 > LATE_S_MAX,
        is_interrupted=measured.is_interrupted,
    )


def group(samples: list[RequestSample], plan: LoadPlan, elapsed_s: float) -> GroupSummary:
    """Return the figures of some of the samples."""
    served = [sample for sample in samples if sample.is_ok]
    good = [sample for sample in served if is_good(sample, plan)]
    good_tokens = sum(sample.tokens_out for sample in good)
    counts = Counter(sample.code for sample in samples)
    not_sent = counts.pop(NOT_SENT, 0)
    unfinished = counts.pop(UNFINISHED, 0)
    counts.pop("", None)
    return GroupSummary(
        offered=len(samples),
        sent=len(samples) - not_sent,
        ok=len(served),
        errors=counts.total(),
        not_sent=not_sent,
        unfinished=unfinished,
        good=len(good),
        tokens_in=sum(sample.tokens_in or 0 for sample in served),
        tokens_out=sum(sample.tokens_out for sample in served),
        good_tokens=good_tokens,
        goodput=len(good) / elapsed_s,
        goodput_tokens=good_tokens / elapsed_s,
        ttft=spread(sample.ttft_s for sample in served),
        total=spread(sample.total_s for sample in served),
        wait=spread(sample.wait_s for sample in served),
        gap=spread(sample.gap_s for sample in served),
        stall=spread(sample.gap_max_s for sample in served),
        by_code=_bounded(counts),
    )


def is_good(sample: RequestSample, plan: LoadPlan) -> bool:
    """Say whether an answer came, and met what was asked of it."""
    return (
        sample.is_ok
        and _within(sample.ttft_s, plan.slo_ttft_s if plan.stream else None)
        and _within(sample.total_s, plan.slo_total_s)
    )


def _within(value: float | None, limit: float | None) -> bool:
    """Say whether a limit is kept; an answer without a single token kept no limit on its first."""
    return limit is None or (value is not None and value <= limit)


def _grouped(
    samples: list[RequestSample], plan: LoadPlan, elapsed_s: float
) -> tuple[dict[str, GroupSummary], dict[str, GroupSummary]]:
    """Return the figures by priority and by user, in the order in which they were given."""
    priorities: dict[str, list[RequestSample]] = {}
    users: dict[str, list[RequestSample]] = {}
    for sample in samples:
        priorities.setdefault(sample.priority, []).append(sample)
        users.setdefault(sample.user, []).append(sample)
    names = plan.priorities.names if plan.priorities else tuple(priorities)
    return (
        {name: group(priorities[name], plan, elapsed_s) for name in names if name in priorities},
        {name: group(users[name], plan, elapsed_s) for name in plan.users.names if name in users},
    )


def _per_user(samples: Iterable[RequestSample]) -> dict[str, float]:
    counts: dict[str, float] = {}
    for sample in samples:
        counts[sample.user] = counts.get(sample.user, 0) + 1
    return counts


def _bounded(counts: Counter[str]) -> dict[str, int]:
    """Return the commonest codes; a server that invents codes without end fills one row."""
    common = dict(counts.most_common(CODES_MAX))
    others = counts.total() - sum(common.values())
    if others:
        common["other"] = common.get("other", 0) + others
    return common
