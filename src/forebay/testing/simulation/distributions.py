"""Random quantities as frozen values: a scenario names a distribution, a seed draws from it.

Each has `draw(random)` and `mean()`. Service times of language models are long-tailed, which is
why `Lognormal` is here beside the exponential of queueing theory.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from random import Random


class Distribution(Protocol):
    """Anything that can be drawn from."""

    def draw(self, random: Random) -> float: ...

    def mean(self) -> float: ...


@dataclass(frozen=True)
class Always:
    """The same value every time.

    >>> Always(2.0).mean()
    2.0
    """

    value: float

    def draw(self, random: Random) -> float:
        return self.value

    def mean(self) -> float:
        return self.value


@dataclass(frozen=True)
class Uniform:
    """Anything between two values, each as likely."""

    low: float
    high: float

    def draw(self, random: Random) -> float:
        return random.uniform(self.low, self.high)

    def mean(self) -> float:
        return (self.low + self.high) / 2


@dataclass(frozen=True)
class Exponential:
    """Memoryless: what is left does not depend on what has passed."""

    mean_value: float

    def draw(self, random: Random) -> float:
        return random.expovariate(1.0 / self.mean_value)

    def mean(self) -> float:
        return self.mean_value


@dataclass(frozen=True)
class Lognormal:
    """Long-tailed: given by its median and the spread `sigma` of its logarithm.

    >>> round(Lognormal(1.0, 1.0).mean(), 2)
    1.65
    """

    median: float
    sigma: float

    def draw(self, random: Random) -> float:
        return random.lognormvariate(log(self.median), self.sigma)

    def mean(self) -> float:
        return self.median * exp(self.sigma**2 / 2)


@dataclass(frozen=True)
class Mixture:
    """One of several values by weight: short questions and the odd long document.

    >>> Mixture((1.0, 9.0), (3, 1)).mean()
    3.0
    """

    values: tuple[float, ...]
    weights: tuple[float, ...]

    def draw(self, random: Random) -> float:
        return random.choices(self.values, self.weights)[0]

    def mean(self) -> float:
        pairs = zip(self.values, self.weights, strict=True)
        return sum(value * weight for value, weight in pairs) / sum(self.weights)
