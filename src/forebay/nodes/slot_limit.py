"""How many requests a node runs well at once, found from how it answers; no I/O and no clock.

**What is measured.** A request that was answered while the limit was reached gives one sample: its
prompt and output tokens, its time to the first byte and the time after it. A *round* is a number of
such samples at one limit, of requests that started after it was set. From one round come, for each
model, the seconds per request, per prompt token and per output token; with them the duration of the
requests of another round can be predicted, and the median of `measured / predicted` is the
*stretch*: how much longer the same request takes there. From the limit a to a higher one b,

    gain = 1 - log(stretch) / log(b / a)

is the share of the rise that became throughput: 1 where b requests run as fast each as a did, 0
where they only share what there was, below 0 where they are in each other's way. No speed of the
idle node needs to be known, and neither prompts nor answers need to be alike.

**What is decided.** *Rising*: the limit doubles for as long as that gains. Once it does not, the
limit becomes what gives the best throughput seen at the speed of the lowest of the last rounds: the
knee, of an engine that is flat up to it. (*Falling* is the same downwards, from a start above 1
that the node did not name.) *Settled*: now and then one round is spent on a limit that is an eighth
*higher* or *lower*. The higher one stays if it gains, and the limit rises again if it gains nearly
all; the lower one stays if the difference had gained nothing, and is followed by one twice as far
down; where the node named its number, no lower one is tried. A trial that fails puts off the next
of its kind. Two rounds in a row that take longer than the settled ones lower the limit by as much;
if fewer are no faster, because the engine is slower at any number, it comes back.

Beside that: each request that is refused as one too many takes one off; a time-out takes a quarter
off; requests that wait inside the engine are taken off. Streams of a higher trial that begin late
end it at once, for they may be waiting inside.
"""

from __future__ import annotations

from math import log
from statistics import median
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Phase: TypeAlias = Literal["rising", "falling", "settled", "higher", "lower"]
Trial: TypeAlias = Literal["higher", "lower"]

SLOTS_MAX: Final = 256
"""The ceiling where the node does not name one."""
SEARCH_SAMPLES: Final = 4
SEARCH_SAMPLES_MAX: Final = 12
"""In a round of the search: half of the limit, within these."""
WATCH_SAMPLES: Final = 8
TRIAL_SAMPLES: Final = 6
SAMPLES_MAX: Final = 64
"""In a round of a trial: as many as the limit, within these. And what is usual at the limit that
holds is said by so many at most."""
STEADY_GAIN: Final = 0.2
"""What doubling must gain to be done again."""
FULL_GAIN: Final = 0.7
"""An eighth more that gains so much says that the knee is far: the limit doubles again."""
WORTH: Final = 0.2
"""What an eighth more must gain to be worth the later first bytes."""
STRAIN: Final = 1.3
"""Two rounds in a row that take so many times as long lower the limit."""
LOST: Final = 0.5
"""What the limit before must have gained for it to come back after that."""
LATE: Final = 2.0
"""A first byte this many times later than usual is late; `LATE_MAX` more of them than others end a
higher trial."""
LATE_MAX: Final = 2
TIMEOUT_FACTOR: Final = 0.75
WAIT_ROUNDS: Final[Mapping[Trial, int]] = {"higher": 10, "lower": 24}
"""How far trials that fail put off the next of their kind, in rounds of a trial."""
OUTPUT_COST: Final = 16.0
"""Prompt tokens that cost as much as one output token, where only their sum is measured."""


class Sample(NamedTuple):
    """One request that was answered while the limit was reached."""

    model: str
    prompt_tokens: int
    output_tokens: int
    first_byte_s: float
    rest_s: float
    """From the first byte to the last; 0 of answers that come whole."""


