"""How many requests a node runs well at once, found from how it answers. No I/O and no clock.

**State.** `Limit` is all that is known of one node's number. It is `Node.limit` where the number
is `named` or `found` (`SlotsKind`), else that is None. `Node.slots` is the number in force. Where a
call here changes `Limit.slots`, the scheduler takes it over and tells it by `SlotsChanged`, with a
reason in words. What is lent is filled by another core, to which the node is of the kind `lent`: it
changes nothing, and tells in sums what ran (`Finished.count`, `most`).

**Samples.** A run that ended well, began at this number and ran while the limit was reached
(`learn`). A *round* is `ROUND_MIN` of them, or half the number, of two users where two are there.
`measure` says how many times as long as usual requests of their size took in it; the *throughput*
of a number is the number divided by that.

1. *Search* (`next_number`): double while a doubling gains enough; if the lowest has nearly the best
   throughput, try half of it; if more gave less, try what is between the best two. Hold the
   smallest with nearly the best throughput (`good_enough`).
2. *Late first bytes* (`_room`): where they take twice as long for the same pace of tokens, requests
   wait inside the engine, by Little's law as large a share of them as of their time. So many come
   off at once, and the rest is the most until the next search.
3. *Hold* (`_hold`): each round is compared with those before. If requests take half as long again,
   search anew from half, fewer first; if they are as much faster, from twice as many; both only
   if the next round says so, too, for the speed of a machine that others use swings.
4. *Trials* (`_try`, `_judge`): now and then a round an eighth higher, or lower where nothing seems
   to be lost. Follow what clearly gains, go on searching where all of it is gained.
5. *Down at once*: a refusal takes one off, a time-out a quarter, the engine's own count of what
   waits inside as many. Only trials go up again.

A number that the engine named is where to begin and the most there are: only 4 and 5 move it.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil, exp, fsum, log
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from forebay.core.events import Finished
from forebay.core.memory import has_load
from forebay.core.records import NEVER_S, Limit, Sample
from forebay.core.service_times import TOKENS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from forebay.core.events import NodeChanged, Returned
    from forebay.core.records import Entry, Node

SLOTS_MAX: Final = 256
"""The ceiling where the engine does not name one."""
GAIN: Final = 1.15
"""What a doubling must give for the next one to be tried."""
BY_CHANCE: Final = 0.2
"""A logarithm; what is so near to that is measured for one more round."""
ENOUGH: Final = 0.95
"""Of the best throughput that was measured."""
ROUND_MIN: Final = 16
"""Samples; of a search and of trials half as many as the limit, if that is more."""
ALONE_ROUNDS: Final = 4
"""A round of one user among several takes so many times as many samples."""
TRIED: Final = 0.8
"""Of the best throughput; with that, 2 and 4 at once are tried in any case."""
APART: Final = 1.6
"""Numbers so far apart may have a better one between them."""
EVEN: Final = 0.75
"""Where fewer run than may, but never less than this share of the usual, there are no more."""
OTHERS_MAX: Final = 64
"""After so many samples of models that were not there before, all is measured anew."""
TOGETHER_S: Final = 1.0
"""What is refused so soon after another was sent with it."""
PACE_CHANGE: Final = 1.5
"""So many times as long or short, and the search begins anew."""
LATE: Final = 2.0
"""First bytes that take so many times as long as usual, at the same pace of tokens, are late."""
SURPLUS: Final = 0.9
"""Of what seems to wait in a round of more, what comes off: some of it began together."""
QUEUES: Final = 0.9
HOLD: Final = 60
"""Answers for each slot, at the limit, before another number is tried."""
FOLLOWS: Final = 0.5
"""Of the rise, what a trial of more must gain for the limit to follow."""
GAINS_ALL: Final = 0.7
"""With that, the search goes on."""
SAME: Final = 0.02
"""A difference in throughput that is none."""
FLAT: Final = 0.85
"""Of the best throughput, what the next number below that was measured must have for a trial of
fewer: else they lose something."""
TIMEOUT_FACTOR: Final = 0.75
OUTPUT_COST: Final = 16.0
"""Prompt tokens that cost as much as one output token, where only their sum is measured."""
TINY: Final = 1e-6


class Pace(NamedTuple):
    """How many times as long as requests usually take they took in a round."""

    first: float
    """Until the first byte."""
    rest: float
    share: float
    """Of the usual time that is spent until the first byte."""

    def stretch(self) -> float:
        return self.share * self.first + (1.0 - self.share) * self.rest

    def waiting(self, usual: Pace) -> float:
        """Return the share of the time that requests wait inside the engine."""
        expected = usual.first / usual.rest * self.rest
        if self.first < LATE * expected:
            return 0.0
        return self.share * (self.first - expected) / self.stretch()


def changed(limit: Limit | None, event: NodeChanged) -> Limit | None:
    """Return what there is to know of a node's number after it told of itself."""
    kind = event.slots_kind
    if kind in ("fixed", "lent"):
        return limit  # it may be the single slot of a node that comes back
    if kind == "found":
        if limit is None or limit.is_named:
            limit = Limit(max(1, min(event.slots, SLOTS_MAX)), SLOTS_MAX)
    elif limit is None or not limit.is_named or limit.ceiling != event.slots:
        limit = Limit(max(1, event.slots), max(1, event.slots), is_named=True)
        limit.reason = f"the node says that it runs {event.slots} at once"
    return limit


