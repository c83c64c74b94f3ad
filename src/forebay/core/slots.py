"""How many requests a node runs well at once, found from how it answers. No I/O and no clock.

**State.** `Limit` is all that is known of one node's number: `Node.limit`, None where the number
is `fixed` or `lent` (see `SlotsKind`). `Node.slots` is the number in force. The core calls
`changed` for each `NodeChanged`, `finished` for each run that ended well, `refused` and
`waits_inside` for `NodeRested`, `timed_out` for a `Finished` or `Returned` with that reason. Each
may change `Limit.slots`; where it did, the scheduler sets `Node.slots` and tells it by
`SlotsChanged`, with a reason in words. What is lent is filled by another core, to which the node is
of the kind `lent`: it changes nothing, and tells in sums what ran (`Finished.count`, `most`).
"""

from __future__ import annotations

from math import ceil, log
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from forebay.core.events import Finished
from forebay.core.records import Limit, Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from forebay.core.events import NodeChanged, Returned
    from forebay.core.records import Entry, Node

SLOTS_MAX: Final = 256
"""The ceiling where the engine does not name one."""
GAIN: Final = 1.15
"""What a doubling must give for the next one to be tried."""
DOUBT: Final = 0.2
"""Of that (as a logarithm): so near to it, one more round is measured."""
ENOUGH: Final = 0.95
"""Of the best throughput that was measured."""
ROUND_MIN: Final = 16
"""Samples; of a search and of trials half as many as the limit, if that is more."""
ALONE_ROUNDS: Final = 4
"""A round of one user among several takes so many times as many samples."""
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
HOLD: Final = 60
"""Answers for each slot, at the limit, before another number is tried."""
FOLLOWS: Final = 0.5
"""Of the rise, what a trial of more must gain for the limit to follow."""
GAINS_ALL: Final = 0.7
"""With that, the search goes on."""
SAME: Final = 0.02
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


def changed(limit: Limit | None, event: NodeChanged, now_s: float) -> Limit | None:
    """Return what there is to know of a node's number after it told of itself."""
    kind = event.slots_kind
    if kind == "lent":
        return None
    if kind == "fixed":
        return limit  # it may be the single slot of a node that comes back
    if kind == "found":
        if limit is None or limit.is_named:
            limit = Limit(max(1, min(event.slots, SLOTS_MAX)), SLOTS_MAX)
    elif limit is None or not limit.is_named or limit.ceiling != event.slots:
        limit = Limit(max(1, event.slots), max(1, event.slots), is_named=True)
        limit.since_s = now_s
        limit.reason = f"the node says that it runs {event.slots} at once"
    return limit


def learn(node: Node, entry: Entry, event: Finished | Returned, now_s: float) -> None:
    """Take a run that ends and holds its lease still: a sample, or a time-out."""
    limit = node.limit
    if limit is None or waited_for_load(node, entry):
        return
    if event.why == "timed_out" and not event.strike:
        timed_out(limit, entry.since_s, now_s)
    if not isinstance(event, Finished) or not event.ok or event.ran_s is None:
        return
    arrival = entry.arrival
    computed = max(0, arrival.prompt_tokens - entry.cached_tokens)
    sample = Sample(
        arrival.model, arrival.user, computed, event.output_tokens, event.first_byte_s, event.ran_s
    )
    running = len(node.leases) + node.lent
    if entry.lent:
        if event.most < limit.slots:
            return  # how many others run is not known
        running = event.most
    finished(node, limit, sample, now_s - event.ran_s, running, now_s)


def waited_for_load(node: Node, entry: Entry) -> bool:
    """Say whether a run may have waited for its model: it says nothing then."""
    load = node.loads.get(entry.queue.lane.model)
    return entry.joins_load or (load is not None and load.entry is entry)


def finished(
    node: Node, limit: Limit, sample: Sample, started_s: float, running: int, now_s: float
) -> None:
    """Take a sample; at the end of a round, decide."""
    if started_s < limit.since_s:
        return
    if running < limit.slots and limit.phase != "search":
        return
    if limit.skip > 0:
        limit.skip -= 1
        return
    if limit.models and sample.model not in limit.models:
        _note_other(limit)
        return
    limit.samples.append(sample)
    limit.running.append(min(running, limit.slots))
    if not _is_round(node, limit):
        return
    samples, limit.samples = limit.samples, []
    runs, limit.running = limit.running, []
    if limit.phase == "search":
        _end_round(limit, samples, runs, now_s)
    elif limit.phase == "hold":
        _hold(limit, samples, now_s)
    else:
        _judge(limit, samples, now_s)


