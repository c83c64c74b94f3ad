"""Rounds of answered requests, and what they say of an engine's speed: `slot_limit` says what for.

What requests cost is learned from all of them: for each model, the time to the first byte is a line
over the tokens of the prompt, and the time after it a line over those of the answer (of an answer
that comes whole there is one line, over both). A round then is two numbers: how many times as long
first bytes take as these lines say, and how many times as long the rest does. Both are only
relative to one another; the speed of the idle engine needs not be known.
"""

from __future__ import annotations

from math import exp, log, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLES_MAX: Final = 64
"""That rounds which are joined count for."""
MEMORY: Final = 128
"""Samples by which lines are drawn: older ones count less and less."""
MODELS_MAX: Final = 64
LATE: Final = 2.0
"""A first byte this many times later than usual is late."""
OUTPUT_COST: Final = 16.0
"""Prompt tokens that cost as much as one output token, where only their sum is measured."""
TINY: Final = 1e-6


class Sample(NamedTuple):
    """One request that was answered while the limit was reached."""

    model: str
    prompt_tokens: int
    output_tokens: int
    first_byte_s: float
    rest_s: float
    """From the first byte to the last; 0 of answers that come whole."""


class Round(NamedTuple):
    """What samples at one limit say: times, against what the same requests cost."""

    slots: int
    samples: float
    first: float
    """Until a typical first byte."""
    rest: float
    """After it."""
    wait: float
    """Until all first bytes together: where requests wait in a queue, this is about its length."""

    def joined(self, other: Round) -> Round:
        """Return both as one; what came before counts for no more than `SAMPLES_MAX`."""
        samples = self.samples + other.samples
        share = other.samples / samples
        first, rest, wait = (
            exp((1.0 - share) * log(old) + share * log(new))
            for old, new in zip(self[2:], other[2:], strict=True)
        )
        return Round(self.slots, min(samples, SAMPLES_MAX), first, rest, wait)

    def slower(self, factor: float) -> Round:
        return self._replace(
            first=factor * self.first, rest=factor * self.rest, wait=factor * self.wait
        )


class Line:
    """The line nearest to points, in relative errors; it neither falls nor begins below 0.

    >>> line = Line()
    >>> for x in (1.0, 2.0, 3.0):
    ...     line.add(x, 1.0 + 2.0 * x)
    >>> round(line.at(5.0), 6)
    11.0
    """

    def __init__(self) -> None:
        self._usual = 0.0  # x
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        self._drawn: tuple[float, float] | None = None  # where it begins, how steep it is

    def add(self, x: float, y: float) -> None:
        self._usual = self._usual or max(1.0, x)
        keep = 1.0 - 1.0 / MEMORY
        weight = (x + self._usual) ** -2
        w, wx, wy, wxx, wxy = self._sums
        self._sums = (
            keep * w + weight,
            keep * wx + weight * x,
            keep * wy + weight * y,
            keep * wxx + weight * x * x,
            keep * wxy + weight * x * y,
        )
        self._drawn = None

    def at(self, x: float) -> float:
        if self._drawn is None:
            self._drawn = self._draw()
        base, slope = self._drawn
        return max(TINY, base + slope * x)

    def _draw(self) -> tuple[float, float]:
        w, wx, wy, wxx, wxy = self._sums
        spread = w * wxx - wx * wx
        slope = wy / wx if wx > 0.0 else 0.0  # through 0, for all that a single point says
        if spread > 1e-9 * w * wxx:
            slope = min(slope, max(0.0, (w * wxy - wx * wy) / spread))
        return (wy - slope * wx) / w, slope


