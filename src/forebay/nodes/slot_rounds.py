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
HUGE: Final = 1e9


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
    """Until all first bytes together but the latest: of a queue inside, about its length."""

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

    def against(self, base: Round) -> Round:
        """Return it as factors of another's."""
        return self._replace(
            first=self.first / base.first, rest=self.rest / base.rest, wait=self.wait / base.first
        )


class Line:
    """The line nearest to points, in relative errors; it neither falls nor begins below 0.

    The nearest goes through the mean of what scatters, and rounds are compared by their middle,
    which is less. So it is shifted (`_lift`, a logarithm) until it goes through the middle of what
    it is drawn by. Else each round would push it up by as much, time and again.

    >>> line = Line()
    >>> line.learn([(x, 1.0 + 2.0 * x) for x in (1.0, 2.0, 3.0)])
    >>> round(line.at(5.0), 6)
    11.0
    """

    def __init__(self) -> None:
        self._usual = 0.0  # x
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        self._count = 0  # points that it is drawn by
        self._lift = 0.0
        self._drawn = (0.0, 0.0)  # where it begins, how steep it is

    def learn(self, points: Sequence[tuple[float, float]]) -> None:
        """Draw it anew with more points; those whose middle is on it leave it where it is."""
        gap = self._gap(points) if self._count else 0.0
        for x, y in points:
            self._add(x, y)
        self._count = min(MEMORY, self._count + len(points))
        self._drawn, self._lift = self._draw(), 0.0
        share = min(1.0, len(points) / self._count)
        self._lift = self._gap(points) - (1.0 - share) * gap

    def scale(self, factor: float) -> None:
        w, wx, wy, wxx, wxy = self._sums
        self._sums = (w, wx, factor * wy, wxx, factor * wxy)
        self._drawn = self._draw()

    def _gap(self, points: Sequence[tuple[float, float]]) -> float:
        """Return how far above it the middle of points is: a logarithm."""
        return middle([log(max(TINY, y) / self.at(x)) for x, y in points])

    def _add(self, x: float, y: float) -> None:
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

    def at(self, x: float) -> float:
        base, slope = self._drawn
        return min(HUGE, max(TINY, (base + slope * x) * exp(self._lift)))

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

    def reading_s(self, model: str, prompt_tokens: int) -> float:
        """Return what of that goes with the length of the prompt."""
        line = self._lines.get((model, "first"))
        return 0.0 if line is None else line.at(prompt_tokens) - line.at(0)

    def measure(self, slots: int, samples: Sequence[Sample]) -> Round | None:
        """Return what samples say; None where most are of models that were never seen."""
        firsts: list[tuple[float, float, float]] = []
        rests: list[float] = []
        for one in samples:
            waits_s = max(TINY, one.first_byte_s)
            line = self._lines.get((one.model, "rest" if one.rest_s > 0.0 else "whole"))
            if line is None:
                continue
            if one.rest_s <= 0.0:
                rests.append(log(waits_s / line.at(_size(one))))
                continue
            first_s = self._lines[one.model, "first"].at(one.prompt_tokens)
            firsts.append((log(waits_s / first_s), waits_s, first_s))
            rests.append(log(max(TINY, one.rest_s) / line.at(one.output_tokens)))
        if 2 * len(rests) <= len(samples):
            return None
        self.noise += (deviation(rests) - self.noise) / 8.0
        rest_factor = exp(middle(rests))
        if not firsts:
            return Round(slots, len(rests), rest_factor, rest_factor, rest_factor)
        first_factor = exp(middle([factor for factor, *_ in firsts]))
        others = sorted(firsts)[: max(3, len(firsts) - 1)]  # that one is late may be chance
        wait = sum(waits_s for _, waits_s, _ in others) / sum(first_s for *_, first_s in others)
        return Round(slots, len(rests), first_factor, rest_factor, wait)

    def learn(self, samples: Sequence[Sample], at: Round) -> None:
        """Draw the lines anew, with samples of a limit at which times are those of a round."""
        if len(self._lines) > 3 * MODELS_MAX:
            self._lines.clear()
        points: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for one in samples:
            first_s, rest_s = one.first_byte_s / at.first, one.rest_s / at.rest
            if one.rest_s > 0.0:
                points.setdefault((one.model, "first"), []).append((one.prompt_tokens, first_s))
                points.setdefault((one.model, "rest"), []).append((one.output_tokens, rest_s))
            else:
                first_s, rest_s = 0.0, one.first_byte_s / at.rest
                points.setdefault((one.model, "whole"), []).append((_size(one), rest_s))
            self._reads += (first_s - self._reads) / MEMORY
            self._writes += (rest_s - self._writes) / MEMORY
        for key, some in points.items():
            self._lines.setdefault(key, Line()).learn(some)

    def rebase(self, base: Round) -> None:
        """Count as the cost what a round took; the same is to be done `against` it with others."""
        for (_, part), line in self._lines.items():
            line.scale(base.first if part == "first" else base.rest)
        self._reads *= base.first
        self._writes *= base.rest

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

    def gain_told(self, low: Round, high: Round) -> str:
        """Return for people what more at once gave."""
        stretch = max(1.0, self.stretch(high) / self.stretch(low))
        gained = high.slots / low.slots / stretch - 1.0
        which = f"{abs(gained):.0%} {'more' if gained >= 0.0 else 'less'}"
        return f"{high.slots} at once gave {which} throughput than {low.slots}"

    def paced_gain(self, low: Round, high: Round, error: float, begun: int) -> tuple[float, float]:
        """Return the same by the pace of streams, known to an error, and so many first bytes."""
        rise = log(high.slots / low.slots)
        doubt = error + self._share() * self.noise / sqrt(begun)
        return self.gain(low, high)[0], doubt / rise

    def inside(self, one: Round, usual: float) -> float:
        """Return how many of a round wait inside the engine: by Little's law.

        So many of those that are there as their time before the first byte, beyond what it would
        take of an engine that shares its speed, is of all their time. `usual` is how much slower
        than the rest first bytes are where nothing waits.
        """
        share, expected = self._share(), usual * one.rest
        if one.wait <= LATE * expected:
            return 0.0
        late = share * (one.wait - expected)
        return one.slots * late / (share * one.wait + (1.0 - share) * one.rest)

    def _share(self) -> float:
        """Return the share of reading prompts in all work."""
        return max(0.0, self._reads) / max(TINY, self._reads + self._writes)


def _size(one: Sample) -> float:
    return one.prompt_tokens + OUTPUT_COST * one.output_tokens


def deviation(values: Sequence[float]) -> float:
    """Return how far values are from their middle, in the mean."""
    about = middle(values)
    return sum(abs(one - about) for one in values) / len(values)


def middle(values: Sequence[float]) -> float:
    """Return the mean of the middle half: outliers are none of it.

    >>> middle([1.0, 2.0, 3.0, 100.0])
    2.5
    """
    cut = len(values) // 4
    half = sorted(values)[cut : len(values) - cut]
    return sum(half) / len(half)
