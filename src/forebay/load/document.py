"""The JSON document of a run: what was asked, what was found, and the samples to check it by."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from forebay.load.plan import LoadPlan
from forebay.load.samples import COLUMNS, NOT_SENT, RequestSample
from forebay.load.statistics import percentile
from forebay.load.summary import RunSummary, measured_samples, summarise

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.load.run import Measured

VERSION = 1
KIND = "forebay.bench"
SAMPLES_MAX = 20_000
"""In the document, about 4 MB; the figures are always of all."""
BINS_MAX = 60
"""More would show the noise of single requests."""
_STEPS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200)


class SampleRows(Struct, frozen=True):
    """Samples as rows: every `step`-th of those that were measured."""

    columns: tuple[str, ...]
    step: int
    rows: list[RequestSample]


class Document(Struct, frozen=True, kw_only=True):
    """One run, as written with `--json` and `--save`."""

    kind: str = KIND
    version: int = VERSION
    forebay: str
    """The version that measured."""
    started: str
    """UTC, as in ISO 8601."""
    settings: LoadPlan
    summary: RunSummary
    series: Series
    messages: dict[str, str]
    """What the server said, by code of error: the first of each."""
    samples: SampleRows


def document(measured: Measured, plan: LoadPlan, started: str, forebay: str) -> Document:
    """Return the document of a run."""
    samples = measured_samples(measured, plan)
    step = max(1, -(-len(samples) // SAMPLES_MAX))
    ended_s = max((sample.ended_s or 0.0 for sample in measured.samples), default=0.0)
    return Document(
        forebay=forebay,
        started=started,
        settings=plan,
        summary=summarise(measured, plan),
        series=series(measured.samples, max(measured.elapsed_s, ended_s)),
        messages=measured.messages,
        samples=SampleRows(COLUMNS, step, samples[::step]),
    )


def encode(made: Document) -> str:
    """Return the document as JSON, laid out for people and for diffs."""
    return msgspec.json.format(msgspec.json.encode(made), indent=1).decode()


class Bin(Struct, frozen=True):
    """One stretch of time. Rates can be had by dividing through the width."""

    start_s: float
    arrivals: int
    """Due in it, sent or not."""
    completions: int
    errors: int
    """That ended in it."""
    in_flight: int
    """Under way at its end."""
    wait_p50: float | None
    wait_p95: float | None
    ttft_p50: float | None
    ttft_p95: float | None
    """Of those due in it that succeeded."""


class Series(Struct, frozen=True):
    """Bins of equal width, one after the other from the start of the run."""

    width_s: float
    bins: list[Bin]


def width_s(span_s: float) -> float:
    """Return the width that gives a readable number of bins.

    >>> width_s(5), width_s(30), width_s(3600)
    (0.1, 0.5, 60)
    """
    for step_s in _STEPS_S:
        if span_s / step_s <= BINS_MAX:
            return step_s
    return span_s / BINS_MAX


def series(samples: list[RequestSample], elapsed_s: float) -> Series:
    """Return how the run went; nothing is counted twice and nothing is left out."""
    step_s = width_s(elapsed_s)
    count = max(1, _place(elapsed_s, step_s) + 1)
    due: list[list[RequestSample]] = [[] for _ in range(count)]
    completions, errors = [0] * count, [0] * count
    for sample in samples:
        due[min(count - 1, _place(sample.at_s, step_s))].append(sample)
        if sample.ended_s is not None:
            place = min(count - 1, _place(sample.ended_s, step_s))
            completions[place] += sample.is_ok
            errors[place] += sample.is_error
    sent = [sample for sample in samples if sample.code != NOT_SENT]
    starts = sorted(sample.at_s + sample.late_s for sample in sent)
    ends = sorted(end_s for sample in sent if (end_s := sample.ended_s) is not None)
    bins = []
    for i in range(count):
        end_s = (i + 1) * step_s
        waits = _ordered(sample.wait_s for sample in due[i] if sample.is_ok)
        firsts = _ordered(sample.ttft_s for sample in due[i] if sample.is_ok)
        bins.append(
            Bin(
                start_s=i * step_s,
                arrivals=len(due[i]),
                completions=completions[i],
                errors=errors[i],
                in_flight=max(0, bisect_right(starts, end_s) - bisect_right(ends, end_s)),
                wait_p50=_rank(waits, 50),
                wait_p95=_rank(waits, 95),
                ttft_p50=_rank(firsts, 50),
                ttft_p95=_rank(firsts, 95),
            )
        )
    return Series(step_s, bins)


def _place(at_s: float, step_s: float) -> int:
    return int(at_s / step_s)


def _ordered(values: Iterable[float | None]) -> list[float]:
    return sorted(value for value in values if value is not None)


def _rank(ordered: list[float], p: float) -> float | None:
    return percentile(ordered, p) if ordered else None
