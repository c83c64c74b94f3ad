"""How fast nodes are, in the terms of a lane: what its requests usually take, and who is slower.

`Work` knows what a request of the lane takes beside reading its prompt, `Speed` by how much longer
than that it takes on one node: `x` = service / work, 1 being usual. An engine that runs several at
once is slower for each, so `x` is a line over the others beside it, by least squares.

Everything is measured in raw seconds. Were services divided by `x` before the mean is taken, the
mean and `x` would drift apart, each explaining the other. What is slow for everybody is part of
the mean; what is slow on one node is part of its `x`.
"""

from __future__ import annotations

from math import exp
from typing import Final

ANSWERS: Final = 50.0
"""So many answers make the mean of a lane."""
REST_S: Final = 1.0
"""What an answer takes beside its prompt before the first was measured."""
REST_MIN: Final = 0.1
"""Of a service: writing the answer takes a part of it, however long the prompt was."""
FORGETS: Final = 0.95
"""Of each measurement of a node, so much remains with the next: about twenty count."""
FORGETS_S: Final = 600.0
"""And one e-th of it after that time: a machine that was busy with something else is so no more."""
X_MIN: Final = 0.2
"""Of the mean: how far below it the line may be read."""
TINY: Final = 1e-9


class Work:
    """What the requests of a lane take on its nodes, whichever these are."""

    def __init__(self) -> None:
        self.rest_s = REST_S  # beside reading the prompt
        self.service_s = REST_S  # in all
        self.length = 0.0  # the mean of the answers in tokens, as far as they are known
        self._answers = 0.0

    def add(self, service_s: float, reading_s: float, length: float) -> None:
        """Take a service; the length of its answer is negative where it is unknown."""
        if self._answers < ANSWERS:
            self._answers += 1.0
        rest_s = service_s - reading_s
        least_s = REST_MIN * service_s
        self.rest_s += ((rest_s if rest_s > least_s else least_s) - self.rest_s) / self._answers
        self.service_s += (service_s - self.service_s) / self._answers
        if length >= 0.0:
            self.length += (length - self.length) / self._answers

    def rest_of_s(self, length: float) -> float:
        """Return what an answer of that length takes; of unknown length where it is negative."""
        if length < 0.0 or self.length <= 0.0:
            return self.rest_s
        return self.rest_s * length / self.length


class Speed:
    """How long services take on one node of a lane, by how many others run beside them.

    >>> speed = Speed()
    >>> speed.add(service_s=2.0, work_s=1.0, beside=0.0, now_s=0.0)
    >>> speed.x(0.0), speed.x(3.0)
    (2.0, 2.0)
    >>> speed.add(service_s=6.0, work_s=2.0, beside=1.0, now_s=0.0)
    >>> round(speed.x(0.0), 6), round(speed.x(2.0), 6)
    (2.0, 4.0)
    """

    def __init__(self) -> None:
        # Sums over what was measured: how many, then weighted by work, which is what each says.
        self._answers = self._work = self._beside = self._squares = 0.0
        self._took = self._took_beside = 0.0
        self.measured_s = 0.0

    def add(self, service_s: float, work_s: float, beside: float, now_s: float) -> None:
        """Take a service that had so many others beside it."""
        kept = FORGETS * exp((self.measured_s - now_s) / FORGETS_S)
        self.measured_s = now_s
        self._answers = kept * self._answers + 1.0
        self._work = kept * self._work + work_s
        self._beside = kept * self._beside + work_s * beside
        self._squares = kept * self._squares + work_s * beside * beside
        self._took = kept * self._took + service_s
        self._took_beside = kept * self._took_beside + service_s * beside

    def x(self, beside: float) -> float:
        """Return service / work with so many others beside it."""
        mean = self.mean()
        mean_beside = self._beside / self._work
        variance = self._squares / self._work - mean_beside * mean_beside
        if variance <= TINY:
            return mean
        slope = (self._took_beside / self._work - mean * mean_beside) / variance
        if slope <= 0.0:
            return mean
        found, least = mean + slope * (beside - mean_beside), X_MIN * mean
        return found if found > least else least

    def mean(self) -> float:
        """Return service / work of what ran here lately."""
        return self._took / self._work

    def service_s(self) -> float:
        """Return what a request takes here in the mean."""
        return self._took / self._answers