class Round:
    """The samples at one limit, and what they say of the engine's speed."""

    def __init__(self, slots: int, samples: Sequence[Sample]) -> None:
        self.slots = slots
        self._samples = samples
        groups: dict[tuple[str, bool], list[Sample]] = {}
        for one in samples:
            groups.setdefault((one.model, one.rest_s > 0.0), []).append(one)
        self._rates = {key: _rates(group, streams=key[1]) for key, group in groups.items()}
        self._own = self._ratio(self) or 1.0

    def __len__(self) -> int:
        return len(self._samples)

    def joined(self, other: Round) -> Round:
        """Return both as one, less the oldest samples."""
        return Round(self.slots, [*self._samples, *other._samples][-SAMPLES_MAX:])

    def first_byte_s(self, model: str, prompt_tokens: int) -> float | None:
        """Return when a stream usually begins here; None where there has been none."""
        rates = self._rates.get((model, True))
        return None if rates is None else rates[0] + rates[1] * prompt_tokens

    def is_late(self, other: Round) -> bool:
        """Say whether streams of another round begin late, by what is usual here."""
        ratios = [
            one.first_byte_s / usual_s
            for one in other._samples
            if one.rest_s > 0.0 and (usual_s := self.first_byte_s(one.model, one.prompt_tokens))
        ]
        return bool(ratios) and median(ratios) > LATE

    def stretch(self, other: Round) -> float | None:
        """Return how much longer a request takes in another round; None if nothing compares."""
        ratio = self._ratio(other)
        return None if ratio is None else max(1e-3, ratio / self._own)

    def _ratio(self, other: Round) -> float | None:
        ratios = [
            (one.first_byte_s + one.rest_s)
            / max(1e-9, rates[0] + rates[1] * one.prompt_tokens + rates[2] * one.output_tokens)
            for one in other._samples
            if (rates := self._rates.get((one.model, one.rest_s > 0.0))) is not None
        ]
        return median(ratios) if 2 * len(ratios) > len(other) else None


def _rates(samples: Sequence[Sample], *, streams: bool) -> tuple[float, float, float]:
    """Return the seconds per request, per prompt token and per output token."""
    first_bytes_s = [one.first_byte_s for one in samples]
    if not streams:
        costs = [one.prompt_tokens + OUTPUT_COST * one.output_tokens for one in samples]
        base_s, unit_s = _line(costs, first_bytes_s)
        return base_s, unit_s, OUTPUT_COST * unit_s
    base_s, unit_s = _line([float(one.prompt_tokens) for one in samples], first_bytes_s)
    tokens = max(1, sum(one.output_tokens for one in samples))
    return base_s, unit_s, sum(one.rest_s for one in samples) / tokens


def _line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    """Return the line nearest to the points, of those that neither fall nor begin below 0.

    >>> _line([1.0, 2.0, 3.0], [3.0, 5.0, 7.0])
    (1.0, 2.0)
    """
    mean_x, mean_y = sum(xs) / len(xs), max(1e-6, sum(ys) / len(ys))
    spread = sum((x - mean_x) ** 2 for x in xs)
    together = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    slope = max(0.0, together / spread) if spread > 0.0 else 0.0
    if mean_x > 0.0:
        slope = min(slope, mean_y / mean_x)
    return mean_y - slope * mean_x, slope


def gain(low: Round, high: Round) -> float | None:
    """Return which share of a rise of the limit became throughput; None if nothing compares."""
    stretch = low.stretch(high) if low.slots < high.slots else None
    return None if stretch is None else 1.0 - log(stretch) / log(high.slots / low.slots)


def _is_worth(low: Round, high: Round, least: float) -> bool | None:
    """Say whether the higher limit gains enough: nearly all, if streams begin late there."""
    found = gain(low, high)
    return None if found is None else found >= (FULL_GAIN if low.is_late(high) else least)


