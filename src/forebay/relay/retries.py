"""The retry budget: how much load our own retries may add when nodes fail.

Retries multiply load exactly when there is the least capacity, and layers of retrying multiply
with each other. A fixed ratio bounds the amplification: over any window of 10 s at most `ratio`
of the requests are retries, plus a floor so that a quiet gateway may retry at all. With the
default of 0.1 three layers above us see at most 1.1 times their own load from this one.
"""

from collections import deque

WINDOW_S = 10.0
FLOOR = 10
"""Retries that are always allowed per window; DESIGN 4.1."""


class RetryBudget:
    """Counts requests and retries of the last ten seconds, in buckets of one second."""

    __slots__ = ("_buckets", "_requests", "_retries", "ratio")

    def __init__(self, ratio: float) -> None:
        self.ratio = ratio
        self._buckets: deque[list[float]] = deque()  # [second, requests, retries]
        self._requests = 0.0
        self._retries = 0.0

    def note_request(self, now_s: float) -> None:
        """Count a request, on which retries may be spent."""
        self._bucket(now_s)[1] += 1
        self._requests += 1

    def take(self, now_s: float) -> bool:
        """Spend one retry if the budget has one."""
        bucket = self._bucket(now_s)
        if self._retries + 1 > max(FLOOR, self.ratio * self._requests):
            return False
        bucket[2] += 1
        self._retries += 1
        return True

    def _bucket(self, now_s: float) -> list[float]:
        second = int(now_s)
        buckets = self._buckets
        if buckets and buckets[-1][0] >= second:
            return buckets[-1]
        while buckets and buckets[0][0] <= now_s - WINDOW_S:
            _, requests, retries = buckets.popleft()
            self._requests -= requests
            self._retries -= retries
        buckets.append([second, 0.0, 0.0])
        return buckets[-1]
