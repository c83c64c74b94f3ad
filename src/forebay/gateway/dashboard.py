"""The figures of a gateway that the dashboard shows, beside those of the queue."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from forebay.dashboard.recent_errors import Remedy
from forebay.dashboard.snapshot import JobsSnapshot, JobTypeCounts, OpenBatches, Words
from forebay.gateway.errors.codes import CODES
from forebay.gateway.hot.accounting import BUCKETS_S, Histogram

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from forebay.clock import Timers
    from forebay.gateway.hot.accounting import Accounting
    from forebay.gateway.hot.ended import EndedBatch
    from forebay.gateway.hot.ended_stream import EndedStream
    from forebay.gateway.jobs.service import JobService

WAITED: Final = frozenset({"served", "passed_through", "cancelled", "queue_timeout"})
BATCHES_S: Final = 2.0
"""How old the progress of batches may be: the one figure that needs the database."""
GPUS_S: Final = 1.0
"""How old the figures of a GPU may be while someone watches; else probes bring them."""

GOOD_ENDS: Final = frozenset({"served"})
"""Outcomes that are no problem."""

_PASSED_ON: Final = Remedy(
    "caller",
    Words(
        "The node itself answered with an error (a 4xx or 5xx of its own), and that was passed on.",
        "ノード自身がエラー (4xx または 5xx) を返し、その応答をそのまま返しました。",
    ),
)


def waits_by_bucket(accounting: Accounting) -> list[int]:
    """Return the waiting times of all requests since the start, by bucket.

    Without those that were rejected at once: they would make the other waits look short.
    """
    total = [0] * (len(BUCKETS_S) + 1)
    for (_, outcome), histogram in accounting.waits.items():
        if not _waits(outcome):
            continue
        for index, count in enumerate(histogram.counts):
            total[index] += count
    return total


def _waits(outcome: str) -> bool:
    """Say whether requests with this outcome had queued, or had a slot."""
    return outcome in WAITED or remedy_of(outcome).kind == "error"


def bad_ends(accounting: Accounting) -> dict[str, int]:
    """Return how many requests failed since the start, by code."""
    ends: dict[str, int] = {}
    for (_, outcome), count in accounting.requests.items():
        if outcome not in GOOD_ENDS:
            ends[outcome] = ends.get(outcome, 0) + count
    return ends


class FirstTokens:
    """Counts how long streams took from their arrival to the first byte of their answer.

    An answer that is not streamed has no first token that anyone sees.
    """

    def __init__(self, ended: EndedStream) -> None:
        self.histogram = Histogram()
        ended.read_by(self._take)

    def _take(self, batch: EndedBatch) -> None:
        for ended in batch.requests:
            if ended.first_byte_s and ended.arrival is not None and ended.arrival.stream:
                self.histogram.add(ended.first_byte_s - ended.arrived_s)


WAITS, FIRST_TOKENS, END = "waits ", "first tokens ", "end "
OUTPUT_TOKENS, RETRIES = "output tokens", "retries"
"""How the figures of the page are named among what workers count."""


def page_figures(
    accounting: Accounting, first_tokens: FirstTokens, retries: int
) -> dict[str, float]:
    """Return what the page shows of this process' requests, by name."""
    figures: dict[str, float] = {RETRIES: retries, OUTPUT_TOKENS: accounting.output_tokens}
    for name, counts in (
        (WAITS, waits_by_bucket(accounting)),
        (FIRST_TOKENS, first_tokens.histogram.counts),
    ):
        for index, count in enumerate(counts):
            figures[f"{name}{index}"] = count
    for outcome, count in bad_ends(accounting).items():
        figures[f"{END}{outcome}"] = count
    return figures


def with_counts(name: str, counts: list[int], others: Mapping[str, float]) -> list[int]:
    """Return what this process counted by bucket, with what other workers did under that name."""
    return [count + int(others.get(f"{name}{index}", 0)) for index, count in enumerate(counts)]


def with_ends(ends: dict[str, int], others: Mapping[str, float]) -> dict[str, int]:
    """Add the bad ends that other workers counted."""
    for name, count in others.items():
        if name.startswith(END):
            outcome = name[len(END) :]
            ends[outcome] = ends.get(outcome, 0) + int(count)
    return ends


class RateLimit:
    """Says when something is due that is done at most every so often."""

    def __init__(self, every_s: float, clock: Timers) -> None:
        self._every_s = every_s
        self._clock = clock
        self._last_s = clock.monotonic_s() - every_s

    def due(self) -> bool:
        """Say whether it is due, and restart the interval if it is."""
        now_s = self._clock.monotonic_s()
        if now_s - self._last_s < self._every_s:
            return False
        self._last_s = now_s
        return True


class JobsView:
    """Jobs from counters in memory; the progress of batches, from the database now and then."""

    def __init__(self, jobs: JobService, clock: Timers) -> None:
        self._jobs = jobs
        self._batches = OpenBatches()
        self._limit = RateLimit(BATCHES_S, clock)

    def picture(self) -> JobsSnapshot:
        figures = self._jobs.figures
        types: dict[str, dict[str, int]] = {}
        for (task_type, status), count in figures.by_status.items():
            types.setdefault(task_type, {})[status] = count
        return JobsSnapshot(
            types=[JobTypeCounts(name, **counts) for name, counts in sorted(types.items())],
            batches=self._batches,
            vram_reserved_bytes=int(figures.vram_reserved_gb() * 2**30),
        )

    def refresh(self) -> None:
        """Query the progress of the batches, unless that was done just now."""
        if self._limit.due():
            self._jobs.ask_batch_progress(self._take)

    def _take(self, asked: Future[tuple[int, int, int, int]]) -> None:
        """Store the result, on the database's thread: one assignment needs no lock."""
        if not asked.cancelled() and asked.exception() is None:
            self._batches = OpenBatches(*asked.result())


@cache
def remedy_of(code: str) -> Remedy:
    """Return what the dashboard says about an error code."""
    known = CODES.get(code)
    if known is None:  # `passed_through`: the only outcome that is no code of ours
        return _PASSED_ON
    japanese = known.hint_japanese or known.japanese  # where the message has said it all
    words = Words(known.remedy.replace("`", ""), japanese.replace("`", ""))
    return Remedy(_kind(code, known.status), words)


def _kind(code: str, status: int) -> str:
    """Return the cause: a full queue, a node or a bug, or the caller."""
    if status in (429, 503) or code == "queue_timeout":
        return "error" if code == "store_unavailable" else "rejection"
    return "error" if status >= 500 else "caller"