def _note_other(limit: Limit) -> None:
    """Count one of a model that nothing is known of; with many of them, begin anew."""
    limit.others += 1
    if limit.others >= OTHERS_MAX:
        limit.reference, limit.rounds, limit.samples, limit.running = [], {}, [], []
        limit.models, limit.others = {}, 0


def _end_round(limit: Limit, samples: list[Sample], runs: list[int], now_s: float) -> None:
    """Take a round of a search, at the number that ran: there may be no more than these."""
    number = sorted(runs)[len(runs) // 2]
    is_full = number == limit.slots
    if not is_full and min(runs) < EVEN * number:
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


def timed_out(limit: Limit, started_s: float, now_s: float) -> None:
    """Take a request that was not answered in time; of several at once only the first."""
    if started_s >= limit.since_s:
        slots = int(limit.slots * TIMEOUT_FACTOR)
        _lower(limit, slots, "a request was not answered in time", now_s)


def waits_inside(limit: Limit, waiting: int, running: int, now_s: float) -> None:
    """Take how many wait inside the engine by its own account, while so many are there.

    Those above the limit were begun before it was lowered: they are not taken off twice.
    """
    waiting -= max(0, running - limit.slots)
    if waiting > 0:
        noun = "request" if waiting == 1 else "requests"
        slots = max(limit.slots // 2, limit.slots - waiting)
        _lower(limit, slots, f"{waiting} {noun} waited inside the node", now_s)


def _lower(limit: Limit, slots: int, reason: str, now_s: float) -> None:
    """Go down at once. What was tried is over; only a trial goes above that again."""
    slots = max(1, slots)
    if slots >= limit.slots:
        return
    back = limit.phase == "higher" and slots >= limit.home
    limit.cap = slots
    _set_home(limit, slots, reason, now_s)
    limit.is_trial = back


def _set(limit: Limit, slots: int, reason: str, now_s: float) -> None:
    limit.skip = max(0, slots - limit.slots - 1)
    limit.slots, limit.reason, limit.since_s = slots, reason, now_s
    limit.samples, limit.running = [], []
    limit.is_trial = False


def _set_home(limit: Limit, slots: int, reason: str, now_s: float) -> None:
    if slots != limit.home or limit.phase == "search":
        limit.reference, limit.models = [], {}
    limit.phase, limit.home = "hold", slots
    limit.answers, limit.falls = 0, False
    limit.rounds = {}
    _set(limit, slots, reason, now_s)


def _search_on(limit: Limit, number: int, now_s: float, *, is_full: bool) -> None:
    """Try the next number, or hold the one that is good enough."""
    paces = measure(limit.rounds)
    does = {slots: slots / pace.stretch() for slots, pace in paces.items()}
    below = [slots for slots in does if slots < number]
    if below:
        last = max(below)
        room = _room(number, paces[number], paces[last], does, last)
        if room is not None:
            del limit.rounds[number], does[number]
            limit.cap = room
            if room not in does:  # it is measured as well
                _set(limit, room, f"with {number} at once, first bytes came late", now_s)
                return
            number = room
    if is_full and in_doubt(does) and len(limit.rounds[number]) < 2 * _round_size(limit):
        return  # one more round
    told = _gain_told(number, does)
    cap = limit.cap if is_full else max(does)
    slots = next_number(does, max(does) if limit.falls else cap)
    if slots is None and limit.falls:
        limit.falls = False
        slots = next_number(does, cap)
    if slots is not None:
        _set(limit, slots, told, now_s)
    elif is_full or not rises(does):
        limit.does = does
        _set_home(limit, good_enough(does), told, now_s)


def _room(number: int, pace: Pace, usual: Pace, does: Mapping[int, float], last: int) -> int | None:
    """Return how many do not wait inside, by Little's law; None where none seem to wait."""
    room = round(number * (1.0 - SURPLUS * pace.waiting(usual)))
    if room >= number or does[last] * max(1.0, room / last) < 0.9 * does[number]:
        return None
    return max(1, room)


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
    if does[top] >= ENOUGH * most:
        return None
    below = max((slots for slots in tried if slots < best), default=best)
    above = min(slots for slots in tried if slots > best)
    if does[below] > does[above]:
        below, above = below, best
    else:
        below, above = best, above
    between = (below + above) // 2
    return between if between > below and above > APART * below else None


def in_doubt(does: Mapping[int, float]) -> bool:
    """Say whether it may be by chance that the most that was tried seems to rise, or not to."""
    *_, last, top = (0, *sorted(does))
    return last > 0 and abs(log(does[top] / does[last] / GAIN)) < DOUBT


def rises(does: Mapping[int, float]) -> bool:
    """Say whether the most that was tried gave clearly more throughput than the next below."""
    *_, last, top = (0, *sorted(does))
    if not last:
        return True
    rise = does[top] / does[last]
    return rise >= GAIN ** (log(top / last) / log(2.0)) or (top < 4 and rise >= 0.8)


def good_enough(does: Mapping[int, float]) -> int:
    """Return the smallest number with nearly the best throughput, between those tried as well."""
    least, below = ENOUGH * max(does.values()), 0
    for slots in sorted(does):
        if does[slots] >= least:
            if not below or does[slots] <= does[below] or slots <= APART * below:
                return slots
            steep = log(does[slots] / does[below]) / log(slots / below)
            least = max(least, 0.98 * does[slots])
            between: float = below * (least / does[below]) ** (1.0 / steep)
            return min(slots, ceil(between - 0.01))
        below = slots
    return below


def loses_nothing(does: Mapping[int, float], lower: int, home: int) -> bool:
    """Say whether fewer may do as well, by what a search found."""
    below = max((slots for slots in does if slots <= lower), default=0)
    above = min((slots for slots in does if slots >= home), default=0)
    if not below or above <= below:
        return False
    steep = log(does[above] / does[below]) / log(above / below)
    return steep * log(home / lower) <= -log(ENOUGH)


def _gain_told(number: int, does: Mapping[int, float]) -> str:
    others = [slots for slots in does if slots != number]
    if not others:
        return f"the first answers came with {number} at once"
    other = min(others, key=lambda slots: abs(log(slots / number)))
    low, high = min(number, other), max(number, other)
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
    paces = measure({0: limit.reference, 1: samples})
    usual, pace = paces[0], paces[1]
    stretch = pace.stretch() / usual.stretch()
    waiting = 0.0 if limit.is_named else pace.waiting(usual)
    room = round(limit.home * (1.0 - waiting))
    if room < limit.home:
        limit.cap = max(1, room)
        kept = limit.reference, limit.models  # in which nothing waited
        _set_home(limit, limit.cap, f"with {limit.home} at once, first bytes came late", now_s)
        limit.reference, limit.models = kept
    elif not limit.is_named and not 1.0 / PACE_CHANGE < stretch < PACE_CHANGE:
        limit.phase, limit.cap, limit.falls = "search", limit.ceiling, stretch > 1.0
        slots = limit.home // 2 if limit.falls else limit.home * 2
        _set(limit, max(1, min(limit.cap, slots)), _pace_told(stretch), now_s)
    elif limit.answers >= HOLD * limit.home:
        _try(limit, samples, now_s)


def _pace_told(stretch: float) -> str:
    return f"requests take {stretch:.1f} times as long as before"


def _try(limit: Limit, samples: list[Sample], now_s: float) -> None:
    """Begin a round an eighth higher or lower."""
    home = limit.home
    step = max(1, home // 8)
    higher, lower = min(limit.ceiling, home + step), max(1, home - step)
    limit.answers = 0
    limit.reference = [*limit.reference, *samples][-2 * ROUND_MIN :]
    slots = lower if limit.tries_lower and loses_nothing(limit.does, lower, home) else higher
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
        _set_home(limit, home, told, now_s)
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
    lines: dict[tuple[str, str], Line] = {}
    for _ in range(3):
        parts: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for number, some in points.items():
            for key, x, y in some:
                stretch = paces[number][key[1] != "first"]
                parts.setdefault(key, []).append((x, y / stretch))
        lines = {key: line(part) for key, part in parts.items()}
        paces = {number: _pace(some, lines) for number, some in points.items()}
    usual_s = [0.0, 0.0]
    for some in points.values():
        for key, x, _ in some:
            usual_s[key[1] != "first"] += at(lines[key], x)
    share = usual_s[0] / max(TINY, usual_s[0] + usual_s[1])
    return {number: Pace(first, rest, share) for number, (first, rest) in paces.items()}


def _points(samples: Iterable[Sample]) -> Iterable[tuple[tuple[str, str], float, float]]:
    for one in samples:
        if one.first_byte_s is None or one.first_byte_s >= one.ran_s:
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
    first = sum(y for y, _ in firsts) / sum(usual for _, usual in firsts)
    return first, middle(rests)


def line(points: Sequence[tuple[float, float]]) -> Line:
    """Return where the line nearest to points begins and how steep it is, in relative errors."""
    usual = sum(x for x, _ in points) / len(points) + 1.0
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
    return sum(half) / len(half)