class Costs:
    """What requests cost, by what has been measured."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], Line] = {}
        self._reads = self._writes = TINY  # seconds, of what was measured last
        self.noise = 0.1
        """How far the times of like requests are apart: the logarithm's mean deviation."""

    def first_byte_s(self, model: str, prompt_tokens: int) -> float | None:
        line = self._lines.get((model, "first"))
        return None if line is None else line.at(prompt_tokens)

    def measure(self, slots: int, samples: Sequence[Sample]) -> Round | None:
        """Return what samples say; None where most are of models that were never seen."""
        firsts, rests = [], []
        waited_s = usual_s = 0.0
        for one in samples:
            waits_s = max(TINY, one.first_byte_s)
            line = self._lines.get((one.model, "rest" if one.rest_s > 0.0 else "whole"))
            if line is None:
                continue
            if one.rest_s <= 0.0:
                rests.append(log(waits_s / line.at(_size(one))))
                continue
            first_s = self._lines[one.model, "first"].at(one.prompt_tokens)
            firsts.append(log(waits_s / first_s))
            rests.append(log(max(TINY, one.rest_s) / line.at(one.output_tokens)))
            waited_s += waits_s
            usual_s += first_s
        if 2 * len(rests) <= len(samples):
            return None
        middle = _middle(rests)
        self.noise += (sum(abs(one - middle) for one in rests) / len(rests) - self.noise) / 8.0
        rest_factor = exp(middle)
        if not firsts:
            return Round(slots, len(rests), rest_factor, rest_factor, rest_factor)
        first_factor = exp(_middle(firsts))
        return Round(slots, len(rests), first_factor, rest_factor, waited_s / usual_s)

    def learn(self, samples: Sequence[Sample], at: Round) -> None:
        """Draw the lines anew, with samples of a limit at which times are those of a round."""
        if len(self._lines) > 3 * MODELS_MAX:
            self._lines.clear()
        for one in samples:
            if one.rest_s > 0.0:
                self._line(one.model, "first").add(one.prompt_tokens, one.first_byte_s / at.first)
                self._line(one.model, "rest").add(one.output_tokens, one.rest_s / at.rest)
                self._reads += (one.first_byte_s / at.first - self._reads) / MEMORY
                self._writes += (one.rest_s / at.rest - self._writes) / MEMORY
            else:
                self._line(one.model, "whole").add(_size(one), one.first_byte_s / at.rest)
                self._reads -= self._reads / MEMORY
                self._writes += (one.first_byte_s / at.rest - self._writes) / MEMORY

    def _line(self, model: str, part: str) -> Line:
        found = self._lines.get((model, part))
        if found is None:
            found = self._lines[model, part] = Line()
        return found

    def stretch(self, one: Round) -> float:
        """Return how much longer than they cost the requests of a round take, all together."""
        share = self._share()
        return share * one.first + (1.0 - share) * one.rest

    def gain(self, low: Round, high: Round) -> tuple[float, float]:
        """Return which share of a rise of the limit became throughput, and its standard error.

        1 where more requests run as fast each, 0 where they only share what there was.
        """
        rise = log(high.slots / low.slots)
        gained = 1.0 - log(self.stretch(high) / self.stretch(low)) / rise
        return gained, self.noise * sqrt(1.0 / low.samples + 1.0 / high.samples) / rise

    def inside(self, one: Round, usual: float) -> float:
        """Return how many of a round wait inside the engine: by Little's law.

        So many of those that are there as their time before the first byte, beyond what it would
        take of an engine that shares its speed, is of all their time. `usual` is how much slower
        than the rest first bytes are where nothing waits.
        """
        share, expected = self._share(), usual * one.rest
        if one.wait <= LATE * expected or one.first <= LATE * expected:
            return 0.0
        late = share * (one.wait - expected)
        return one.slots * late / (share * one.wait + (1.0 - share) * one.rest)

    def _share(self) -> float:
        """Return the share of reading prompts in all work."""
        return max(0.0, self._reads) / max(TINY, self._reads + self._writes)


def _size(one: Sample) -> float:
    return one.prompt_tokens + OUTPUT_COST * one.output_tokens


def _middle(values: Sequence[float]) -> float:
    """Return the mean of the middle half: outliers are none of it.

    >>> _middle([1.0, 2.0, 3.0, 100.0])
    2.5
    """
    cut = len(values) // 4
    middle = sorted(values)[cut : len(values) - cut]
    return sum(middle) / len(middle)
