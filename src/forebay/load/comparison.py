"""Two runs side by side, and whether their difference is more than noise.

Requests of one run are not independent: they stood in the same line, so a bad minute is bad for
all of them. A bootstrap over single requests would be far too sure of itself. Instead each run is
cut into BLOCKS stretches of time, which are drawn with replacement as wholes (Künsch, "The
jackknife and the bootstrap for general stationary observations", 1989); the middle 95 % of the
differences between two such drawings is the interval. Where it covers 0 there is no clear
difference. It knows nothing of what differs from one run to another (other load on the machine, a
cold cache): for that, run each twice.
"""

from __future__ import annotations

import math
import random
from itertools import chain
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from forebay.load.mix import Mix
from forebay.load.percentiles import percentile
from forebay.load.summary import is_good
from forebay.load.words import mix_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.load.document import Document
    from forebay.load.plan import Plan
    from forebay.load.samples import Sample

Verdict: TypeAlias = Literal["better", "worse", "no clear difference", "unknown"]
Statistic: TypeAlias = Literal["p50", "p95", "mean", "sum"]
Unit: TypeAlias = Literal["s", "share", "/s", "count", "index"]
BLOCKS = 20
RESAMPLES = 400
SAMPLES_MAX = 4000
"""Of each run, evenly thinned: more would only take longer."""
SAMPLES_MIN = 20
CHANGE_MIN = 0.01
"""A difference of less than a hundredth may be real, and is nothing to act on."""
RANKS: dict[Statistic, int] = {"p50": 50, "p95": 95}
SAME = ("arrivals", "rate", "trace", "speed", "limit", "users", "priorities", "model", "stream",
        "max_tokens", "prompt_tokens", "ignore_eos", "retries", "slo_ttft_s", "slo_total_s",
        "max_in_flight", "timeout_s", "duration_s", "warmup_s")  # fmt: skip
"""What must be the same for the figures to mean the same. Another address or seed is no fault."""


class Row(Struct, frozen=True):
    """One figure of both runs."""

    name: str
    unit: Unit
    a: float | None
    b: float | None
    verdict: Verdict
    low: float | None = None
    high: float | None = None
    """The interval of b - a."""

    @property
    def ratio(self) -> float | None:
        """Return b / a."""
        return self.b / self.a if self.a and self.b is not None else None


class Comparison(Struct, frozen=True):
    """Two runs side by side."""

    differences: list[str]
    """Settings that make the runs incomparable."""
    warnings: list[str]
    rows: list[Row]


class _Figure(NamedTuple):
    name: str
    unit: Unit
    more_is_better: bool
    of: Callable[[Document], float | None]
    each: Callable[[Sample, Plan], float | None] | None = None
    """What a single request adds to it; None where the figure is not made of such."""
    statistic: Statistic = "mean"
    """What is made of those."""


def compare(a: Document, b: Document, seed: int = 0) -> Comparison:
    """Return the figures of both, b against a."""
    source = random.Random(f"{seed}/compare")
    rows = []
    for figure in _figures():
        values = figure.of(a), figure.of(b)
        if values == (None, None):
            continue
        interval = None
        if figure.each is not None:
            drawn_from = [_values(document, figure) for document in (a, b)]
            interval = _interval(drawn_from[0], drawn_from[1], figure.statistic, source)
        rows.append(_row(figure, values[0], values[1], interval))
    return Comparison(differences(a.settings, b.settings), _warnings(a, b), rows)


def differences(a: Plan, b: Plan) -> list[str]:
    """Return the settings that make two runs incomparable, in words."""
    return [
        f"{name}: {_setting(getattr(a, name))} against {_setting(getattr(b, name))}"
        for name in SAME
        if getattr(a, name) != getattr(b, name)
    ]


# -- the figures


def _figures() -> list[_Figure]:
    times = (
        ("ttft", "time to first token"),
        ("total", "total"),
        ("wait", "queue wait"),
        ("gap", "gap between tokens"),
    )
    return [
        *(
            _Figure(f"{label} {p}", "s", False, _spread_of(field, p), _time_of(f"{field}_s"), p)
            for field, label in times
            for p in RANKS
        ),
        _Figure("succeeded", "share", True, lambda d: d.summary.all.ok_share, _success_of),
        _Figure("met the objectives", "share", True, _good_share, _good_of),
        _Figure("goodput, requests", "/s", True, lambda d: d.summary.all.goodput, _good_of, "sum"),
        _Figure(
            "goodput, tokens",
            "/s",
            True,
            lambda d: d.summary.all.goodput_tokens,
            lambda sample, plan: sample.tokens_out if is_good(sample, plan) else 0.0,
            "sum",
        ),
        _Figure("fairness while loaded", "index", True, lambda d: d.summary.fairness_during),
        _Figure("fairness in the end", "index", True, lambda d: d.summary.fairness),
        _Figure("not sent", "count", False, lambda d: float(d.summary.all.not_sent)),
    ]


