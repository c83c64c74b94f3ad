"""The retry budget: how much load our own retries may add when nodes fail.

Retries multiply load exactly when there is the least capacity, and layers of retrying multiply
with each other. A fixed ratio bounds the amplification: over any window of 10 s at most `ratio`
of the requests are retries, plus a floor so that a quiet gateway may retry at all. With the
default of 0.1 three layers above us see at most 1.1 times their own load from this one.

Retries after whole answers of 5xx may spend half of it (`AFTER_ANSWER`): one client that sends
nothing but bad requests must not use up what others need when a connection breaks.
"""

from collections import deque
from typing import Final

WINDOW_S: Final = 10.0
FLOOR: Final = 10
"""Retries that are always allowed per window; DESIGN 4.1."""
AFTER_ANSWER: Final = 0.5
"""The share of the budget for requests that a node has answered, though with an error."""


class RetryBudget:
    """Counts requests and retries of the last ten seconds, in buckets of one second."""

    __slots__ = (
        "_buckets", "_requests", "_requests_now", "_retries", "_retries_now", "_second",
        "attempts_max", "ratio", "total",
    )  # fmt: skip

    def __init__(self, ratio: float, attempts_max: int = 3) -> None:
        self.ratio = ratio
        self.attempts_max = attempts_max
        """Of one request."""
        self.total = 0
        """Retries since the start."""
        self._buckets: deque[tuple[int, int, int]] = deque()  # second, requests, retries
        self._requests = 0  # of the whole window, the present second included
        self._retries = 0
        self._second = 0
        self._requests_now = 0  # of the present second
        self._retries_now = 0

    def note_request(self, now_s: float) -> None:
        """Count a request, on which retries may be spent."""
        if now_s >= self._second + 1:
            self._move_on(now_s)
        self._requests_now += 1
        self._requests += 1

    def may_retry(self, failures: int, now_s: float, share: float = 1.0) -> bool:
        """Spend a retry if attempts and that share of the budget allow one, and count it."""
        if not self.may_send_again(failures, now_s, share):
            return False
        self.total += 1
        return True

    def may_send_again(self, failures: int, now_s: float, share: float = 1.0) -> bool:
        """Spend an attempt; not counted where a node merely closed a connection it had kept."""
        return failures < self.attempts_max and self.take(now_s, share)

    def take(self, now_s: float, share: float = 1.0) -> bool:
        """Spend one retry if the budget has one, or that share of it."""
        self._move_on(now_s)
        if self._retries + 1 > share * max(FLOOR, self.ratio * self._requests):
            return False
        self._retries_now += 1
        self._retries += 1
        return True

    def _move_on(self, now_s: float) -> None:
        """Begin another bucket in another second, and forget those that have left the window."""
        second = int(now_s)
        if second <= self._second:
            return
        buckets = self._buckets
        buckets.append((self._second, self._requests_now, self._retries_now))
        self._second, self._requests_now, self._retries_now = second, 0, 0
        while buckets and buckets[0][0] <= now_s - WINDOW_S:
            _, requests, retries = buckets.popleft()
            self._requests -= requests
            self._retries -= retries