def learn(node: Node, entry: Entry, event: Finished | Returned, now_s: float) -> None:
    """Take a run that ends and holds its lease still: a sample, or a time-out."""
    limit = node.limit
    if limit is None or has_load(node, entry):  # it may have waited for its model
        return
    if event.why == "timed_out" and not event.strike and entry.since_s >= limit.since_s:
        slots = int(limit.slots * TIMEOUT_FACTOR)  # of several at once only the first counts
        _lower(limit, slots, "a request was not answered in time", now_s)
    if not isinstance(event, Finished) or not event.ok or event.ran_s is None:
        return
    if not 0.0 <= event.ran_s < NEVER_S:
        return
    arrival = entry.arrival
    running = event.most if entry.lent else len(node.leases) + node.lent
    sample = Sample(
        arrival.model, arrival.user,
        min(max(0, arrival.prompt_tokens - entry.cached_tokens), TOKENS_MAX),
        min(event.output_tokens, TOKENS_MAX), event.first_byte_s, event.ran_s,
        min(running, limit.slots),
    )  # fmt: skip
    # A search looks at fewer, too; of those on lent slots it is not known how many ran in all.
    least = 1 if limit.phase == "search" and not entry.lent else limit.slots
    if now_s - event.ran_s >= limit.since_s and running >= least:
        _take(node, limit, sample, now_s)


def _take(node: Node, limit: Limit, sample: Sample, now_s: float) -> None:
    """Take a sample; at the end of a round, decide."""
    if limit.skip > 0:
        limit.skip -= 1
        return
    if limit.models and sample.model not in limit.models:
        limit.others += 1
        if limit.others >= OTHERS_MAX:  # of which nothing is known: all is measured anew
            limit.reference, limit.rounds, limit.samples = [], {}, []
            limit.models, limit.others = {}, 0
        return
    limit.samples.append(sample)
    if not _is_round(node, limit):
        return
    samples, limit.samples = limit.samples, []
    if limit.phase == "search":
        _end_round(limit, samples, now_s)
    elif limit.phase == "hold":
        _hold(limit, samples, now_s)
    else:
        _judge(limit, samples, now_s)