def _spread_of(field: str, p: Statistic) -> Callable[[Document], float | None]:
    def of(document: Document) -> float | None:
        found = getattr(document.summary.all, field)
        return None if found is None else float(getattr(found, p))

    return of


def _time_of(field: str) -> Callable[[Sample, Plan], float | None]:
    def each(sample: Sample, _: Plan) -> float | None:
        found: float | None = getattr(sample, field)
        return found if sample.is_ok else None

    return each


def _success_of(sample: Sample, _: Plan) -> float | None:
    return float(sample.is_ok) if sample.is_ok or sample.is_error else None


def _good_of(sample: Sample, plan: Plan) -> float | None:
    return float(is_good(sample, plan))


def _good_share(document: Document) -> float | None:
    group = document.summary.all
    return group.good / group.offered if group.offered else None


# -- noise


def _values(document: Document, figure: _Figure) -> list[list[float]]:
    """Return what the requests of each stretch of time add to a figure, sorted."""
    assert figure.each is not None
    plan, summary, rows = document.settings, document.summary, document.samples.rows
    step = max(1, -(-len(rows) // SAMPLES_MAX))
    blocks: list[list[float]] = [[] for _ in range(BLOCKS)]
    weight = 1.0
    if figure.statistic == "sum":  # each stands for those left out, and sums are per second
        weight = step * document.samples.step / summary.elapsed_s
    for sample in rows[::step]:
        value = figure.each(sample, plan)
        if value is not None:
            place = int((sample.at_s - plan.warmup_s) / (summary.span_s or 1.0) * BLOCKS)
            blocks[min(BLOCKS - 1, max(0, place))].append(value * weight)
    return [sorted(block) for block in blocks]


def _interval(
    a: list[list[float]], b: list[list[float]], statistic: Statistic, source: random.Random
) -> tuple[float, float] | None:
    """Return where b - a lies in 95 % of the drawings; None with too little to draw from."""
    if min(sum(map(len, a)), sum(map(len, b))) < SAMPLES_MIN:
        return None
    found = []
    for _ in range(RESAMPLES):
        drawn_a, drawn_b = _drawn(a, statistic, source), _drawn(b, statistic, source)
        if drawn_a is not None and drawn_b is not None:
            found.append(drawn_b - drawn_a)
    found.sort()
    return (percentile(found, 2.5), percentile(found, 97.5)) if found else None


def _drawn(blocks: list[list[float]], statistic: Statistic, source: random.Random) -> float | None:
    values = list(chain.from_iterable(source.choices(blocks, k=len(blocks))))
    if not values:
        return None
    if statistic in ("mean", "sum"):
        return math.fsum(values) / (len(values) if statistic == "mean" else 1)
    values.sort()  # of sorted pieces, so this only merges
    return percentile(values, RANKS[statistic])


def _row(
    figure: _Figure, a: float | None, b: float | None, interval: tuple[float, float] | None
) -> Row:
    low, high = interval or (None, None)
    verdict: Verdict = "unknown"
    if a is None or b is None or (interval is None and figure.each is not None):
        pass
    elif abs(b - a) <= CHANGE_MIN * abs(a) or (interval and interval[0] <= 0 <= interval[1]):
        verdict = "no clear difference"
    elif interval is not None:
        verdict = "better" if (interval[0] > 0) == figure.more_is_better else "worse"
    return Row(figure.name, figure.unit, a, b, verdict, low, high)


def _warnings(a: Document, b: Document) -> list[str]:
    found = []
    if a.settings.seed != b.settings.seed and a.settings.arrivals == "poisson":
        found.append("The seeds differ, so the requests came at other times.")
    for name, document in (("A", a), ("B", b)):
        summary = document.summary
        if summary.is_late:
            found.append(f"{name} could not keep its own schedule: its times are not the server's.")
        if summary.is_interrupted:
            found.append(f"{name} was interrupted.")
        if summary.all.not_sent:
            found.append(f"{name} left {summary.all.not_sent:,} requests unsent.")
        if summary.all.ok < SAMPLES_MIN:
            found.append(f"{name} has {summary.all.ok} good answers: too few to tell noise by.")
    return found


def _setting(value: object) -> str:
    if isinstance(value, Mix):
        return mix_text(value)
    return "none" if value is None else str(value)
