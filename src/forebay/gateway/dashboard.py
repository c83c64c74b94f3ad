"""The figures of a gateway that the dashboard shows, beside those of the queue."""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from typing import TYPE_CHECKING, Final

from forebay.api.events import JobsSnapshot, JobTypeCounts, OpenBatches, Words
from forebay.dashboard.recent_errors import Remedy
from forebay.gateway.errors.codes import CODES
from forebay.gateway.hot.accounting import BUCKETS_S

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
        "The node answered with a 4xx or 5xx, which was passed through.",
        "ノード自身がエラー (4xx または 5xx) を返し、その応答をそのまま返しました。",
    ),
)


def _fine_bounds() -> tuple[float, ...]:
    """Return 1 ms to 10 minutes in steps of up to 5% of the upper bound, or of a millisecond."""
    bounds_ms = [1]
    while bounds_ms[-1] < 600_000:
        last = bounds_ms[-1]
        bounds_ms.append(min(600_000, max(last + 1, int(last / 0.95))))
    return tuple(bound / 1000 for bound in bounds_ms)


FINE_BOUNDS_S: Final = _fine_bounds()
"""What the page tells is no more than 5%, or 1 ms, below what was measured."""


class FineHistogram:
    """Counts by bucket, finer than the metrics': for quantiles that people read."""

    def __init__(self) -> None:
        self.counts = [0] * (len(FINE_BOUNDS_S) + 1)

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(FINE_BOUNDS_S, seconds)] += 1


class RequestTimes:
    """Counts how long requests waited, by priority, and streams took to their first byte.

    A stream's time begins with its arrival. An answer that is not streamed has no first token that
    anyone sees. Of requests that did not wait the metrics' own histograms tell: most cost nothing
    here.
    """

    def __init__(self, accounting: Accounting, ended: EndedStream) -> None:
        self._accounting = accounting
        self._waits: dict[str, FineHistogram] = {}
        self._first_tokens = FineHistogram()
        ended.read_by(self._take)

    def waits(self) -> dict[str, list[int]]:
        """Return the waiting times of all requests since the start, by priority and bucket.

        Without those that were rejected at once: they would make the other waits look short.
        """
        waits = {name: list(histogram.counts) for name, histogram in self._waits.items()}
        for (priority, outcome), histogram in self._accounting.waits.items():
            if _waits(outcome):
                counts = waits.setdefault(priority, [0] * (len(FINE_BOUNDS_S) + 1))
                counts[0] += histogram.counts[0]
        return waits

    def first_tokens(self) -> list[int]:
        """Return the times to the first token since the start, by bucket."""
        return list(self._first_tokens.counts)

    def _take(self, batch: EndedBatch) -> None:
        for ended in batch.requests:
            arrival = ended.arrival
            if arrival is None:
                continue
            if ended.waited_s > BUCKETS_S[0] and _waits(ended.outcome):
                self._waits_of(arrival.priority).add(ended.waited_s)
            if arrival.stream and ended.first_byte_s:
                self._first_tokens.add(ended.first_byte_s - ended.arrived_s)

    def _waits_of(self, priority: str) -> FineHistogram:
        known = self._waits.get(priority)
        if known is None:
            known = self._waits[priority] = FineHistogram()
        return known


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


WAITS, FIRST_TOKENS, END = "waits ", "first tokens ", "end "
OUTPUT_TOKENS, RETRIES, BODIES_REFUSED = "output tokens", "retries", "bodies refused"
"""How the figures of the page are named among what workers count."""


def page_figures(accounting: Accounting, times: RequestTimes, retries: int) -> dict[str, float]:
    """Return what the page shows of this process' requests, by name."""
    figures: dict[str, float] = {
        RETRIES: retries,
        OUTPUT_TOKENS: accounting.output_tokens,
        BODIES_REFUSED: accounting.bodies_refused,
    }
    counted = {f"{WAITS}{name} ": counts for name, counts in times.waits().items()}
    for name, counts in (*counted.items(), (FIRST_TOKENS, times.first_tokens())):
        for index, count in enumerate(counts):
            if count:
                figures[f"{name}{index}"] = count
    for outcome, count in bad_ends(accounting).items():
        figures[f"{END}{outcome}"] = count
    return figures


def with_waits(waits: dict[str, list[int]], others: Mapping[str, float]) -> dict[str, list[int]]:
    """Add the waits that other workers counted, by priority and bucket."""
    for name, count in others.items():
        if name.startswith(WAITS):
            priority, _, index = name[len(WAITS) :].rpartition(" ")
            counts = waits.setdefault(priority, [0] * (len(FINE_BOUNDS_S) + 1))
            counts[int(index)] += int(count)
    return waits


def with_first_tokens(counts: list[int], others: Mapping[str, float]) -> list[int]:
    """Add the times to the first token that other workers counted, by bucket."""
    if not others:
        return counts
    return [count + int(others.get(f"{FIRST_TOKENS}{i}", 0)) for i, count in enumerate(counts)]


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
