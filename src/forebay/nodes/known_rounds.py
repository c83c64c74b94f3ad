"""What is known of each number of requests at once: the rounds that were measured, by limit."""

from __future__ import annotations

from math import ceil, log, sqrt
from typing import TYPE_CHECKING, Final

from forebay.nodes.slot_rounds import Costs, Round
from forebay.nodes.throughput_curve import Curve, Point

if TYPE_CHECKING:
    from forebay.nodes.slot_rounds import Sample

UNCAPPED: Final = 10**9
"""Nothing has said yet that fewer than the ceiling are too many."""
FIRST_SAMPLES: Final = 3
"""In the first round, and in any that others are compared with."""
GUESS_SAMPLES: Final = 4
"""What a round counts for that was not measured, but follows from others."""
KNOWN_MAX: Final = 12
FADE: Final = 0.9
"""What older rounds count for after each trial."""
SEARCH_MIN: Final = 4
"""So far a search goes by whole answers, if it does not lose: on a CPU, llama.cpp gains with 4, not
with 2."""
FAR_GAIN: Final = 1.3
STEP_FROM: Final = 16
"""It goes on by doubling below this, or if that promises so much more throughput."""
STEADY_GAIN: Final = 0.07
LOWER_SHARE: Final = 0.95
"""Of the present throughput, what a lower number must promise to be tried."""
STEEPEST: Final = -4.0
"""No engine loses throughput as fast as this with more at once: that it has more room is likelier.
One whose requests take `n ** 2.5` times as long beyond its knee loses with the power of -1.5."""
CLEAR_LOSS: Final = -0.15
"""What doubling must gain to be done again; below `SEARCH_MIN`, what it may lose beyond doubt."""


class KnownRounds(dict[int, Round]):
    """Rounds by limit."""

    def add(self, done: Round, home: int) -> None:
        """Keep a round too, joined with what is known there; that at home is never put out."""
        known = self.get(done.slots)
        self[done.slots] = done if known is None else known.joined(done)
        if len(self) > KNOWN_MAX:
            others = [one for one in self.values() if one.slots not in (done.slots, home)]
            del self[min(others, key=lambda one: one.samples).slots]

    def below(self, slots: int) -> list[Round]:
        """Return what is known well enough of lower limits."""
        return [one for one in self.values() if one.slots < slots and one.samples >= FIRST_SAMPLES]

    def last_below(self, slots: int) -> Round | None:
        return max(self.below(slots), default=None)

    def inside(self, done: Round, costs: Costs) -> int:
        """Return how many wait inside the engine, by how late the streams of a round begin."""
        below = self.below(done.slots)
        if not below:
            return 0
        lowest = min(below)
        return ceil(costs.inside(done, lowest.first / lowest.rest) - 0.25)

    def worse_from(self, done: Round, costs: Costs) -> int:
        """Return the smallest number above a trial that did worse than it beyond doubt.

        None did where the trial was better, beyond doubt, than the same number before, or than the
        next ones by more than any engine is: it has changed, and what is known is of before.
        """
        known = self.get(done.slots)
        if known is not None:
            better = log(costs.stretch(known) / costs.stretch(done))
            if better > 2.0 * costs.noise * sqrt(1.0 / known.samples + 1.0 / done.samples):
                return UNCAPPED
        return self.worse_than(done, costs)

    def worse_than(self, base: Round, costs: Costs) -> int:
        """Return the smallest number above that of a round that did worse beyond doubt."""
        worse = UNCAPPED
        for slots, one in self.items():
            if base.slots < slots < worse:
                gained, error = costs.gain(base, one)
                worse = slots if STEEPEST < gained < -2.0 * error else worse
        return worse

    def would_lose(self, slots: int, home: int, costs: Costs) -> bool:
        """Say whether fewer would give clearly less, by the curve, if there is one already."""
        if len(self) < 2:
            return False
        curve = self.curve(costs)
        return curve.throughput(slots) < LOWER_SHARE * curve.throughput(home)

    def up_to(self, slots: int) -> KnownRounds:
        return KnownRounds({number: one for number, one in self.items() if number <= slots})

    def against(self, base: Round) -> KnownRounds:
        """Return all as factors of one."""
        return KnownRounds({slots: one.against(base) for slots, one in self.items()})

    def slower(self, factor: float) -> KnownRounds:
        return KnownRounds({slots: one.slower(factor) for slots, one in self.items()})

    def guessed(self) -> KnownRounds:
        """Return all as guesses, which give way to what is measured."""
        return KnownRounds(
            {
                slots: one._replace(samples=min(GUESS_SAMPLES, one.samples))
                for slots, one in self.items()
            }
        )

    def without_guesses(self, home: int) -> KnownRounds:
        """Return all but the guesses about fewer than hold."""
        return KnownRounds(
            {
                slots: one
                for slots, one in self.items()
                if slots >= home or one.samples > GUESS_SAMPLES
            }
        )

    def scaled(self, room: float) -> KnownRounds:
        """Return all as what so many times the number should do now; that is a guess."""
        scaled = KnownRounds()
        for one in self.values():
            slots, samples = max(1, round(one.slots * room)), min(GUESS_SAMPLES, one.samples)
            scaled.add(one._replace(slots=slots, samples=samples), 0)
        return scaled

    def faded(self, home: int) -> KnownRounds:
        """Return all with less weight, but that at home."""
        return KnownRounds(
            {
                slots: one if slots == home else one._replace(samples=FADE * one.samples)
                for slots, one in self.items()
            }
        )

    def learn_anew(self, samples: dict[int, list[Sample]]) -> Costs:
        """Draw the lines by all of these, and measure the rounds that they made up by them."""
        costs = Costs()
        for slots, some in samples.items():
            costs.learn(some, self[slots])
        for slots, some in samples.items():
            self[slots] = costs.measure(slots, some) or self[slots]
        return costs

    def next(self, costs: Costs, curve: Curve) -> int:
        """Return what to try after the highest of several; 0 if more would gain too little.

        Where it seems to be near the knee already, that is half as much more, not twice as much.
        """
        below, top = sorted(self.values())[-2:]
        gained, error = costs.gain(below, top)
        if top.slots < SEARCH_MIN:
            return 2 * top.slots if gained + 2.0 * error > CLEAR_LOSS else 0
        if gained <= 0.0 or curve.may_gain(top.slots) < STEADY_GAIN:
            return 0
        is_far = curve.throughput(2 * top.slots) > FAR_GAIN * curve.throughput(top.slots)
        return 2 * top.slots if is_far or top.slots < STEP_FROM else top.slots * 3 // 2

    def curve(self, costs: Costs) -> Curve:
        """Return the curve of throughput through all."""
        points = [Point(one.slots, costs.stretch(one), one.samples) for one in self.values()]
        return Curve(points, costs.noise)
