"""How long the wait is: from measured service times, checked against what really happened.

**Theory.** A lane with c slots and a entries ahead: the slots free up at r_1 <= ... <= r_c, the
residual times of what runs, each conditional on how long it has run already. Taking those ahead
one by one into the slot that frees first ("pop-add") with a typical service time m gives the wait
`r_(a mod c) + (a div c) * m`. The spread adds up over independent services, hence
p90 = mean + 1.28 * sqrt(variance). Both are then multiplied by a factor that is learned online so
that half, and nine tenths, of the real waits stay below what was promised (stochastic quantile
tracking: a step up of q when the promise was broken, a step down of 1 - q when it was kept).

**Bound.** O(1) to add a measurement, O(log 100) to put it in order, O(min(c, 16)) to estimate:
never a walk over what waits. The header's number is simpler on purpose: waiting ahead x mean
service / slots, of a mean to three significant digits: three services of 10.0004 s are 30 s to
people, who see it in whole seconds, rounded up.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from math import exp, sqrt
from typing import TYPE_CHECKING, Final

from forebay.core.snapshot import RECENT

if TYPE_CHECKING:
    from collections.abc import Sequence

TOKENS_MAX: Final = 1_099_511_627_776
"""No count that a client or a node claims is believed beyond this: sums must stay finite."""
RESIDUALS_MAX: Final = 16
"""Up to this many running entries are looked at one by one; more are taken as evenly spread."""
Z90: Final = 1.2816
FEW: Final = 8
"""So many values are put in order one by one; of more, sorting the hundred anew is quicker."""
STEP = 0.05
"""How fast the factors learn: settled after a few dozen waits, calm after that."""
BROKEN_50, KEPT_50 = exp(STEP * 0.5), exp(-STEP * 0.5)
BROKEN_90, KEPT_90 = exp(STEP * 0.9), exp(-STEP * 0.1)
FACTOR_MAX: Final = 20.0
"""No promise is ever corrected by more than this, up or down."""


class Recent:
    """The last hundred values, in order of arrival and, when somebody asks, in order of size.

    While nobody waits, nobody asks; then a value costs two appends. What has come and gone since
    the last question is put in order one by one, or all anew when it is much.
    """

    __slots__ = ("_arrived", "_came", "_ordered", "_went", "squares", "total")

    def __init__(self) -> None:
        self._arrived: deque[float] = deque()
        self._ordered: list[float] = []
        self._came: list[float] = []  # since the order was last asked for
        self._went: list[float] = []
        self.total = 0.0
        self.squares = 0.0

    def __len__(self) -> int:
        return len(self._arrived)

    def add(self, value: float) -> None:
        """Take one value; the oldest of more than `RECENT` leaves."""
        arrived = self._arrived
        if len(arrived) == RECENT:
            oldest = arrived.popleft()
            self.total -= oldest
            self.squares -= oldest * oldest
            if len(self._came) < FEW:
                self._went.append(oldest)
        arrived.append(value)
        if len(self._came) < FEW:
            self._came.append(value)
        self.total += value
        self.squares += value * value

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
    """The last hundred service times of a lane, and how honest its promises were."""

    __slots__ = ("_factor50", "_factor90", "_outputs", "_recent")

    def __init__(self) -> None:
        self._recent = Recent()
        self._outputs = Recent()
        self._factor50 = 1.0
        self._factor90 = 1.0

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
        return recent.total / len(recent) if recent else None

    def quantile_s(self, share: float) -> float | None:
        """Return what that share of the service times stays below, or None while unmeasured."""
        ordered = self._recent.ordered()
        return ordered[int(share * (len(ordered) - 1))] if ordered else None

    def wait_s(
        self, ahead: int, slots: int, elapsed_s: Sequence[float]
    ) -> tuple[float, float, float] | None:
        """Return p50, p90 and the header's number for the wait behind `ahead` entries.

        `elapsed_s` says how long the lane's own entries have run; slots that others hold are taken
        as evenly spread. None while nothing has been measured.
        """
        recent = self._recent
        count = len(recent)
        if not count:
            return None
        mean_s = recent.total / count
        slots = slots or 1
        p50_s = self._free_s(ahead % slots, slots, elapsed_s, mean_s) + ahead // slots * mean_s
        variance = recent.squares / count - mean_s * mean_s
        # One residual's own spread never vanishes; those ahead add theirs, c at a time.
        spread_s = sqrt(variance * (slots + ahead)) / slots if variance > 0.0 else 0.0
        p90_s = (p50_s + Z90 * max(spread_s, 0.05 * mean_s)) * self._factor90
        p50_s *= self._factor50
        header_s = round(
            ahead * float(f"{mean_s:.3g}") / slots, 6
        )  # 10 x 1.1 is 11, not a bit more
        return p50_s, p90_s if p90_s > p50_s else p50_s, header_s

    def learn(self, p50_s: float, p90_s: float, waited_s: float) -> None:
        """Compare what was promised with what happened."""
        factor = self._factor50 * (BROKEN_50 if waited_s > p50_s else KEPT_50)
        if 1 / FACTOR_MAX < factor < FACTOR_MAX:
            self._factor50 = factor
        factor = self._factor90 * (BROKEN_90 if waited_s > p90_s else KEPT_90)
        if 1 / FACTOR_MAX < factor < FACTOR_MAX:
            self._factor90 = factor

    def _free_s(self, index: int, slots: int, elapsed_s: Sequence[float], mean_s: float) -> float:
        """Return when the slot number `index` frees up, the soonest being 0."""
        if not elapsed_s or slots > RESIDUALS_MAX:
            return mean_s * (index + 0.5) / slots
        residuals = self._residuals_s(elapsed_s, mean_s)
        residuals += [mean_s * (other + 0.5) / slots for other in range(slots - len(residuals))]
        residuals.sort()
        return residuals[index]

    def _residuals_s(self, elapsed_s: Sequence[float], mean_s: float) -> list[float]:
        """Return the median of what is left of each service that has run this long."""
        ordered = self._recent.ordered()
        count = len(ordered)
        residuals: list[float] = []
        for seconds in elapsed_s:
            longer = bisect_right(ordered, seconds)
            if longer < count:
                residuals.append(ordered[(longer + count) // 2] - seconds)
            else:  # longer than anything seen: as long again, by rule of thumb
                residuals.append(max(mean_s, seconds) / 2)
        return residuals
