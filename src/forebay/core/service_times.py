"""What requests of a lane take: the mean and quantiles of the last services, and by prompt size.

Requests of one application are alike: the same instructions make prompts of one size, and answers
are about as long. So each half octave of prompt tokens has a mean of its own, drawn to that of all
while few have been seen. Of the variance of service times in traces, 16 to 93 % is between sizes.

It does not say how long a service lasts that has run for a while: that was not worth its lines.
O(1) to add, amortized; asking changes nothing.
"""

from __future__ import annotations

from collections import deque
from math import frexp
from typing import Final

from forebay.core.snapshot import RECENT

TOKENS_MAX: Final = 1_099_511_627_776
"""No count that a client or a node claims is believed beyond this: sums must stay finite."""
HALF: Final = 0.7071
"""Where an octave is divided, as a mantissa between 1/2 and 1."""
MEMORY: Final = 100.0
"""A new service counts one part in so many at least."""
FEW: Final = 16
"""So few values are put in order with each that comes, more when an eighth of them is new."""
RENEWED: Final = 8


class Recent:
    """The last values of something that is measured, their sum, and lately their order."""

    def __init__(self, most: int) -> None:
        self.count = 0
        self.total = 0.0
        self.ordered: list[float] = []
        self._values: deque[float] = deque()
        self._most = most
        self._fresh = 0  # values that came since they were put in order

    def add(self, value: float) -> None:
        """Take one value; the oldest of more than `most` leaves."""
        values = self._values
        if self.count == self._most:
            self.total -= values.popleft()
        else:
            self.count += 1
        values.append(value)
        self.total += value
        self._fresh += 1
        if self._fresh * RENEWED >= self.count or self.count <= FEW:
            self._fresh = 0
            self.ordered = sorted(values)

    def quantile(self, share: float) -> float:
        """Return what that share of the values stays below; there must be a value."""
        return self.ordered[int(share * (len(self.ordered) - 1))]


def size_of(prompt_tokens: int) -> int:
    """Return the number of the half octave of a prompt."""
    tokens = prompt_tokens if prompt_tokens < TOKENS_MAX else TOKENS_MAX
    mantissa, octave = frexp(tokens + 1.0)
    return octave + octave + (mantissa > HALF)


class ServiceTimes:
    """The last hundred service times of a lane, the means by size, and the lengths of answers."""

    def __init__(self) -> None:
        self._recent = Recent(RECENT)
        self._outputs = Recent(RECENT)
        self.usual_s = 0.0  # what the last services took, of whatever size
        self.by_size_s: dict[int, float] = {}  # the same of each size that was seen
        self._seen: dict[int, float] = {}  # how many of each count

    def add(self, service_s: float, prompt_tokens: int) -> None:
        self._recent.add(service_s)
        if self._recent.count == 1:
            self.usual_s = service_s
        self.usual_s += (service_s - self.usual_s) / MEMORY
        size = size_of(prompt_tokens)
        mean_s = self.by_size_s.get(size, self.usual_s)
        seen = self._seen.get(size, 1.0)
        if seen < MEMORY:
            seen += 1.0
        self._seen[size] = seen
        self.by_size_s[size] = mean_s + (service_s - mean_s) / seen

    def add_output(self, tokens: int) -> None:
        self._outputs.add(tokens if tokens < TOKENS_MAX else TOKENS_MAX)

    def output_tokens(self, unmeasured: int, limit: int) -> float:
        """Return the median length of an answer here, or its limit if that is less; 0 is none."""
        ordered = self._outputs.ordered
        median = ordered[len(ordered) // 2] if ordered else float(unmeasured)
        return float(limit) if 0 < limit < median else median

    def mean_s(self) -> float | None:
        """Return the mean service time, or None while nothing has been measured."""
        recent = self._recent
        return recent.total / recent.count if recent.count else None

    def quantile_s(self, share: float) -> float | None:
        """Return what that share of the service times stays below, or None while unmeasured."""
        return self._recent.quantile(share) if self._recent.count else None

    def of_size_s(self, size: int) -> float:
        """Return what prompts of a size take; a size that was never seen takes what is usual."""
        return self.by_size_s.get(size, self.usual_s)