def _end_round(limit: Limit, samples: list[Sample], now_s: float) -> None:
    """Take a round of a search, at the number that ran: there may be no more than these."""
    runs = sorted(one.running for one in samples)
    number = runs[len(runs) // 2]
    is_full = number == limit.slots
    if not is_full and runs[0] < EVEN * number:
        return  # now and then fewer: that says nothing
    limit.models = limit.models or {one.model: None for one in samples}
    if is_full or number > max(limit.rounds, default=0):
        limit.rounds[number] = limit.rounds.get(number, []) + samples
    else:
        number = max(limit.rounds)
    _search_on(limit, number, now_s, is_full=is_full)


def _is_round(node: Node, limit: Limit) -> bool:
    """Say whether there are enough samples, of at least two users where two are there."""
    samples = limit.samples
    count = _round_size(limit)
    if len(samples) < count:
        return False
    user = samples[0].user
    if len(samples) >= ALONE_ROUNDS * count or any(one.user != user for one in samples):
        return True
    lanes = (lane for families in node.lanes.values() for lane in families.values())
    entries = (entry for lane in lanes for entry in lane.running.values())
    return not any(entry.node is node and entry.user.name != user for entry in entries)


def _round_size(limit: Limit) -> int:
    return ROUND_MIN if limit.phase == "hold" else max(ROUND_MIN, limit.slots // 2)


def refused(limit: Limit, now_s: float) -> bool:
    """Take a request refused as one too many; say whether that was to be expected."""
    if limit.phase in ("search", "higher"):
        limit.refused_s = now_s  # others that were sent with it are refused as well
    _lower(limit, limit.slots - 1, "the node refused a request as one too many", now_s)
    return now_s - limit.refused_s < TOGETHER_S


def waits_inside(limit: Limit, waiting: int, running: int, now_s: float) -> None:
    """Take how many wait inside the engine by its own account, while so many are there.

    Those above the limit were begun before it was lowered: they are not taken off twice.
    """
    waiting -= max(0, running - limit.slots)
    if waiting > 0:
        slots = max(limit.slots // 2, limit.slots - waiting)
        _lower(limit, slots, f"{waiting} of the requests waited inside the node", now_s)


def _lower(limit: Limit, slots: int, reason: str, now_s: float) -> None:
    """Go down at once. What was tried is over; only a trial goes above that again."""
    slots = max(1, slots)
    if slots >= limit.slots:
        return
    back = limit.phase == "higher" and slots >= limit.home
    limit.cap = slots
    _set_home(limit, slots, reason, now_s, keeps=back and slots == limit.home)
    limit.is_trial = back


def _set(limit: Limit, slots: int, reason: str, now_s: float) -> None:
    limit.skip = max(0, slots - limit.slots - 1)
    limit.slots, limit.reason, limit.since_s = slots, reason, now_s
    limit.samples, limit.is_trial = [], False


def _set_home(limit: Limit, slots: int, reason: str, now_s: float, *, keeps: bool = False) -> None:
    """Hold a number from now on; `keeps` where requests are to be compared with those before."""
    if not keeps:
        limit.reference, limit.models = [], {}
    limit.phase, limit.home, limit.rounds = "hold", slots, {}
    limit.answers, limit.falls, limit.is_other = 0, False, False
    _set(limit, slots, reason, now_s)


def _search_on(limit: Limit, number: int, now_s: float, *, is_full: bool) -> None:
    """Try the next number, or hold the one that is good enough."""
    paces = measure(limit.rounds)
    does = {slots: slots / pace.stretch() for slots, pace in paces.items()}
    room = _room(number, paces, does)
    if room < number:
        del limit.rounds[number], does[number]
        limit.cap = room
        if room not in does:  # it is measured as well
            _set(limit, room, _late_told(number), now_s)
            return
        number = room
    in_doubt = len(does) > 1 and rises(does, -BY_CHANCE) and not rises(does, BY_CHANCE)
    if number == limit.slots and in_doubt and len(limit.rounds[number]) < 2 * _round_size(limit):
        return  # one more round
    told = _gain_told(number, does)
    fewer = next_number(does, max(does)) if limit.falls else None
    slots = fewer or next_number(does, limit.cap if is_full else max(does))
    if slots is not None:
        _set(limit, slots, told, now_s)
    elif is_full or not rises(does):
        limit.does = does
        _set_home(limit, good_enough(does), told, now_s)


def _room(number: int, paces: Mapping[int, Pace], does: Mapping[int, float]) -> int:
    """Return how many of those that ran did not wait inside, by Little's law.

    Where fewer can not have had nearly the throughput, they read their prompts in turn instead.
    """
    last = max((slots for slots in does if slots < number), default=number)
    room = max(1, round(number * (1.0 - SURPLUS * paces[number].waiting(paces[last]))))
    could = does[last] * max(1.0, room / last)
    return room if could >= QUEUES * does[number] else number


def next_number(does: Mapping[int, float], cap: int) -> int | None:
    """Return what a search tries next, by the throughput of what it has tried."""
    tried = sorted(does)
    low, top, most = tried[0], tried[-1], max(does.values())
    higher = min(cap, 2 * top)
    if higher > top and rises(does):
        return higher
    if low > 1 and does[low] >= ENOUGH * most:
        return low // 2
    best = max(tried, key=lambda slots: does[slots])
    gaps = [(a, b) for a, b in pairwise(tried) if best in (a, b) and b > max(APART * a, a + 1)]
    if does[top] < ENOUGH * most and gaps:  # there it falls: the best may be beside the best tried
        below, above = max(gaps, key=lambda gap: min(does[gap[0]], does[gap[1]]))
        return (below + above) // 2
    return None


def rises(does: Mapping[int, float], by: float = 0.0) -> bool:
    """Say whether the most that was tried gave more than the next below, by enough and more."""
    *_, last, top = (0, *sorted(does))
    if not last:
        return True
    rise, doublings = log(does[top] / does[last]), log(top / last) / log(2.0)
    is_not_worse = does[top] >= TRIED * max(does.values())
    return rise >= doublings * log(GAIN) + by or (top < 4 and is_not_worse)


def good_enough(does: Mapping[int, float]) -> int:
    """Return the smallest number with nearly the best throughput, between those tried as well."""
    least, below = ENOUGH * max(does.values()), 0
    for slots in sorted(does):
        if does[slots] >= least:
            if not below or does[slots] <= does[below] or slots <= APART * below:
                return slots
            steep = log(does[slots] / does[below]) / log(slots / below)
            least = max(least, (1.0 - SAME) * does[slots])
            return min(slots, ceil(below * exp(log(least / does[below]) / steep) - 0.01))
        below = slots
    return below


def _late_told(number: int) -> str:
    return f"with {number} at once, first bytes came late"


def _gain_told(number: int, does: Mapping[int, float]) -> str:
    others = [slots for slots in does if slots != number]
    if not others:
        return f"the first answers came with {number} at once"
    low, high = sorted((number, min(others, key=lambda slots: abs(log(slots / number)))))
    gained = does[high] / does[low] - 1.0
    which = f"{abs(gained):.0%} {'more' if gained >= 0.0 else 'less'}"
    return f"{high} at once gave {which} throughput than {low}"


def _hold(limit: Limit, samples: list[Sample], now_s: float) -> None:
    """Compare what is answered at home with what it was like before; now and then try another."""
    limit.answers += len(samples)
    if len(limit.reference) < 2 * ROUND_MIN:
        limit.reference = limit.reference + samples
        limit.models = {one.model: None for one in limit.reference}
        return
    usual, pace = measure({0: limit.reference, 1: samples}).values()
    stretch = pace.stretch() / usual.stretch()
    waiting = 0.0 if limit.is_named else pace.waiting(usual)
    room = max(1, round(limit.home * (1.0 - waiting)))
    was_other, limit.is_other = limit.is_other, not 1.0 / PACE_CHANGE < stretch < PACE_CHANGE
    if room < limit.home:
        limit.cap = room
        _set_home(limit, room, _late_told(limit.home), now_s, keeps=True)
    elif was_other and limit.is_other and not limit.is_named:
        limit.phase, limit.cap, limit.falls = "search", limit.ceiling, stretch > 1.0
        slots = max(1, limit.home // 2) if limit.falls else min(limit.cap, limit.home * 2)
        _set(limit, slots, f"requests take {stretch:.1f} times as long as before", now_s)
    elif limit.answers >= HOLD * limit.home:
        _try(limit, samples, now_s)


def _try(limit: Limit, samples: list[Sample], now_s: float) -> None:
    """Begin a round an eighth higher or lower."""
    home = limit.home
    step = max(1, home // 8)
    higher, lower = min(limit.ceiling, home + step), max(1, home - step)
    limit.answers = 0
    limit.reference = [*limit.reference, *samples][-2 * ROUND_MIN :]
    below = max((slots for slots in limit.does if slots < home), default=0)
    is_flat = below and limit.does[below] >= FLAT * max(limit.does.values())
    slots = lower if limit.tries_lower and is_flat else higher
    limit.tries_lower = not limit.tries_lower
    if slots == home:
        return
    limit.phase = "higher" if slots > home else "lower"
    _set(limit, slots, f"{slots} at once are tried", now_s)
    limit.is_trial = True


def _judge(limit: Limit, samples: list[Sample], now_s: float) -> None:
    """Follow a trial, or go back."""
    tried = limit.slots
    paces = measure({limit.home: limit.reference, tried: samples})
    does = {slots: slots / pace.stretch() for slots, pace in paces.items()}
    told = _gain_told(tried, does)
    home = limit.home
    gain, rise = log(does[tried] / does[home]), log(tried / home)
    least = FOLLOWS * rise if tried > home and not limit.is_named else -SAME
    if tried > home and gain > GAINS_ALL * rise and tried < limit.ceiling:
        limit.rounds = {home: limit.reference, tried: samples}
        limit.phase, limit.cap = "search", limit.ceiling
        _set(limit, min(limit.cap, 2 * tried), told, now_s)
    elif gain > least:
        _set_home(limit, tried, told, now_s)
    else:
        _set_home(limit, home, told, now_s, keeps=True)
        limit.is_trial = True


Line: TypeAlias = tuple[float, float]


def measure(rounds: Mapping[int, Sequence[Sample]]) -> dict[int, Pace]:
    """Return how fast requests of their size went in each round, against all of them.

    What the same requests cost is learned from the rounds themselves: for each model, the time to
    the first byte is a line over the tokens of the prompt, and the time after it one over those of
    the answer, after each round's times are divided by how much slower it was.
    """
    paces = dict.fromkeys(rounds, (1.0, 1.0))
    points = {number: [*_points(samples)] for number, samples in rounds.items()}
    for _ in range(3):
        parts: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for number, some in points.items():
            for key, x, y in some:
                stretch = paces[number][key[1] != "first"]
                parts.setdefault(key, []).append((x, y / stretch))
        lines = {key: line(part) for key, part in parts.items()}
        paces = {number: _pace(some, lines) for number, some in points.items()}
    usual_s = {key: fsum(y for _, y in part) for key, part in parts.items()}
    share = fsum(y for key, y in usual_s.items() if key[1] == "first") / fsum(usual_s.values())
    return {number: Pace(first, rest, share) for number, (first, rest) in paces.items()}


def _points(samples: Iterable[Sample]) -> Iterable[tuple[tuple[str, str], float, float]]:
    for one in samples:
        if one.first_byte_s is None or not 0.0 <= one.first_byte_s < one.ran_s:
            size = one.prompt_tokens + OUTPUT_COST * max(0, one.output_tokens)
            yield (one.model, "whole"), size, max(TINY, one.ran_s)
        else:
            yield (one.model, "first"), one.prompt_tokens, max(TINY, one.first_byte_s)
            yield (one.model, "rest"), max(0, one.output_tokens), one.ran_s - one.first_byte_s


def _pace(
    points: Sequence[tuple[tuple[str, str], float, float]], lines: Mapping[tuple[str, str], Line]
) -> tuple[float, float]:
    """Return how much slower a round was, until the first byte and after it."""
    firsts = [(y, at(lines[key], x)) for key, x, y in points if key[1] == "first"]
    rests = [y / at(lines[key], x) for key, x, y in points if key[1] != "first"]
    if not firsts:
        rest = middle(rests)
        return rest, rest
    firsts.sort(key=lambda pair: pair[0] / pair[1])
    firsts = firsts[: max(3, len(firsts) - 1)]  # that one is late may be chance
    first = fsum(y for y, _ in firsts) / fsum(usual for _, usual in firsts)
    return first, middle(rests)


def line(points: Sequence[tuple[float, float]]) -> Line:
    """Return where the line nearest to points begins and how steep it is, in relative errors."""
    usual = fsum(x for x, _ in points) / len(points) + 1.0
    w = wx = wy = wxx = wxy = 0.0
    for x, y in points:
        weight = (x + usual) ** -2
        w += weight
        wx += weight * x
        wy += weight * y
        wxx += weight * x * x
        wxy += weight * x * y
    spread = w * wxx - wx * wx
    slope = wy / wx if wx > 0.0 else 0.0
    if spread > 1e-9 * w * wxx:
        slope = min(slope, max(0.0, (w * wxy - wx * wy) / spread))
    return (wy - slope * wx) / w, slope


def at(drawn: Line, x: float) -> float:
    """Return the value of a line at a place, above 0."""
    return max(TINY, drawn[0] + drawn[1] * x)


def middle(values: Sequence[float]) -> float:
    """Return the mean of the middle half: outliers are none of it.

    >>> middle([1.0, 2.0, 3.0, 100.0])
    2.5
    """
    cut = len(values) // 4
    half = sorted(values)[cut : len(values) - cut]
    return fsum(half) / len(half)
