"""The last minutes, second by second: what `hello` brought and what the snapshots have added.

Columns of a chart stand for whole steps of the gateway's own count of samples, so what has been
drawn stays as it is and only moves by whole columns: less to send over a slow line.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from forebay.sdk.status import LiveHello, LiveSnapshot

SECONDS_MAX = 900
STEPS_S = (1, 2, 5, 10, 15, 30, 60)
SHOWN_S = 300
"""What a chart shows at least, if it has a column for each step."""


class Second(NamedTuple):
    """How many waited, in all and at most in one priority, and were served."""

    waiting: int
    most: int
    served: int


class Timeline:
    """The last quarter of an hour."""

    def __init__(self) -> None:
        self._seconds: deque[Second] = deque(maxlen=SECONDS_MAX)
        self._newest = 0

    def begin(self, hello: LiveHello) -> None:
        """Take what the gateway remembers; what was known before is replaced."""
        past = hello.history
        depths = list(zip(*past.depth.values(), strict=False))
        served = [*[0] * len(depths), *past.served][-len(depths) :]
        self._seconds.clear()
        for depth, count in zip(depths, served, strict=False):
            self._seconds.append(Second(sum(depth), max(depth), count))
        self._newest = past.sample_number

    def add(self, snapshot: LiveSnapshot) -> None:
        """Take a snapshot's sample, unless it has been taken."""
        missed = min(SECONDS_MAX, snapshot.sample_number - self._newest - 1)
        if missed < 0:
            return
        if self._seconds:  # a slow reader misses some: the line stays where it was
            self._seconds.extend([self._seconds[-1]._replace(served=0)] * missed)
        depth = snapshot.sample.depth.values()
        self._seconds.append(Second(sum(depth), max(depth, default=0), snapshot.sample.served))
        self._newest = snapshot.sample_number

    @property
    def peak_by_priority(self) -> int:
        return max((second.most for second in self._seconds), default=0)

    def depth(self, columns: int) -> list[int]:
        """Return the greatest depth of each step, the newest last."""
        return [max(second.waiting for second in group) for group in self._groups(columns)]

    def served(self, columns: int) -> list[int]:
        """Return how many were served in each step, the newest last."""
        return [sum(second.served for second in group) for group in self._groups(columns)]

    def _groups(self, columns: int) -> list[list[Second]]:
        step_s = step(columns)
        groups: dict[int, list[Second]] = {}
        for place, second in enumerate(self._seconds, self._newest - len(self._seconds) + 1):
            groups.setdefault(place // step_s, []).append(second)
        return list(groups.values())[-columns:] if columns > 0 else []


def step(columns: int) -> int:
    """Return how many seconds a column stands for.

    >>> step(30), step(60), step(300), step(1)
    (10, 5, 1, 60)
    """
    return next((length for length in STEPS_S if length * columns >= SHOWN_S), STEPS_S[-1])
