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

from forebay.core.sizes import TOKENS_MAX, Sizes
from forebay.core.snapshot import RECENT

if TYPE_CHECKING:
    from collections.abc import Sequence

RESIDUALS_MAX: Final = 8
"""Up to this many running entries are looked at one by one; more are taken as evenly spread."""
MEDIAN: Final = 2 / 3
"""Of events that come at random, the median of the next is so much of their mean distance away."""
POINTS: Final = 3
"""What is left of a service is described by its median, and by the medians of its outer thirds."""
FORGETS: Final = 0.995
"""Of what services took, so much remains with the next: a few hundred count."""
SLOWNESS_MAX: Final = 20.0
"""Beyond that, and below a twentieth, what is expected has to follow first."""
FEW: Final = 8
"""So many values are put in order one by one; of more, sorting the hundred anew is quicker."""


class Recent:
    """The last hundred values, in order of arrival and, on demand, in order of size.

    While nobody waits, nobody asks; then a value costs two appends. What has come and gone since
    the last question is put in order one by one, or all anew when it is much.
    """

    __slots__ = ("_arrived", "_came", "_changes", "_ordered", "_went", "count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self._arrived: deque[float] = deque()
        self._ordered: list[float] = []
        self._changes = 0  # since the order was last asked for
        self._came: list[float] = []  # in the first few of them
        self._went: list[float] = []

    def add(self, value: float) -> None:
        """Take one value; the oldest of more than `RECENT` leaves."""
        arrived, is_noted = self._arrived, self._changes < FEW
        self._changes += 1
        if self.count == RECENT:
            oldest = arrived.popleft()
            self.total -= oldest
            if is_noted:
                self._went.append(oldest)
        else:
            self.count += 1
        arrived.append(value)
        self.total += value
        if is_noted:
            self._came.append(value)

    def ordered(self) -> list[float]:
        """Return the values in order of size."""
        ordered = self._ordered
        if not self._changes:
            return ordered
        if self._changes > FEW:
            self._ordered = ordered = sorted(self._arrived)
        else:
            for value in self._came:
                insort(ordered, value)
            for value in self._went:
                del ordered[bisect_right(ordered, value) - 1]
        self._changes, self._came, self._went = 0, [], []
        return ordered


class ServiceTimes:
    """The last hundred service times of a lane, by size of prompt, and the lengths of its answers.

    While nobody waits, nobody asks, and a service is only noted: the last hundred are worked
    through when somebody does.
    """

    __slots__ = (
        "_expected_s", "_noted", "_outputs", "_recent", "_relative", "_served_s", "by_size",
    )  # fmt: skip

    def __init__(self, ranks: int) -> None:
        self._noted: deque[tuple[float, int]] = deque(maxlen=RECENT)
        self._recent = Recent()
        self._relative = Recent()  # to what was expected
        self._served_s = self._expected_s = 0.0  # of the last few hundred
        self.by_size = Sizes(ranks)  # without what has only been noted
        self._outputs = Recent()

    def add(self, service_s: float, prompt_tokens: int) -> None:
        self._noted.append((service_s, prompt_tokens))

    def add_output(self, tokens: int) -> None:
        self._outputs.add(min(tokens, TOKENS_MAX))

    def output_tokens(self, unmeasured: int) -> float:
        """Return the median length of an answer here."""
        ordered = self._outputs.ordered()
        return ordered[len(ordered) // 2] if ordered else unmeasured

    def sizes(self) -> Sizes:
        """Return what services take by the size of the prompt."""
        if self._noted:
            self._learn()
        return self.by_size

    def mean_s(self) -> float | None:
        """Return the mean service time, or None while nothing has been measured."""
        if self._noted:
            self._learn()
        recent = self._recent
        return recent.total / recent.count if recent.count else None

    def quantile_s(self, share: float) -> float | None:
        """Return what that share of the service times stays below, or None while unmeasured."""
        if self._noted:
            self._learn()
        ordered = self._recent.ordered()
        return ordered[int(share * (len(ordered) - 1))] if ordered else None

    def slowness(self) -> float:
        """Return how much longer services have taken of late than expected by their sizes."""
        if self._noted:
            self._learn()
        served_s, expected_s = self._served_s, self._expected_s
        if served_s * SLOWNESS_MAX <= expected_s:
            return 1.0 / SLOWNESS_MAX
        return served_s / expected_s if served_s < SLOWNESS_MAX * expected_s else SLOWNESS_MAX

    def _learn(self) -> None:
        """Work through the services that have been noted."""
        sizes = self.by_size
        for service_s, prompt_tokens in self._noted:
            expected_s = sizes.learn(prompt_tokens, service_s)
            self._recent.add(service_s)
            self._relative.add(service_s / expected_s if expected_s > 0.0 else 1.0)
            self._served_s = FORGETS * self._served_s + service_s
            self._expected_s = FORGETS * self._expected_s + expected_s
        self._noted.clear()

    def free_s(
        self, index: int, slots: int, running: Sequence[tuple[float, float]], mean_s: float
    ) -> float:
        """Return when the slot number `index` frees up, the soonest being 0.

        `running` says how long the lane's own entries have run, and what they were expected to
        take; slots that others hold are taken as evenly spread.
        """
        if not running or len(running) > RESIDUALS_MAX:
            return mean_s * (index + MEDIAN) / slots
        ends = self._residuals_s(running)
        for other in range(slots - len(running)):
            ends += [mean_s * (other + 0.5) / slots] * POINTS
        ends.sort()
        scale = len(ends) / (max(slots, len(running)) + 1 - MEDIAN)
        services = self._recent.ordered()
        share = bisect_right(services, ends[int(scale * (index + MEDIAN))]) / len(services)
        return ends[int(scale * (index / (1 + share / 2) + MEDIAN))]

    def _residuals_s(self, running: Sequence[tuple[float, float]]) -> list[float]:
        """Return what may be left of each service that has run this long, in equal shares."""
        ordered, find = self._relative.ordered(), bisect_right
        count = len(ordered)
        residuals: list[float] = []
        for seconds, expected_s in running:
            longer = find(ordered, seconds / expected_s) if expected_s > 0.0 else count
            if longer < count:
                left = count - longer
                residuals.append(ordered[longer + left // 6] * expected_s - seconds)
                residuals.append(ordered[longer + left // 2] * expected_s - seconds)
                residuals.append(ordered[longer + left * 5 // 6] * expected_s - seconds)
            else:  # longer than anything seen: as long again, by rule of thumb
                residuals += [max(expected_s, seconds) / 2] * POINTS
        return residuals
