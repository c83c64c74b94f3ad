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

What may be left of a service is read off the last services of its size (`forebay.core.sizes`).
Where computing the prompt is most of a service, long prompts take much longer than short ones and
vary much less, so that it is known well when they end.

**Bound.** O(1) to add a measurement, O(log 100) to put it in order. The ends of c services are put
in order once in a twelfth of a mean service, in which c / 12 others begin to wait where the queue
neither grows nor shrinks: O(log c) for each of them. Never a walk over what waits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, Final

from forebay.core.recent import Recent
from forebay.core.sizes import SERVICES_KNOWN, TOKENS_MAX, Sizes
from forebay.core.snapshot import RECENT

if TYPE_CHECKING:
    from forebay.core.records import Entry

RESIDUALS_MAX: Final = 64
"""Up to this many running entries are looked at one by one; more are taken as evenly spread."""
FRESH: Final = 1 / 12
"""Their ends are worked out anew after this share of a mean service: about as many have ended."""
FEW: Final = 8
"""The ends of so few are worked out each time. Of more, none is promised sooner than the next of
evenly spread ones: what is said of the last moments of a service is as often wrong as right."""
MEDIAN: Final = 2 / 3
"""Of events that come at random, the median of the next is so much of their mean distance away."""
POINTS: Final = 3
"""What is left of a service is described by so many of its quantiles."""
PARTS: Final = 6 * POINTS
"""These are, in eighteenths, 3, 9 and 15 of one service, 5, 11 and 17 of the next, 1, 7 and 13."""
FORGETS: Final = 0.995
"""Of what services took, so much remains with the next: a few hundred count."""
SLOWNESS_MAX: Final = 20.0
"""Beyond that, and below a twentieth, what is expected has to follow first."""


class ServiceTimes:
    """The last hundred service times of a lane, by size of prompt, and the lengths of its answers.

    While nobody waits, nobody asks, and a service is only noted: the last hundred are worked
    through when somebody does.
    """

    __slots__ = (
        "_ends_made_s", "_ends_of", "_ends_s", "_expected_s", "_noted", "_outputs", "_recent",
        "_relative", "_served_s", "by_size",
    )  # fmt: skip

    def __init__(self, ranks: int) -> None:
        self._noted: deque[tuple[float, int]] = deque(maxlen=RECENT)
        self._recent = Recent(RECENT)
        self._relative = Recent(RECENT)  # to what was expected
        self._served_s = self._expected_s = 0.0  # of the last few hundred
        self.by_size = Sizes(ranks)  # without what has only been noted
        self._outputs = Recent(RECENT)
        self._ends_s: list[float] = []  # of what runs
        self._ends_made_s = 0.0
        self._ends_of = 0, 0  # how many ran then, in how many slots

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

    def free_s(self, index: int, slots: int, running: dict[str, Entry], now_s: float) -> float:
        """Return how long it is until slot number `index` frees up, the soonest being 0.

        `running` are the lane's own; slots that others hold are taken as evenly spread.
        """
        mean_s = self.mean_s() or 0.0
        count = len(running)
        if not count or count > RESIDUALS_MAX or slots > RESIDUALS_MAX:
            return mean_s * (index + MEDIAN) / slots
        is_few = count <= FEW
        fresh_s = 0.0 if is_few else FRESH * mean_s
        if now_s - self._ends_made_s >= fresh_s or self._ends_of != (count, slots):
            self._ends_made_s, self._ends_of = now_s, (count, slots)
            self._ends_s = self._ends(running, now_s)
            for other in range(slots - count):
                self._ends_s += [now_s + mean_s * (other + 0.5) / slots] * POINTS
            self._ends_s.sort()
        ends_s = self._ends_s
        past, last = bisect_right(ends_s, now_s), len(ends_s) - 1
        scale = len(ends_s) / (max(slots, count) + 1 - MEDIAN)
        left_s = ends_s[min(past + int(scale * (index + MEDIAN)), last)] - now_s
        services = self._recent.ordered()
        share = bisect_right(services, left_s) / len(services)
        left_s = ends_s[min(past + int(scale * (index / (1 + share / 2) + MEDIAN)), last)] - now_s
        soonest_s = 0.0 if is_few else mean_s * MEDIAN / slots
        return left_s if left_s > soonest_s else soonest_s

    def _ends(self, running: dict[str, Entry], now_s: float) -> list[float]:
        """Return when each of those that run may end, in equal shares.

        By the last services of its size; while these are few by those of all, as shares of what
        was expected of each.
        """
        relative, sizes, find = self._relative.ordered(), self.by_size, bisect_right
        ends_s: list[float] = []
        at = 3
        for entry in running.values():
            since_s = entry.since_s
            size = entry.size or sizes.of(entry.arrival.prompt_tokens)
            is_known = size.services.count >= SERVICES_KNOWN
            ordered = size.services.ordered() if is_known else relative
            scale = 1.0 if is_known else size.mean_s
            count = len(ordered)
            longer = find(ordered, (now_s - since_s) / scale) if scale > 0.0 else count
            if longer < count:
                left = count - longer
                ends_s.append(ordered[longer + left * at // PARTS] * scale + since_s)
                ends_s.append(ordered[longer + left * (at + 6) // PARTS] * scale + since_s)
                ends_s.append(ordered[longer + left * (at + 12) // PARTS] * scale + since_s)
                at = at + 2 if at < 5 else 1
            else:  # longer than anything seen: as long again, by rule of thumb
                ends_s += [now_s + max(size.mean_s, now_s - since_s) / 2] * POINTS
        return ends_s