class SlotLimit:
    """The limit of one node. Methods that take news say whether they changed it.

    >>> limit = SlotLimit()
    >>> limit.note(Sample("llama", 100, 10, 0.2, 1.0), started_s=0.0, now_s=1.2)
    True
    >>> limit.slots, limit.reason
    (2, 'the first answers came with 1 at once')
    """

    def __init__(self, start: int = 1, ceiling: int = SLOTS_MAX) -> None:
        self.slots = max(1, min(start, ceiling))
        self.ceiling = ceiling
        self.is_named = False
        """Whether the node has named the ceiling itself."""
        self.reason = ""
        """Why it is what it is, for people; "" before the first change."""
        self.changes = 0
        self.in_trial = False
        """Whether it was set to see what becomes of it, or set back after that."""
        self._phase: Phase = "rising" if self.slots == 1 else "falling"
        self._since_s = 0.0  # when the limit was set
        self._skip = self.slots - 1  # samples of requests that started together, unlike later ones
        self._samples: list[Sample] = []
        self._passed: list[Round] = []  # of the search: the last two
        self._settled: Round | None = None  # at the limit that holds
        self._seen: dict[Trial, int] = {"higher": 0, "lower": 0}  # samples since the last trial
        self._strained = False  # the last round took longer
        self._waits: dict[Trial, int] = {"higher": 0, "lower": 0}  # samples before the next trial
        self._unstrained: Round | None = None  # while the limit goes down for strain
        self._descents = 0  # lower trials in a row that lost nothing
        self._late = 0  # first bytes of a trial that came late, less the others
        self._timed_out = False  # since the last sample

    @property
    def listens(self) -> bool:
        """Whether first bytes matter now: only during a trial of more."""
        return self._phase == "higher"

    # -- what happens

    def note(self, sample: Sample, started_s: float, now_s: float) -> bool:
        """Take a request that was answered while the limit was reached."""
        if started_s < self._since_s:
            return False
        if self._skip:
            self._skip -= 1
            return False
        samples, before = self._samples, self.slots
        samples.append(sample)
        if len(samples) >= self._wanted():
            self._samples, self._timed_out = [], False
            _DECISIONS[self._phase](self, Round(before, samples), now_s)
        elif not len(samples) % WATCH_SAMPLES and self._phase in ("higher", "lower"):
            self._watch_trial(Round(before, samples[-WATCH_SAMPLES:]), now_s)
        return self.slots != before

    def note_first_byte(
        self, model: str, prompt_tokens: int, first_byte_s: float, started_s: float, now_s: float
    ) -> bool:
        """Take a stream that has begun, while this `listens`."""
        if not self.listens or started_s < self._since_s or self._settled is None:
            return False
        usual_s = self._settled.first_byte_s(model, prompt_tokens)
        if usual_s is None:
            return False
        self._late += 1 if first_byte_s > LATE * usual_s else -1
        if self._late < LATE_MAX:
            return False
        return self._end_trial(now_s, f"with {self.slots} at once, first bytes came late")

    def note_refused(self, now_s: float) -> bool:
        """Take a request that the node refused as one too many (429, 503)."""
        self._settle()
        self._put_off("higher")
        return self._set(self.slots - 1, "the node refused a request as one too many", now_s)

    def note_timed_out(self, now_s: float) -> bool:
        """Take a request that was not answered in time; of several at once only the first."""
        if self._timed_out:
            return False
        self._settle()
        self._put_off("higher")
        self._timed_out = True
        slots = int(self.slots * TIMEOUT_FACTOR)
        return self._set(slots, "a request was not answered in time", now_s)

    def note_waiting(self, waiting: int, now_s: float) -> bool:
        """Take the number of requests that wait inside the engine, by its own account."""
        if waiting <= 0:
            return False
        self._settle()
        self._put_off("higher")
        noun = "request" if waiting == 1 else "requests"
        slots = max(self.slots // 2, self.slots - waiting)
        return self._set(slots, f"{waiting} {noun} waited inside the node", now_s)

    def note_ceiling(self, ceiling: int, now_s: float) -> bool:
        """Take the number that the node names: the limit starts there, and goes no higher."""
        if self.is_named and ceiling == self.ceiling:
            return False
        self.ceiling, self.is_named = ceiling, True
        self._settle()
        for which in self._waits:
            self._waits[which] = WAIT_ROUNDS[which] * max(TRIAL_SAMPLES, ceiling)
        return self._set(ceiling, f"the node says that it runs {ceiling} at once", now_s)

    # -- decisions, each after a round

    def _wanted(self) -> int:
        """Return how many samples make a round."""
        if self._phase == "settled":
            return WATCH_SAMPLES
        if self._phase in ("rising", "falling"):
            least = min(self.slots, SEARCH_SAMPLES)
            return min(SEARCH_SAMPLES_MAX, max(least, self.slots // 2))
        return min(SAMPLES_MAX, max(TRIAL_SAMPLES, self.slots))

    def _rise(self, done: Round, now_s: float) -> None:
        last = self._passed[-1] if self._passed else None
        found = _is_worth(last, done, STEADY_GAIN) if last is not None else None
        if found is False:
            self._land(*self._passed, done, now_s=now_s)
            return
        self._passed = [*self._passed[-1:], done] if found is not None else [done]
        if self.slots >= self.ceiling:
            self._settle(done)
        elif last is None or found is None:
            self._set(2 * self.slots, f"the first answers came with {self.slots} at once", now_s)
        else:
            self._set(2 * self.slots, f"{_more(last, done)} than {last.slots}", now_s)

    def _fall(self, done: Round, now_s: float) -> None:
        high = self._passed[-1] if self._passed else None
        if high is None or not _is_worth(done, high, STEADY_GAIN):
            self._passed = [*self._passed[-1:], done]
            if self.slots == 1:
                self._settle(done)
            else:
                self._set(self.slots // 2, f"seeing whether {self.slots // 2} do as well", now_s)
        elif len(self._passed) == 1 and high.slots < self.ceiling:
            self._phase, self._passed = "rising", [done, high]
            self._set(2 * high.slots, f"{_more(done, high)} than {done.slots}", now_s)
        else:
            self._land(done, *reversed(self._passed), now_s=now_s)

    def _land(self, low: Round, *higher: Round, now_s: float) -> None:
        """Settle at what gives the best throughput seen, at the speed of the lowest limit."""
        top = higher[-1].slots
        knee = max(one.slots / (low.stretch(one) or 1.0) for one in higher)
        self._settle()
        slots = max(low.slots, min(round(knee), top))
        self._set(slots, f"{top} at once gave no more throughput", now_s)

    def _watch(self, done: Round, now_s: float) -> None:
        settled = self._settled
        stretch = settled.stretch(done) if settled is not None else None
        if settled is None or stretch is None:
            self._settled = done
        elif stretch <= STRAIN or self.slots == 1:
            self._settled, self._strained = settled.joined(done), False
        elif not self._strained:
            self._strained = True  # once more: some of these may have begun before
            return
        else:
            self._unstrained = settled
            self._lower(done, stretch, now_s)
            return
        self._seen = {which: seen + len(done) for which, seen in self._seen.items()}
        due = [which for which, seen in self._seen.items() if seen >= self._waits[which]]
        if self.is_named and "lower" in due:
            due.remove("lower")  # whoever set that number may have wanted it
        if due:
            self._try(max(due, key=lambda which: self._seen[which]), now_s)

    def _watch_trial(self, begun: Round, now_s: float) -> None:
        """End a trial early in which requests take longer than its limit explains."""
        settled = self._settled
        if settled is None or self._unstrained is not None:
            return
        stretch = settled.stretch(begun)
        explained = max(1.0, begun.slots / settled.slots)
        if stretch is not None and stretch > STRAIN * explained and self.slots > 1:
            self._unstrained = settled
            self._lower(begun, stretch, now_s)

    def _lower(self, done: Round, stretch: float, now_s: float) -> None:
        """Go down after a round that took longer, by as much; a quarter is left at least."""
        self._settled, self._phase, self._strained = done, "lower", False
        reason = f"requests took {stretch:.1f} times as long as before"
        self._set(max(self.slots // 4, int(self.slots / stretch)), reason, now_s)

    def _try(self, which: Trial, now_s: float) -> None:
        self._seen[which] = self._late = 0
        step = max(1, self.slots >> (3 if which == "higher" else max(1, 3 - self._descents)))
        slots = self.slots + step if which == "higher" else self.slots - step
        if 1 <= slots <= self.ceiling:
            self._phase = which
            does = "do more" if which == "higher" else "do as well"
            self._set(slots, f"seeing whether {slots} {does}", now_s, in_trial=True)

    def _judge_higher(self, done: Round, now_s: float) -> None:
        before = self._settled
        found = gain(before, done) if before is not None else None
        if before is None or found is None or not _is_worth(before, done, WORTH):
            self._end_trial(now_s, f"{done.slots} at once gave no more throughput")
            return
        self._waits["higher"] = 0
        reason = f"{_more(before, done)} than {before.slots}"
        if found >= FULL_GAIN and self.slots < self.ceiling:
            self._phase, self._passed = "rising", [before, done]
            self._set(2 * self.slots, reason, now_s)
        else:
            self._settle(done)
            self.reason, self.in_trial = reason, False

    def _judge_lower(self, done: Round, now_s: float) -> None:
        before, unstrained = self._settled, self._unstrained
        self._unstrained = None
        worth = WORTH if unstrained is None else LOST
        if before is None or _is_worth(done, before, worth) is not False:
            self._end_trial(now_s, f"{done.slots} at once gave less throughput")
            return
        stretch = unstrained.stretch(done) if unstrained is not None else None
        if stretch is not None and stretch > STRAIN and self.slots > 1:
            self._unstrained = unstrained
            self._lower(done, stretch, now_s)
            return
        self._waits["lower"] = 0
        self._seen["lower"] = SAMPLES_MAX  # the next comes before a higher one
        self._descents += 1
        self._settle(done)
        self.reason, self.in_trial = f"{before.slots} at once gave no more throughput", False

    def _end_trial(self, now_s: float, reason: str) -> bool:
        """Go back to the limit before it."""
        settled, which = self._settled, self._phase
        assert settled is not None
        assert which in ("higher", "lower")
        self._phase = "settled"
        self._descents = 0
        self._put_off(which)
        return self._set(settled.slots, reason, now_s, in_trial=True)

    def _put_off(self, which: Trial) -> None:
        """Have the next trial of this kind come after twice as many samples as the last."""
        least = max(TRIAL_SAMPLES, self.slots)
        most = WAIT_ROUNDS[which] * least
        self._waits[which] = min(most, max(least, 2 * self._waits[which]))

    def _settle(self, done: Round | None = None) -> None:
        self._phase, self._settled, self._passed = "settled", done, []
        self._strained, self._unstrained = False, None

    def _set(self, slots: int, reason: str, now_s: float, *, in_trial: bool = False) -> bool:
        slots = max(1, min(slots, self.ceiling))
        if slots == self.slots:
            return False
        self._since_s, self._skip, self._samples = now_s, max(0, slots - self.slots), []
        self.slots, self.reason, self.in_trial = slots, reason, in_trial
        self.changes += 1
        return True


_DECISIONS: Final[Mapping[Phase, Callable[[SlotLimit, Round, float], None]]] = {
    "rising": SlotLimit._rise,
    "falling": SlotLimit._fall,
    "settled": SlotLimit._watch,
    "higher": SlotLimit._judge_higher,
    "lower": SlotLimit._judge_lower,
}


def _more(low: Round, high: Round) -> str:
    more = high.slots / low.slots / (low.stretch(high) or 1.0) - 1.0
    return f"{high.slots} at once gave {more:.0%} more throughput"
