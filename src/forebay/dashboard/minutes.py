"""The last 24 hours, one point per minute, for the charts of the page.

A point sums up the seconds of its minute: depth and processing are means, waits the mean of the
medians and the largest of the 95th percentiles; waits by priority are quantiles of the minute.
Bounds: 1,440 points, and one minute of seconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from forebay.api.status import DayHistory
from forebay.dashboard.history import quantile
from forebay.records.history import MINUTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from forebay.api.events import TimelineSample

MINUTE_S = 60


class MinutePoint(msgspec.Struct, frozen=True):
    """One minute."""

    depth: dict[str, float]
    """Waiting, by priority."""
    processing: float
    served: int
    rejected: int
    wait_p50_seconds: float | None
    wait_p95_seconds: float | None
    tokens_per_second: float | None
    waits: dict[str, tuple[float, float]] = {}
    """Median and 95th percentile of the seconds waited, by priority, where a request of it ended;
    nothing in points that an older version stored."""


class MinuteSeries:
    """The points. Pure: the time is an argument."""

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self._bounds_s = bounds_s
        self._waits: Mapping[str, Sequence[int]] = {}
        self._waits_before: Mapping[str, Sequence[int]] | None = None
        self._points: deque[tuple[int, MinutePoint]] = deque(maxlen=MINUTES_MAX)
        self._fresh: deque[tuple[int, str]] = deque(maxlen=MINUTES_MAX)
        self._minute = 0
        self._seconds: list[TimelineSample] = []
        self._tokens: float | None = None

    def add(
        self,
        sample: TimelineSample,
        tokens_per_second: float | None,
        waits: Mapping[str, Sequence[int]],
        at: float,
    ) -> None:
        """Add one second; `tokens_per_second` is over the minute that ends with it.

        `waits` are those since the start, by priority and bucket.
        """
        if self._waits_before is None:  # whoever leads now has those of workers from before
            self._waits_before = waits
        minute = int(at) // MINUTE_S
        was_corrected = minute == self._minute - 1  # the clock: no minute is told in two pieces
        if minute != self._minute and not was_corrected:
            if self._seconds:
                self._close()
            self._minute = minute
        if len(self._seconds) < 2 * MINUTE_S:
            self._seconds.append(sample)
        self._tokens = tokens_per_second
        self._waits = waits

    def take_fresh(self) -> list[tuple[int, str]]:
        fresh, self._fresh = list(self._fresh), deque(maxlen=MINUTES_MAX)
        return fresh

    def restore(self, points: Sequence[tuple[int, str]]) -> None:
        known = {minute for minute, _ in self._points}
        old = [(minute, _decode(text)) for minute, text in points if minute not in known]
        merged = sorted([*old, *self._points], key=lambda one: one[0])
        self._points = deque(merged, maxlen=MINUTES_MAX)

    def history(self, priorities: Sequence[str], since: int) -> DayHistory:
        """Return the points since a minute as columns of equal length, the oldest first."""
        points = list(self._points)
        points = points[bisect_left(points, since, key=lambda one: one[0]) :]
        values = [point for _, point in points]
        waits = {name: [one.waits.get(name, (None, None)) for one in values] for name in priorities}
        return DayHistory(
            priorities=list(priorities),
            step_seconds=MINUTE_S,
            at=[minute * MINUTE_S for minute, _ in points],
            depth={name: [one.depth.get(name, 0) for one in values] for name in priorities},
            processing=[one.processing for one in values],
            served=[one.served for one in values],
            rejected=[one.rejected for one in values],
            wait_p50_seconds=[one.wait_p50_seconds for one in values],
            wait_p95_seconds=[one.wait_p95_seconds for one in values],
            tokens_per_second=[one.tokens_per_second for one in values],
            wait_p50_seconds_by_priority={
                name: [half for half, _ in column] for name, column in waits.items()
            },
            wait_p95_seconds_by_priority={
                name: [most for _, most in column] for name, column in waits.items()
            },
        )

    def _close(self) -> None:
        seconds, self._seconds = self._seconds, []
        names = {name for one in seconds for name in one.depth}
        halves = [one.wait_p50_seconds for one in seconds if one.wait_p50_seconds is not None]
        longest = [one.wait_p95_seconds for one in seconds if one.wait_p95_seconds is not None]
        point = MinutePoint(
            depth={name: _mean(one.depth.get(name, 0) for one in seconds) for name in names},
            processing=_mean(one.processing for one in seconds),
            served=sum(one.served for one in seconds),
            rejected=sum(one.rejected for one in seconds),
            wait_p50_seconds=_mean(halves) if halves else None,
            wait_p95_seconds=max(longest, default=None),
            tokens_per_second=self._tokens,
            waits=self._recent_waits(),
        )
        for points in (self._points, self._fresh):
            while points and points[-1][0] >= self._minute:  # the clock was set back
                points.pop()
        self._points.append((self._minute, point))
        self._fresh.append((self._minute, msgspec.json.encode(point).decode()))

    def _recent_waits(self) -> dict[str, tuple[float, float]]:
        """Return the quantiles of what was counted since this was last called."""
        before, self._waits_before = self._waits_before or {}, self._waits
        found: dict[str, tuple[float, float]] = {}
        for priority, counts in self._waits.items():
            old = before.get(priority, [0] * len(counts))
            recent = [now - then for now, then in zip(counts, old, strict=True)]
            half, most = (quantile(recent, self._bounds_s, share) for share in (0.5, 0.95))
            if half is not None and most is not None:
                found[priority] = (half, most)
        return found


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return round(sum(found) / len(found), 3)


_decode = msgspec.json.Decoder(MinutePoint).decode
