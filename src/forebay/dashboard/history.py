"""The last 15 minutes, one sample per second, for the charts of the page.

A sample keeps what was true at its moment (depth, processing) and what has happened since the one
before (served, rejected). Waits are quantiles over the 30 seconds before it, from the differences
of counts by bucket. A quantile lies somewhere inside its bucket, and is told as the lower end of
that: so it is never above the longest that was measured. Buckets are narrow for this reason.

Bounds: 900 samples of about a dozen numbers, and 91 rows of buckets; adding one is O(buckets).
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from msgspec import Struct

from forebay.api.events import Timeline, TimelineSample

STEP_S: Final = 1.0
SAMPLES_MAX: Final = 900
"""15 minutes."""
WAITS_WINDOW: Final = 30
"""Samples over which waits are told: long enough that a slow trickle of requests shows a line."""
MINUTE: Final = 60


def quantile(counts: Sequence[int], bounds: Sequence[float], share: float) -> float | None:
    """Return the value below which a share of what was counted lies; None where nothing was.

    `counts` has one entry more than `bounds`: what lay above the last. Of a bucket its lower end is
    told, and of the first, which is of those that did not wait at all, 0.

    >>> quantile([0, 10, 0], (1.0, 2.0), 0.5)
    1.0
    """
    if not any(counts):  # as in most seconds
        return None
    wanted, seen = share * sum(counts), 0
    for low, count in zip((0.0, *bounds), counts, strict=True):
        seen += count
        if seen and seen >= wanted:
            return low
    return None


class HistoryReading(Struct, frozen=True):
    """What is read at one moment; totals and counts are since the start."""

    depth: dict[str, int]
    processing: int
    served: int
    rejected: int
    waits: Mapping[str, Sequence[int]]
    """How long requests waited, by priority and bucket."""
    first_tokens: Sequence[int]
    """How long streams took to their first token, by bucket."""
    output_tokens: int
    source: object = None
    """Who counted the totals: where that is another than before, they began anew."""


class SampleHistory:
    """The samples. Pure: time is when `add` is called."""

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self._bounds_s = bounds_s
        self._samples: deque[TimelineSample] = deque(maxlen=SAMPLES_MAX)
        self._nothing = [0] * (len(bounds_s) + 1)
        self._waits: deque[Mapping[str, Sequence[int]]] = deque([{}], maxlen=WAITS_WINDOW + 1)
        self._first_tokens: deque[Sequence[int]] = deque([self._nothing], maxlen=MINUTE + 1)
        self._output_tokens: deque[int] = deque([0], maxlen=MINUTE + 1)
        self._served = self._rejected = 0
        self._source: object = None
        self.number = 0
        """How many samples there have been since the start."""

    @property
    def newest(self) -> TimelineSample | None:
        """The last whole second; None in the first."""
        return self._samples[-1] if self._samples else None

    def begin(self, reading: HistoryReading) -> None:
        """Take what had been counted before the first sample."""
        self._waits[0], self._first_tokens[0] = reading.waits, reading.first_tokens
        self._output_tokens[0] = reading.output_tokens
        self._served, self._rejected = reading.served, reading.rejected
        self._source = reading.source

    def add(self, reading: HistoryReading) -> None:
        self._waits.append(reading.waits)
        self._first_tokens.append(reading.first_tokens)
        self._output_tokens.append(reading.output_tokens)
        if reading.source != self._source:  # nothing happened: another leader, or none, counts
            self._source = reading.source
            self._served, self._rejected = reading.served, reading.rejected
        waits = self._recent_waits()
        recent = self._nothing
        for counts in waits.values():
            recent = list(map(operator.add, recent, counts))
        sample = TimelineSample(
            depth=reading.depth,
            processing=reading.processing,
            served=max(0, reading.served - self._served),
            rejected=max(0, reading.rejected - self._rejected),
            wait_p50_seconds=quantile(recent, self._bounds_s, 0.5),
            wait_p95_seconds=quantile(recent, self._bounds_s, 0.95),
            wait_p95_seconds_by_priority={
                name: quantile(counts, self._bounds_s, 0.95) for name, counts in waits.items()
            },
        )
        self._served, self._rejected = reading.served, reading.rejected
        self._samples.append(sample)
        self.number += 1

    def served_per_minute(self) -> int:
        return sum(sample.served for sample in self._last(MINUTE))

    def rejected_per_minute(self) -> int:
        return sum(sample.rejected for sample in self._last(MINUTE))

    def tokens_per_second(self) -> float | None:
        """Return the output of the requests that ended in the last minute; None without any.

        Tokens are counted when an answer ends: over less than a minute the figure would jump.
        """
        tokens = self._output_tokens[-1] - self._output_tokens[0]
        return round(tokens / (len(self._output_tokens) - 1), 1) if tokens > 0 else None

    def first_token(self, share: float) -> float | None:
        """Return how long streams that ended in the last minute took to their first token."""
        newest, oldest = self._first_tokens[-1], self._first_tokens[0]
        recent = [now - then for now, then in zip(newest, oldest, strict=True)]
        return quantile(recent, self._bounds_s, share)

    def timeline(self, priorities: Sequence[str], at: str) -> Timeline:
        """Return all samples as columns of equal length, the oldest first."""
        samples = list(self._samples)
        return Timeline(
            at=at,
            step_seconds=STEP_S,
            sample_number=self.number,
            depth={name: [one.depth.get(name, 0) for one in samples] for name in priorities},
            processing=[one.processing for one in samples],
            served=[one.served for one in samples],
            rejected=[one.rejected for one in samples],
            wait_p50_seconds=[one.wait_p50_seconds for one in samples],
            wait_p95_seconds=[one.wait_p95_seconds for one in samples],
            wait_p95_seconds_by_priority={
                name: [one.wait_p95_seconds_by_priority.get(name) for one in samples]
                for name in priorities
            },
        )

    def _recent_waits(self) -> dict[str, list[int]]:
        """Return what was counted in the window of waits, by priority and bucket."""
        newest, oldest = self._waits[-1], self._waits[0]
        return {
            name: list(map(operator.sub, counts, oldest.get(name, self._nothing)))
            for name, counts in newest.items()
        }

    def _last(self, samples: int) -> Sequence[TimelineSample]:
        return list(islice(reversed(self._samples), samples))
