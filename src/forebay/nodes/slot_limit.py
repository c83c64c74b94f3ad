"""How many requests a node runs well at once, found from how it answers; no I/O and no clock.

**Measuring.** Each request that was answered while the limit was reached is a sample: its prompt
and output tokens, the time to its first byte and the time after that. A *round* is a number of
samples at one limit. Its *stretch* says how much longer than usual the same requests took
(`slot_rounds`); throughput is the limit divided by the stretch. A curve with two parameters, where
throughput bends and how sharply, is fitted to all rounds (`throughput_curve`). The pace of running
streams shows sooner than whole answers whether a higher limit gains anything (`stream_pace`).

**Search.** The limit doubles while any curve that fits the rounds promises more throughput, and
rises by half near the knee. If the lowest limit measured has nearly all the throughput already, a
quarter of it is tried. Then the limit becomes the smallest number with 0.97 of the highest
throughput. A limit that is not reached proves nothing, except that fewer may do as well.

**Trials.** Once settled, a round is now and then spent on a limit that is an eighth *higher*, or
*lower* where the curve expects little loss. One round says little; it is added to what is known,
and the limit follows the curve. A higher trial that clearly gains nearly all starts the search
again, bounded by numbers that did clearly worse before. So does one in which nothing waits or is
refused, where waiting or refusals had ended the search. After a useless one, the next comes after
50 times as many requests as it delayed. A number that the node named is not lowered by trials.

**Changes.** Each round at the settled limit is compared with what is known of it; differences are
added up, less what noise explains (a CUSUM test). If requests become slower by half, the limit goes
down by as much, until they are as fast as before (*check*). Then room was lost, and all that is
known is scaled; if throughput fell with the limit instead, the engine is slower at any number, and
the limit comes back. If requests become faster, the search starts again; where more at once did
clearly worse before, a higher trial comes first, because the machine may be faster only for now.

**Waiting inside the engine.** Streams then begin late although they run as fast as ever. By
Little's law, the share of their time that they wait is the share of them that is too many. First
bytes that are late, or overdue, end a search or a higher trial at once, unless as many streams as
the limit were seen to write: such an engine reads prompts one after the other.

A refusal (429, 503) takes one off, a time-out a quarter, and the engine's own count of waiting
requests that many. Only a higher trial goes above what is left then.
"""

from __future__ import annotations

