"""Service times of a lane: the basis of every estimated wait.

The header's number is simple on purpose: waiting ahead x mean service / slots, of a mean to three
significant digits: three services of 10.0004 s are 30 s to people, who see it in whole seconds,
rounded up. How the finer estimate goes on: `forebay.core.waits`.

**When a slot is free.** With a entries ahead and c slots, (a div c) rounds of a mean service pass,
then the end number k = a mod c of what runs, from 0. Each residual time is random, given how long
the service has run already, and the k-th end of c is not the k-th of their medians: the first of
many comes long before the median of any. By the time t, sum F_i(t) of them have ended; the median
of the k-th end is where that sum is `(k + 2/3) * c / (c + 1/3)`: the median of a single one where
c = 1, and of evenly spread ends where c is large. Who takes a slot that is freed may end before t,
too: of the k ends before, about 1 in `2 / share of services shorter than t` is such a second one.

**Bound.** O(1) to add a measurement, O(log 100) to put it in order, O(min(c, 8)) to estimate:
never a walk over what waits.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from typing import TYPE_CHECKING, Final

from forebay.core.snapshot import RECENT

if TYPE_CHECKING:
    from collections.abc import Sequence

TOKENS_MAX: Final = 1_099_511_627_776
"""No count that a client or a node claims is believed beyond this: sums must stay finite."""
RESIDUALS_MAX: Final = 8
"""Up to this many running entries are looked at one by one; more are taken as evenly spread."""
MEDIAN: Final = 2 / 3
"""Of events that come at random, the median of the next is so much of their mean distance away."""
POINTS: Final = 3
"""What is left of a service is described by its median, and by the medians of its outer thirds."""
FEW: Final = 8
"""So many values are put in order one by one; of more, sorting the hundred anew is quicker."""


class Recent:
    """The last hundred values, in order of arrival and, on demand, in order of size.

    While nobody waits, nobody asks; then a value costs two appends. What has come and gone since
    the last question is put in order one by one, or all anew when it is much.
    """

    __slots__ = ("_arrived", "_came", "_ordered", "_went", "total")

    def __init__(self) -> None:
        self._arrived: deque[float] = deque()
        self._ordered: list[float] = []
        self._came: list[float] = []  # since the order was last asked for
        self._went: list[float] = []
        self.total = 0.0

    def __len__(self) -> int:
        return len(self._arrived)

    def add(self, value: float) -> None:
        """Take one value; the oldest of more than `RECENT` leaves."""
        arrived = self._arrived
        if len(arrived) == RECENT:
            oldest = arrived.popleft()
            self.total -= oldest
            if len(self._came) < FEW:
                self._went.append(oldest)
        arrived.append(value)
        if len(self._came) < FEW:
            self._came.append(value)
        self.total += value

    def ordered(self) -> list[float]:
        """Return the values in order of size."""
        came, ordered = self._came, self._ordered
        if not came:
            return ordered
        if len(came) == FEW:
            self._ordered = ordered = sorted(self._arrived)
        else:
            for value in came:
                insort(ordered, value)
            for value in self._went:
                del ordered[bisect_right(ordered, value) - 1]
        self._came, self._went = [], []
        return ordered


class ServiceTimes:
    """The last hundred service times of a lane, and the lengths of its answers."""

    __slots__ = ("_outputs", "_recent")

    def __init__(self) -> None:
        self._recent = Recent()
        self._outputs = Recent()

    def add(self, service_s: float) -> None:
        self._recent.add(service_s)

    def add_output(self, tokens: int) -> None:
        self._outputs.add(min(tokens, TOKENS_MAX))

    def output_tokens(self, unmeasured: int) -> float:
        """Return the median length of an answer here."""
        ordered = self._outputs.ordered()
        return ordered[len(ordered) // 2] if ordered else unmeasured

    def mean_s(self) -> float | None:
        """Return the mean service time, or None while nothing has been measured."""
        recent = self._recent
        count = len(recent)
        return recent.total / count if count else None

    def quantile_s(self, share: float) -> float | None:
        """Return what that share of the service times stays below, or None while unmeasured."""
        ordered = self._recent.ordered()
        return ordered[int(share * (len(ordered) - 1))] if ordered else None

    def free_s(self, index: int, slots: int, elapsed_s: Sequence[float], mean_s: float) -> float:
        """Return when the slot number `index` frees up, the soonest being 0.

        `elapsed_s` says how long the lane's own entries have run; slots that others hold are taken
        as evenly spread.
        """
        if not elapsed_s or len(elapsed_s) > RESIDUALS_MAX:
            return mean_s * (index + MEDIAN) / slots
        ends = self._residuals_s(elapsed_s, mean_s)
        for other in range(slots - len(elapsed_s)):
            ends += [mean_s * (other + 0.5) / slots] * POINTS
        ends.sort()
        scale = len(ends) / (max(slots, len(elapsed_s)) + 1 - MEDIAN)
        services = self._recent.ordered()
        share = bisect_right(services, ends[int(scale * (index + MEDIAN))]) / len(services)
        return ends[int(scale * (index / (1 + share / 2) + MEDIAN))]

    def _residuals_s(self, elapsed_s: Sequence[float], mean_s: float) -> list[float]:
        """Return what may be left of each service that has run this long, in equal shares."""
        ordered, find = self._recent.ordered(), bisect_right
        count = len(ordered)
        residuals: list[float] = []
        for seconds in elapsed_s:
            longer = find(ordered, seconds)
            if longer < count:
                left = count - longer
                residuals.append(ordered[longer + left // 6] - seconds)
                residuals.append(ordered[longer + left // 2] - seconds)
                residuals.append(ordered[longer + left * 5 // 6] - seconds)
            else:  # longer than anything seen: as long again, by rule of thumb
                residuals += [max(mean_s, seconds) / 2] * POINTS
        return residuals
