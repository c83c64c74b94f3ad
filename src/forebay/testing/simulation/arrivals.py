"""When a client sends: open processes that do not care about answers, and a closed one that does.

An open process is a stream of times, drawn one after the other. `Backlog` has no times of its own:
it keeps a number of requests unfinished and sends the next when one ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from forebay.testing.simulation.distributions import Always, Distribution

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random


@dataclass(frozen=True)
class Poisson:
    """Independent arrivals at a steady rate."""

    rate_per_s: float
    start_s: float = 0.0

    def times(self, random: Random) -> Iterator[float]:
        at_s = self.start_s
        while True:
            at_s += random.expovariate(self.rate_per_s)
            yield at_s


@dataclass(frozen=True)
class Bursts:
    """`size` arrivals in the same instant, again and again: an agent that fires twenty at once."""

    size: int
    every_s: Distribution
    start_s: float = 0.0

    def times(self, random: Random) -> Iterator[float]:
        at_s = self.start_s
        while True:
            for _ in range(self.size):
                yield at_s
            at_s += self.every_s.draw(random)


@dataclass(frozen=True)
class Times:
    """Exactly these times: a recorded trace, or a test that means one moment."""

    at_s: tuple[float, ...]

    def times(self, random: Random) -> Iterator[float]:
        yield from sorted(self.at_s)


@dataclass(frozen=True)
class Backlog:
    """Closed loop: always `depth` unfinished; the next comes `think_s` after one ended."""

    depth: int
    think_s: Distribution = field(default=Always(0.0))
    start_s: float = 0.0


Arrivals: TypeAlias = Poisson | Bursts | Times | Backlog