from math import exp, log, sqrt
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from forebay.nodes.first_bytes import FirstBytes
from forebay.nodes.known_rounds import (
    FIRST_SAMPLES,
    GUESS_SAMPLES,
    SEARCH_MIN,
    STEADY_GAIN,
    STEP_FROM,
    UNCAPPED,
    KnownRounds,
)
from forebay.nodes.slot_rounds import Costs, Round, Sample
from forebay.nodes.stream_pace import FULL, StreamPace
from forebay.nodes.stretch_drift import StretchDrift
from forebay.nodes.trial_schedule import (
    SURE_SAMPLES,
    WATCH_SAMPLES,
    TrialSchedule,
    harm,
    samples_wanted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from forebay.nodes.first_bytes import Silent
    from forebay.nodes.stream_pace import Stream
    from forebay.nodes.trial_schedule import Trial

Phase: TypeAlias = Literal["search", "settled", "higher", "lower", "check"]

SLOTS_MAX: Final = 256
"""The ceiling where the node does not name one."""
FIRST_SAMPLES_MAX: Final = 32
"""With so many, what requests cost is known well enough for what comes after."""
SHARE: Final = 0.97
"""Of the throughput that there is, what the number that is settled for must give."""
FULL_GAIN: Final = 0.7
TRIAL_GAIN: Final = 0.3
"""A trial of more that gains so much begins the search again; below the second it was of no use."""
PACE_FROM: Final = 8
"""From this limit on the search goes on by the pace of streams."""
STRAIN: Final = 1.3
"""A request that takes so many times as long is slower for good."""
LOST: Final = 0.5
"""What the limit before must have gained for it to come back after a check."""
LATE_MAX: Final[Mapping[Phase, int]] = {"search": 2, "higher": 1}
"""So many first bytes that come late end it."""
KNOWN_MIN: Final = 3
"""Numbers that must have been measured before the limit follows their curve."""
TIMEOUT_FACTOR: Final = 0.75


class SlotLimit:
    """The limit of one node. Methods that take news say whether they changed it.

    >>> limit = SlotLimit()
    >>> [limit.note(Sample("llama", 100, 10, 0.2, 1.0), 0.0, now_s) for now_s in (1.2, 2.4, 3.6)]
    [False, False, True]
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
        self._phase: Phase = "search"
        self._home = self.slots  # the limit that holds, while another is tried
        self._told = self.slots  # the last that was not set for a trial
        self._since_s = 0.0  # when the limit was set
        self._skip = self.slots - 1  # samples of requests that started together, unlike later ones
        self._samples: list[Sample] = []
        self._few: list[tuple[Sample, int]] = []  # answered among fewer than the limit, how many
        self._costs = Costs()
        self._known = KnownRounds()
        self._first: dict[int, list[Sample]] = {}  # of the first search, by limit
        self._most = UNCAPPED  # above which it was refused, or first bytes came late
        self._worse = UNCAPPED  # the smallest that did clearly worse, before the search goes on
        self._drift = StretchDrift()  # at home
        self._strained: Round | None = None  # while a lower limit is checked
        self._trials = TrialSchedule()
        self._first_bytes = FirstBytes(self.slots)  # since the limit was set
        self._pace = StreamPace()
        self._before = 0  # the limit before this one, while streams are to be compared with it
        self._tries_soon = False  # more

    @property
    def listens(self) -> bool:
        """Whether first bytes matter now: while more is tried, or some seem to wait inside."""
        return self._tries_more or self._first_bytes.suspects

    @property
    def watches(self) -> bool:
        """Whether the pace of streams matters now: then, too, and just before more is tried."""
        return self._tries_soon or self.listens

    @property
    def _tries_more(self) -> bool:
        return self._phase in LATE_MAX

    def is_full(self, in_use: int) -> bool:
        """Say whether about as many run as may."""
        return in_use >= FULL * self.slots

    def total(self, in_use: int) -> int:
        """Return how many run in all, so many of them for this process."""
        return in_use

    def expects_refusal(self, started_s: float) -> bool:
        """Whether a refusal of a request that was sent then is what a trial asked for."""
        return self._tries_more or started_s < self._since_s

    # -- what happens

    def note(self, sample: Sample, started_s: float, now_s: float, running: int = UNCAPPED) -> bool:
        """Take a request that was answered, with so many running, itself among them.

        Where it had to wait for a slot, or as many ran as may, the limit was reached.
        """
        if started_s < self._since_s:
            return False
        if running < self.slots:
            return self._note_few(sample, running, now_s)
        if self._skip:
            self._skip -= 1
            return False
        before = self.changes
        self._samples.append(sample)
        if len(self._samples) >= samples_wanted(self._phase, self.slots):
            done = self._measure(self._samples)
            if done is not None:
                _DECISIONS[self._phase](self, done, now_s)
            self._samples = []
        return self.changes != before

    def _note_few(self, sample: Sample, running: int, now_s: float) -> bool:
        """Take one of a search whose limit is not reached: all there are may be too many."""
        top = max(self._known, default=0)
        if self._phase != "search" or not 0 < top <= running:
            return False
        self._few.append((sample, running))
        skipped = running - top  # that started together, at most
        if len(self._few) < skipped + samples_wanted(self._phase, self.slots):
            return False
        few, self._few = self._few[skipped:], []
        number = sum(running for _, running in few) // len(few)
        done = self._costs.measure(number, [one for one, _ in few])
        if done is None:
            return False
        self._add(done)
        curve = self._known.curve(self._costs)
        if len(self._known) > 1 and not self._known.next(self._costs, curve):
            return self._land(f"{number} at once gave no more throughput", now_s)
        return False

    def note_first_byte(
        self, model: str, prompt_tokens: int, first_byte_s: float, started_s: float, now_s: float
    ) -> bool:
        """Take a stream that has begun, while this `listens`."""
        if not self.listens:
            return False
        stream = model, prompt_tokens, started_s
        is_late = self._first_bytes.took(stream, first_byte_s, now_s, self._known, self._costs)
        return is_late and self._tries_more and self._stop_if_late(now_s)

    def note_silent(self, streams: list[Silent], now_s: float) -> bool:
        """Take all streams that have not begun, in order, as another ends, while it `listens`."""
        late = self._first_bytes.overdue(streams, now_s, self._known, self._costs)
        stops = self._tries_more and late > 0 and self._stop_if_late(now_s, late)
        self._first_bytes.ends += not stops
        return stops

    def note_streams(self, streams: list[Stream], now_s: float, ended: str = "") -> bool:
        """Take all streams that have begun, one that just `ended` too, while it `watches`."""
        self._first_bytes.wrote = max(self._first_bytes.wrote, len(streams))
        slower, before = self._pace.note(streams, self.slots), self.changes
        base, below = self._known.get(self._before), self._known.below(self.slots)
        if slower is None or base is None or not (below and self._tries_more):
            return False
        done = self._first_bytes.paced_round(base, exp(slower.log))
        low, is_trial = max(below), self._phase == "higher"
        rise = log(self.slots / low.slots)
        gained, doubt = 1.0 - log(done.rest / low.rest) / rise, 2.0 * slower.error / rise
        least = TRIAL_GAIN if is_trial else STEADY_GAIN
        is_useless = gained + doubt < least and (is_trial or self.slots > SEARCH_MIN)
        if is_useless and is_trial:
            self._judge(done, now_s)
        elif is_trial and self._gains_all(base, done, slower.error):
            self._search_on(base, done, now_s)
        elif is_useless:
            self._add(done)
            self._land(f"{self.slots} at once gave no more throughput", now_s)
        elif not is_trial and self.slots >= PACE_FROM and gained - doubt >= least:
            self._search(done, now_s)
        return self.changes != before

    def _gains_all(self, home: Round, done: Round, error: float) -> bool:
        """Say whether more gain nearly all, by the pace of streams, once those more have begun."""
        begun = self._first_bytes.begun
        if begun < max(FIRST_SAMPLES, self.slots - home.slots):
            return False
        gained, doubt = self._costs.paced_gain(home, done, error, begun)
        return gained >= max(FULL_GAIN, 2.0 * doubt)

    def _stop_if_late(self, now_s: float, silent: int = 0) -> bool:
        """End what has made first bytes come late; `silent` ones are late and have not come."""
        began = self._first_bytes
        if began.late + silent < LATE_MAX[self._phase] or began.wrote >= self.slots:
            return False
        reason = f"with {self.slots} at once, first bytes came late"
        if self._phase == "higher":
            return self._end_trial(now_s, reason, self._harm(began.late + silent))
        last = max(self._known.below(self.slots)).slots
        room = began.begun - began.ends  # each end lets another begin
        if self.slots == self._most:  # that had come out as the room before
            room = (self.slots - last) // 2
        self._most = min(self.slots - 1, max(began.wrote, last + max(0, room)))
        if self._most in self._known:
            return self._land(reason, now_s)
        return self._set(self._most, reason, now_s)

    def note_refused(self, now_s: float) -> bool:
        """Take a request that the node refused as one too many (429, 503)."""
        return self._cap(self.slots - 1, "the node refused a request as one too many", now_s)

    def note_timed_out(self, started_s: float, now_s: float) -> bool:
        """Take a request that was not answered in time; of several at once only the first."""
        if started_s < self._since_s:
            return False
        slots = int(self.slots * TIMEOUT_FACTOR)
        return self._cap(slots, "a request was not answered in time", now_s)

    def note_waiting(self, waiting: int, now_s: float, in_flight: int = 0) -> bool:
        """Take the number of requests that wait inside the engine, by its own account.

        Of those in flight, some may be left from a higher limit: they are not taken off twice.
        """
        waiting -= max(0, in_flight - self.slots)
        if waiting <= 0:
            return False
        noun = "request" if waiting == 1 else "requests"
        slots = max(self.slots // 2, self.slots - waiting)
        return self._cap(slots, f"{waiting} {noun} waited inside the node", now_s)

    def note_ceiling(self, ceiling: int, now_s: float) -> bool:
        """Take the number that the node names: the limit starts there, and goes no higher."""
        if self.is_named and ceiling == self.ceiling:
            return False
        self.ceiling, self.is_named = ceiling, True
        self._most, self._known = UNCAPPED, KnownRounds()
        self._settle(ceiling)
        return self._set(ceiling, f"the node says that it runs {ceiling} at once", now_s)

    # -- decisions, each after a round

    def _measure(self, samples: list[Sample]) -> Round | None:
        """Return a round, and learn from it; None where it compares with nothing."""
        known = self._rebased()
        done = self._costs.measure(self.slots, samples)
        if done is None and known is None:
            if self._phase != "search":
                self._settle(self.slots)
            self._known, self._costs, self._first = KnownRounds(), Costs(), {}
            done = Round(self.slots, len(samples), 1.0, 1.0, 1.0)
        usual = known or done
        assert usual is not None
        if done is None or not self._known.inside(done, self._costs):
            self._costs.learn(samples, usual)
            if self._phase == "search" and len(self._first) == len(self._known):
                self._first.setdefault(self.slots, []).extend(samples)
        return done

    def _rebased(self) -> Round | None:
        """Return what is known of the present limit; where it holds, all is made relative to that.

        Else what is called fast would shift with each change, after thousands out of all bounds.
        """
        known = self._known.get(self.slots)
        if known is None or self._phase != "settled":
            return known
        self._costs.rebase(known)
        self._known = self._known.against(known)
        return self._known[self.slots]

    def _add(self, done: Round) -> None:
        self._known.add(done, self._home)

    def _search(self, done: Round, now_s: float) -> None:
        inside, wrote = self._inside(done), self._first_bytes.wrote
        if inside and wrote < self.slots:
            self._most = max(1, wrote, self.slots - inside)
        self._add(done)
        if self._first.keys() == self._known.keys():
            self._costs = self._known.learn_anew(self._first)
            if sum(map(len, self._first.values())) > FIRST_SAMPLES_MAX:
                self._first = {}
        low, top = min(self._known), max(self._known)
        most = min(self._most, self.ceiling)
        falls = low > 1 and not self.is_named
        if len(self._known) == 1 and low < most:
            reason = f"the first answers came with {low} at once"
            self._set(low // 4 if falls else 2 * low, reason, now_s)
            return
        curve = self._known.curve(self._costs)
        if len(self._known) > 1 and top < most and (slots := self._known.next(self._costs, curve)):
            below = max(one for one in self._known if one < top)
            most = min(most, max(top + 1, self._worse - 1))
            self._worse = self._worse if top < self._worse else UNCAPPED
            reason = self._costs.gain_told(self._known[below], self._known[top])
            self._known = self._known.without_guesses(self._home)
            self._set(min(slots, most), reason, now_s)
        elif (
            falls
            and len(self._known) > 1
            and curve.throughput(low) >= SHARE * curve.throughput(top)
        ):
            fewer = max(1, low // 4)
            self._set(fewer, f"seeing whether {fewer} do as well", now_s)
        elif self.slots == top < most and self._known[top].samples < SURE_SAMPLES:
            pass  # once more, for it is a search that ends
        else:
            self._land(f"{top} at once gave no more throughput", now_s)

    def _land(self, reason: str, now_s: float) -> bool:
        """Settle at the smallest number that gives nearly all the throughput there is."""
        self._settle(min(self.slots, self._most))
        return self._follow(reason, now_s)

    def _settle(self, home: int, harmed: float | None = None) -> None:
        """Hold this limit; `harmed` is how many were too many, where the engine has said so."""
        self._phase, self._home, self._strained = "settled", home, None
        self._first = {}
        self._drift.restart()
        if harmed is None:
            self._trials.restart(home)
        else:
            self._trials.restart_capped(home, harmed)

    def _follow(self, reason: str, now_s: float, *, in_trial: bool = False) -> bool:
        """Go to the number that all that is known speaks for, or stay."""
        if (len(self._known) >= KNOWN_MIN or 1 in self._known) and not self.is_named:
            most = min(self._most, self.ceiling)
            curve = self._known.curve(self._costs)
            slots = min(most, curve.enough(SHARE, most))
            if abs(slots - self._home) > self._home >> 3 or self._home > most:
                if slots > self._home:
                    reason = f"{slots} at once should give more throughput than {self._home}"
                elif in_trial:
                    reason = f"{slots} at once should give as much throughput as {self._home}"
                self._home, in_trial = slots, False
                self._drift.restart()
            if self._home not in self._known:
                expected = curve.stretch(self._home)
                self._add(Round(self._home, GUESS_SAMPLES, expected, expected, expected))
        return self._set(self._home, reason, now_s, in_trial=in_trial)

    def _cap(self, slots: int, reason: str, now_s: float) -> bool:
        """Go down to what the engine has said that it takes, and no higher until a trial has."""
        self._most = max(1, slots)
        if self._phase != "search" or not self._known:
            harmed = self._harm(self._first_bytes.late) if self._phase == "higher" else 0.0
            self._settle(self._most, harmed)
        return self._set(slots, reason, now_s, in_trial=self.in_trial and slots >= self._told)

    def _watch(self, done: Round, now_s: float) -> None:
        if self._took_off(done, now_s):
            return
        known = self._known.get(self.slots)
        if known is None:
            self._add(done)
            return
        shift = log(self._costs.stretch(done) / self._costs.stretch(known))
        noise = self._costs.noise * sqrt(1.0 / done.samples + 1.0 / known.samples)
        drift = self._drift.note(shift, noise)
        if drift == "slower" and self.slots > 1:
            self._strain(done, exp(shift), now_s)
        elif drift == "faster":
            self._ease(done, exp(-shift), now_s)
        else:
            if known.samples < SURE_SAMPLES or self._drift.is_none:
                self._add(done)
            self._trials.count(int(done.samples))
            is_soon = self._trials.until_higher() <= self.slots + WATCH_SAMPLES
            self._tries_soon = is_soon and self.slots < self.ceiling
            if known.samples < SURE_SAMPLES <= self._known[self.slots].samples:
                self._follow(f"{self.slots} at once gave no more throughput", now_s)
            else:
                self._try(now_s)

    def _strain(self, done: Round, stretch: float, now_s: float) -> None:
        """Requests take longer: go down by as much, a quarter is left at least, and see."""
        self._phase, self._strained = "check", done
        reason = f"requests took {stretch:.1f} times as long as before"
        self._set(max(self.slots // 4, int(self.slots / stretch)), reason, now_s)

    def _check(self, done: Round, now_s: float) -> None:
        """Judge whether room was lost, or the engine is slower at any number."""
        if self._took_off(done, now_s):
            return
        strained, home = self._strained, self._known[self._home]
        assert strained is not None
        slower = self._costs.stretch(done) / self._costs.stretch(home)
        if slower > STRAIN:
            is_fresh = strained.slots < self._home  # else, some of it was from before
            if (is_fresh or self.slots == 1) and self._costs.gain(done, strained)[0] > LOST:
                self._known = self._known.slower(slower)
                self._settle(self._home)
                self._set(self._home, f"{self.slots} at once gave less throughput", now_s)
                return
            if self.slots > 1:
                self._strain(done, slower, now_s)
                return
        self._known = self._known.scaled(self.slots / self._home)
        self._settle(self.slots)
        self._known[self.slots] = done
        self.reason = f"{strained.slots} at once gave no more throughput"

    def _took_off(self, done: Round, now_s: float) -> bool:
        """Take off what waits inside the engine, if anything does."""
        inside, known = self._known.inside(done, self._costs), self._known.get(self.slots)
        if self._phase == "settled":
            if (seen := self._first_bytes.seen_inside(inside)) is None:
                return True
            inside = seen
        if not inside or (known is not None and STRAIN * done.rest < known.rest):
            return False  # where the rest is faster than ever, some began before it was
        self._settle(max(1, self.slots - inside))
        self._most = self._home
        self._set(self._most, f"with {self.slots} at once, first bytes came late", now_s)
        return True

    def _ease(self, done: Round, faster: float, now_s: float) -> None:
        """Requests take less time: there is more room, or the machine is faster for now."""
        is_capped = self.slots >= min(self._most, self.ceiling)  # only a trial goes beyond
        worse = self._known.worse_than(self._known[self.slots], self._costs)
        if not is_capped and worse == UNCAPPED:
            self._known, self._phase = KnownRounds({self.slots: done}), "search"
            self._most = self._worse = UNCAPPED
            self._set(2 * self.slots, f"requests were {faster:.1f} times as fast as before", now_s)
            return
        if not is_capped:
            self._known = self._known.slower(1.0 / faster).guessed()
            self._trials.hasten()
            done = done._replace(samples=GUESS_SAMPLES)  # for some of it was before
        self._known[self.slots] = done
        self._drift.restart()

    def _try(self, now_s: float) -> None:
        step = max(1, self.slots >> 3)
        for which in self._trials.due():
            self._trials.begin(which)
            slots = self.slots + step if which == "higher" else self.slots - step
            if slots > self.ceiling or (which == "lower" and self._would_lose(slots)):
                self._trials.put_off(which, self._home)
                continue
            self._phase = which
            does = "do more" if which == "higher" else "do as well"
            self._set(slots, f"seeing whether {slots} {does}", now_s, in_trial=True)
            return

    def _would_lose(self, slots: int) -> bool:
        """Say whether fewer are not worth a trial: all that wait meanwhile would wait longer."""
        is_kept = slots < 1 or self.is_named  # whoever set that number may have wanted it
        return is_kept or self._known.would_lose(slots, self.slots, self._costs)

    def _judge(self, done: Round, now_s: float) -> None:
        home = self._known.get(self._home)
        if home is not None:
            slower = self._costs.stretch(done) / self._costs.stretch(home)
            if slower > STRAIN and self._phase == "lower" and self.slots > 1:
                self._strain(done, slower, now_s)
                return
        harmed = 0.0
        if self._phase == "higher" and home is not None:
            gained, error = self._costs.gain(home, done)
            is_sure, began = gained >= max(FULL_GAIN, 2.0 * error), self._first_bytes
            is_late = began.late or self._inside(done)
            waited = is_late and began.wrote < self.slots
            if is_sure or (self._home >= self._most and began.on_time and not waited):
                self._search_on(home, done, now_s)
                return
            if not waited:
                self._most = max(self._most, self.slots)
            if gained < TRIAL_GAIN:
                harmed = self._harm(began.late)
        self._add(done)
        less = "gave less" if self._phase == "lower" else "gave no more"
        self._end_trial(now_s, f"{done.slots} at once {less} throughput", harmed)

    def _inside(self, done: Round) -> int:
        """Return how many wait inside, where more is tried: none if no first byte was late."""
        began = self._first_bytes
        return self._known.inside(done, self._costs) if began.late or not began.begun else 0

    def _harm(self, late: int) -> float:
        return harm(self._home, self.slots, late, self._first_bytes.on_time or len(self._samples))

    def _search_on(self, home: Round, done: Round, now_s: float) -> None:
        """Begin the search again: a trial of more has gained nearly all."""
        reason = self._costs.gain_told(home, done)
        self._worse = self._known.worse_from(done, self._costs)
        if self._worse <= self.slots + 1:  # the next one did: it comes in a trial of its own
            self._add(done)
            self._settle(self.slots)
            self._most, self.changes = max(self._most, self.slots), self.changes + 1
            self.reason, self.in_trial, self._told = reason, False, self.slots
            return
        self._known = self._known.up_to(self._home)
        self._add(done)
        self._phase, self._most = "search", UNCAPPED
        more = self.slots // (4 if self.slots >= STEP_FROM else 2)
        self._set(min(self.slots + more, self._worse - 1), reason, now_s)

    def _end_trial(self, now_s: float, reason: str, harmed: float) -> bool:
        """Go back to the limit before it, or where the curve is now."""
        assert self._phase in ("higher", "lower")
        which: Trial = self._phase
        self._phase = "settled"
        self._known = self._known.faded(self._home)
        self._trials.put_off(which, self._home, harmed)
        return self._follow(reason, now_s, in_trial=True)

    def _set(self, slots: int, reason: str, now_s: float, *, in_trial: bool = False) -> bool:
        slots = max(1, min(slots, self.ceiling))
        if slots == self.slots:
            return False
        self._since_s, self._skip = now_s, max(0, slots - self.slots)
        self._samples, self._few = [], []
        self._pace.rebase()
        self._tries_soon = False
        self._before = self.slots if slots > self.slots else 0
        self._first_bytes = FirstBytes(slots, now_s)
        self.slots, self.reason, self.in_trial = slots, reason, in_trial
        self._told = self._told if in_trial else slots
        self.changes += 1
        return True


_DECISIONS: Final[Mapping[Phase, Callable[[SlotLimit, Round, float], None]]] = {
    "search": SlotLimit._search,
    "settled": SlotLimit._watch,
    "higher": SlotLimit._judge,
    "lower": SlotLimit._judge,
    "check": SlotLimit._check,
}
