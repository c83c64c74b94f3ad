"""What requests take by the size of their prompts, and what those that wait will take.

**Theory.** Requests of one application are alike: the same instructions make prompts of one size,
and answers are about as long. So the size of a prompt says more than what computing it takes, and
that not along a line: of the variance of service times in traces, 16 to 93 % is between prompts of
different half octaves, and 5 to 54 % along a line over their tokens. Where one application sends a
burst, what waits differs from what was served before, and a mean of the latter is off by half.

Each half octave has the mean of its last services, drawn to that of all while they are few. What
waits is kept as a sum of these means, by class, and follows them: O(1) for each that joins, leaves
or is served. A node that has become slower is no matter of sizes: `ServiceTimes.slowness` and
`forebay.core.pace` measure it over all sizes together.
"""

from __future__ import annotations

from math import frexp
from typing import Final

from forebay.core.recent import Recent

TOKENS_MAX: Final = 1_099_511_627_776
"""No count that a client or a node claims is believed beyond this: sums must stay finite."""
HALF: Final = 0.7071
"""Where an octave is divided, as a mantissa between 1/2 and 1."""
DOUBT: Final = 1.0
"""So many services at the mean of all are taken as seen before the first of a size."""
MEMORY: Final = 100.0
"""A new service counts one part in so many at least."""
SERVICES: Final = 32
"""So many services of each size are kept, for what may be left of those that run."""
SERVICES_KNOWN: Final = 8
"""From so many on, they say more than those of all sizes."""


class Size:
    """Prompts of one half octave of tokens."""

    __slots__ = ("mean_s", "seen", "services", "waiting", "waits")

    def __init__(self, mean_s: float, ranks: int) -> None:
        self.mean_s = mean_s
        self.seen = DOUBT
        self.services = Recent(SERVICES)
        self.waiting = [0] * ranks  # by class
        self.waits = 0  # in all


class Sizes:
    """The sizes of one lane, and what waits there of each."""

    __slots__ = ("_sizes", "counted", "usual_s", "waiting_s")

    def __init__(self, ranks: int) -> None:
        self.counted = [0] * ranks  # that wait and have a size, by class
        self.waiting_s = [0.0] * ranks  # what these will take
        self.usual_s = 0.0  # what the last services took, of whatever size; 0 before the first
        self._sizes: dict[int, Size] = {}

    def of(self, prompt_tokens: int) -> Size:
        """Return the size of a prompt; a new one takes what is usual."""
        tokens = prompt_tokens if prompt_tokens < TOKENS_MAX else TOKENS_MAX
        mantissa, octave = frexp(tokens + 1.0)
        half = octave + octave + (mantissa > HALF)
        size = self._sizes.get(half)
        if size is None:
            size = self._sizes[half] = Size(self.usual_s, len(self.counted))
        return size

    def join(self, size: Size, rank: int) -> None:
        """Count one that begins to wait."""
        size.waiting[rank] += 1
        size.waits += 1
        self.counted[rank] += 1
        self.waiting_s[rank] += size.mean_s

    def leave(self, size: Size, rank: int) -> None:
        """Count one that no longer waits."""
        size.waiting[rank] -= 1
        size.waits -= 1
        self.counted[rank] -= 1
        if self.counted[rank]:
            self.waiting_s[rank] -= size.mean_s
        else:  # no sum of many differences is exactly zero
            self.waiting_s[rank] = 0.0

    def learn(self, prompt_tokens: int, service_s: float) -> float:
        """Take the time of a service, for what waits as well; return what its size takes now."""
        size = self.of(prompt_tokens)
        if self.usual_s > 0.0:
            self.usual_s += (service_s - self.usual_s) / MEMORY
        else:  # the first of all
            self.usual_s = service_s
            size.seen = 0.0
        if size.seen < MEMORY:
            size.seen += 1.0
        size.services.add(service_s)
        change_s = (service_s - size.mean_s) / size.seen
        size.mean_s += change_s
        if size.waits:
            for rank, waiting in enumerate(size.waiting):
                self.waiting_s[rank] += change_s * waiting
        return size.mean_s

    def each_waiting_s(self, rank: int, mine: Size | None) -> float:
        """Return what one will take that waits in a class or above it, on average.

        Who asks, and is counted among them as `mine`, is left out.
        """
        count, total_s = 0, 0.0
        if mine is not None:
            count, total_s = -1, -mine.mean_s
        for at in range(rank + 1):
            count += self.counted[at]
            total_s += self.waiting_s[at]
        return total_s / count if count > 0 and total_s > 0.0 else self.usual_s
