"""What is counted: plain integers on the hot path, read by whoever shows them.

A label lookup in a metrics library costs more than admitting the request; so outcomes are counted
in dicts of integers, durations in lists of buckets, and `metrics.py` turns them into Prometheus'
text when someone asks.
"""

from __future__ import annotations

from bisect import bisect_left
from math import inf
from typing import TYPE_CHECKING, Final

from forebay.relay.relay import Observer

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.core import Arrived
    from forebay.gateway.hot.ended_stream import EndedStream
    from forebay.relay.exchange import Exchange

BUCKETS_S: Final[tuple[float, ...]] = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    120.0, 300.0, 600.0,
)  # fmt: skip
"""From a direct answer of a small model to the longest run that the defaults allow."""


class Histogram:
    """Counts by bucket, and a sum."""

    __slots__ = ("_above_s", "_at", "_upto_s", "counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.total = 0.0
        self._at = 0  # the bucket of the last one, and its bounds
        self._above_s, self._upto_s = -inf, BUCKETS_S[0]

    def add(self, seconds: float) -> None:
        """Count one duration; most are much like the one before."""
        if not self._above_s < seconds <= self._upto_s:
            self._at = at = bisect_left(BUCKETS_S, seconds)
            self._above_s = BUCKETS_S[at - 1] if at else -inf
            self._upto_s = BUCKETS_S[at] if at < len(BUCKETS_S) else inf
        self.counts[self._at] += 1
        self.total += seconds


class Ends:
    """The ends of one kind: a route, a priority and an outcome."""

    __slots__ = ("count", "outcome", "priority", "route", "waits")

    def __init__(self, route: str, priority: str, outcome: str, waits: Histogram) -> None:
        self.route = route
        self.priority = priority
        self.outcome = outcome
        self.waits = waits
        self.count = 0


class Accounting(Observer):
    """The counters of the gateway; `Relay` tells it of every end."""

    def __init__(self, now_s: Callable[[], float], stream: EndedStream) -> None:
        self._now_s = now_s
        self._stream = stream
        self._refused: dict[tuple[str, str], int] = {}  # (route, code)
        self._ends: dict[tuple[str, str, str], Ends] = {}  # (route, priority, outcome)
        self._last = Ends("", "", "", Histogram())  # most are of the same kind as the one before
        self.waits: dict[tuple[str, str], Histogram] = {}  # (priority, outcome)
        self.first_bytes = Histogram()
        self.runs = Histogram()
        self.estimate_errors = Histogram()
        self.prompt_tokens = 0
        self.output_tokens = 0

    @property
    def requests(self) -> dict[tuple[str, str], int]:
        """How many requests ended, by route and outcome."""
        counts = dict(self._refused)
        for ends in self._ends.values():
            key = (ends.route, ends.outcome)
            counts[key] = counts.get(key, 0) + ends.count
        return counts

    @property
    def bodies_refused(self) -> int:
        """How many were refused because no memory was free for their bodies."""
        return sum(n for (_, code), n in self._refused.items() if code == "queue_full")

    def ended(self, exchange: Exchange, outcome: str) -> None:
        """Count one request at its end."""
        call, now_s = exchange.call, self._now_s()
        route, priority, ends = call.route, call.arrival.priority, self._last
        if ends.outcome is not outcome or ends.route is not route or ends.priority is not priority:
            ends = self._last = self._ends_of(route, priority, outcome)
        ends.count += 1
        ends.waits.add(exchange.waited_s)
        attempt = exchange.attempt
        if attempt is not None and attempt.first_byte_s:
            self.first_bytes.add(attempt.first_byte_s - attempt.started_s)
            self.runs.add(now_s - attempt.started_s)
        if exchange.predicted_s is not None:
            self.estimate_errors.add(abs(exchange.waited_s - exchange.predicted_s))
        if exchange.output_tokens > 0:
            self.output_tokens += exchange.output_tokens
        if exchange.prompt_tokens > 0:
            self.prompt_tokens += exchange.prompt_tokens
        self._stream.note(exchange, route, outcome, now_s)

    def refused(self, route: str, code: str, arrival: Arrived | None = None) -> None:
        """Count a request that never reached the queue; `arrival` says who asked, if known."""
        self._refused[route, code] = self._refused.get((route, code), 0) + 1
        self._stream.note_refusal(route, code, arrival, self._now_s())

    def _ends_of(self, route: str, priority: str, outcome: str) -> Ends:
        ends = self._ends.get((route, priority, outcome))
        if ends is None:
            waits = self.waits.get((priority, outcome))
            if waits is None:
                waits = self.waits[priority, outcome] = Histogram()
            ends = Ends(route, priority, outcome, waits)
            self._ends[route, priority, outcome] = ends
        return ends
