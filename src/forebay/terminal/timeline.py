"""The last minutes, second by second: what `hello` brought and what the snapshots have added.

Columns of a chart stand for whole steps of the gateway's own count of samples, so what has been
drawn stays as it is and only moves by whole columns: less to send over a slow line.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.terminal.values import Hello, Snapshot

SECONDS_MAX = 900
STEPS_S = (1, 2, 5, 10, 15, 30, 60)
SHOWN_S = 300
"""What a chart shows at least, if it has a column for each step."""


class Timeline:
    """Depth and served of the last quarter of an hour."""

    def __init__(self) -> None:
        self._depth: deque[float] = deque(maxlen=SECONDS_MAX)
        self._served: deque[float] = deque(maxlen=SECONDS_MAX)
        self._newest = 0
        self._deepest: deque[float] = deque(maxlen=SECONDS_MAX)
        """Of any one priority."""

    def begin(self, hello: Hello) -> None:
        """Take what the gateway remembers; what was known before is replaced."""
        past = hello.history
        columns = list(past.depth.values())
        self._depth.clear()
        self._depth.extend(map(sum, zip(*columns, strict=False)))
        self._served.clear()
        self._served.extend(past.served[-len(self._depth) :] if columns else ())
        self._newest = past.sample_number
        self._deepest.clear()
        self._deepest.extend(map(max, zip(*columns, strict=False)))

    def add(self, snapshot: Snapshot) -> None:
        """Take a snapshot's sample, unless it has been taken."""
        if snapshot.sample_number <= self._newest:
            return
        missed = min(SECONDS_MAX, snapshot.sample_number - self._newest - 1)
        depth = float(sum(snapshot.sample.depth.values()))
        if len(self._depth):  # a slow reader misses some: the line stays where it was
            self._depth.extend([self._depth[-1]] * missed)
            self._served.extend([0.0] * missed)
        self._depth.append(depth)
        self._served.append(float(snapshot.sample.served))
        self._newest = snapshot.sample_number
        self._deepest.append(float(max(snapshot.sample.depth.values(), default=0)))

    @property
    def peak_by_priority(self) -> float:
        """Return the most that waited in any one priority."""
        return max(self._deepest, default=0.0)

    def depth(self, columns: int) -> list[float]:
        """Return the greatest depth of each step, the newest last."""
        return [max(group) for group in self._groups(self._depth, columns)]

    def served(self, columns: int) -> list[float]:
        """Return how many were served in each step, the newest last."""
        return [sum(group) for group in self._groups(self._served, columns)]

    def _groups(self, samples: Iterable[float], columns: int) -> list[list[float]]:
        step_s = step(columns)
        known = list(samples)
        groups: dict[int, list[float]] = {}
        for place, value in enumerate(known, self._newest - len(known) + 1):
            groups.setdefault(place // step_s, []).append(value)
        return list(groups.values())[-columns:] if columns > 0 else []


def step(columns: int) -> int:
    """Return how many seconds a column stands for.

    >>> step(30), step(60), step(300), step(1)
    (10, 5, 1, 60)
    """
    return next((length for length in STEPS_S if length * columns >= SHOWN_S), STEPS_S[-1])
