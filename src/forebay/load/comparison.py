"""Two runs side by side, and whether their difference is more than noise.

What is noise is told by `noise.py`. Where its interval covers 0 there is no clear difference; where
a run is too short for the line that stood in it, nothing is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from forebay.load.noise import CELLS, RANKS, Cells, Statistic, margin, stretches
from forebay.load.plan import Mix
from forebay.load.summary import is_good
from forebay.load.words import mix_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.load.document import Document
    from forebay.load.plan import LoadPlan
    from forebay.load.samples import RequestSample

Verdict: TypeAlias = Literal[
    "better", "worse", "no clear difference", "too loaded to tell apart", "unknown"
]
TOO_LOADED: Verdict = "too loaded to tell apart"
"""Too few stretches of the runs are independent of each other."""
Unit: TypeAlias = Literal["s", "share", "/s", "count", "index"]
SAMPLES_MAX = 4000
"""Of each run, evenly thinned: more would only take longer."""
SAMPLES_MIN = 20
CHANGE_MIN = 0.01
"""A difference of less than a hundredth may be real, and is nothing to act on."""
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
    each: Callable[[RequestSample, LoadPlan], float | None] | None = None
    """What a single request adds to it; None where the figure is not made of such."""
    statistic: Statistic = "mean"
    """What is made of those."""


def compare(a: Document, b: Document) -> Comparison:
    """Return the figures of both, b against a."""
    rows = []
    for figure in _figures():
        values = figure.of(a), figure.of(b)
        if values == (None, None):
            continue
        noise: float | Verdict | None = None
        if figure.each is not None:
            noise = _noise(_cells(a, figure), _cells(b, figure), figure.statistic)
        rows.append(_row(figure, values[0], values[1], noise))
    return Comparison(differences(a.settings, b.settings), _warnings(a, b, rows), rows)


def differences(a: LoadPlan, b: LoadPlan) -> list[str]:
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


def _time_of(field: str) -> Callable[[RequestSample, LoadPlan], float | None]:
    def each(sample: RequestSample, _: LoadPlan) -> float | None:
        found: float | None = getattr(sample, field)
        return found if sample.is_ok else None

    return each


def _success_of(sample: RequestSample, _: LoadPlan) -> float | None:
    return float(sample.is_ok) if sample.is_ok or sample.is_error else None


def _good_of(sample: RequestSample, plan: LoadPlan) -> float | None:
    return float(is_good(sample, plan))


def _good_share(document: Document) -> float | None:
    group = document.summary.all
    return group.good / group.offered if group.offered else None


# -- noise


def _cells(document: Document, figure: _Figure) -> Cells:
    """Return what the requests of each cell of time add to a figure."""
    assert figure.each is not None
    plan, summary, rows = document.settings, document.summary, document.samples.rows
    step = max(1, -(-len(rows) // SAMPLES_MAX))
    cells: Cells = [[] for _ in range(CELLS)]
    weight = 1.0
    if figure.statistic == "sum":  # each stands for those left out, and sums are per second
        weight = step * document.samples.step / summary.elapsed_s
    for sample in rows[::step]:
        value = figure.each(sample, plan)
        if value is not None:
            place = int((sample.at_s - plan.warmup_s) / (summary.span_s or 1.0) * CELLS)
            cells[min(CELLS - 1, max(0, place))].append(value * weight)
    return cells


def _noise(a: Cells, b: Cells, statistic: Statistic) -> float | Verdict:
    """Return by how much a difference may be off, or why nobody can say."""
    if min(sum(map(len, a)), sum(map(len, b))) < SAMPLES_MIN:
        return "unknown"
    count = stretches(a, b, statistic)
    return margin(a, b, statistic, count) if count else TOO_LOADED


def _row(figure: _Figure, a: float | None, b: float | None, noise: float | Verdict | None) -> Row:
    """Judge a figure; `noise` is None for one that is not made of single requests."""
    if a is None or b is None:
        return Row(figure.name, figure.unit, a, b, "unknown")
    if isinstance(noise, str):
        return Row(figure.name, figure.unit, a, b, noise)
    is_small = abs(b - a) <= CHANGE_MIN * abs(a)
    if noise is None:
        verdict: Verdict = "no clear difference" if is_small else "unknown"
        return Row(figure.name, figure.unit, a, b, verdict)
    if is_small or abs(b - a) <= noise:
        verdict = "no clear difference"
    else:
        verdict = "better" if (b > a) == figure.more_is_better else "worse"
    return Row(figure.name, figure.unit, a, b, verdict, b - a - noise, b - a + noise)


def _warnings(a: Document, b: Document, rows: list[Row]) -> list[str]:
    found = []
    if any(row.verdict == TOO_LOADED for row in rows):
        found.append(
            "Too loaded to tell apart: the queue lasted through much of a run, so its length "
            "is a matter of chance. Run longer (--duration), or at a lower --rate."
        )
    if a.settings.seed != b.settings.seed and a.settings.arrivals == "poisson":
        found.append("The seeds differ, so the requests were sent at different times.")
    for name, document in (("A", a), ("B", b)):
        summary = document.summary
        if summary.is_late:
            found.append(
                f"{name} was sent late by the load generator: its times are not the server's."
            )
        if summary.is_interrupted:
            found.append(f"{name} was interrupted.")
        if summary.all.not_sent:
            found.append(f"{name} left {summary.all.not_sent:,} requests unsent.")
        if summary.all.ok < SAMPLES_MIN:
            found.append(
                f"{name} has {summary.all.ok} good answers: too few to estimate the noise."
            )
    return found


def _setting(value: object) -> str:
    if isinstance(value, Mix):
        return mix_text(value)
    return "none" if value is None else str(value)
