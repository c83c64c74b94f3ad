"""When an entry that waits will start: an observer of the queues, which holds its own state.

It is told when an entry *joined* a queue, *left* it or *started*, and
answers one question, *when*.

**The estimate.** An entry starts when all that goes before it has been served. Where users take
turns that includes what others have yet to send, so it also starts when its queue's clock V reaches
its tag. Raw is the larger of

    (ahead + 1) x slot-seconds per start / slots    and    (tag - V) / speed of V.

Both rates come from marks kept once a second of *busy* time, in which someone waited, over the last
five minutes or twice the wait, whichever is longer: an idle hour says nothing about a busy one. A
queue below other classes, or beside other models, takes more slot-seconds per start, so it needs no
rule of its own. Slots are those of now, so that a lost node counts at once. What waits ahead may be
of other sizes than what started lately: both are counted by what their sizes usually take.

The speed of V is that of traffic which mostly ebbs or swells before all of it has come, so the
second is trusted in part; and no queue gets much longer at once than it has been.

**The promise.** p50 is raw times the median of actual / raw in the last outcomes of its kind: its
octave, and whether others of its own stand before it. An outcome enters when its wait has ended,
and nothing is summed up over that delay: a factor that steps with each verdict would swing between
its stops. What corrects a long wait is as old as the wait is long, so that it counts for less. p90
is p50 times the 90th percentile of actual / p50.

**What it does not do.** It foresees no arrivals, and does not look at what runs now: when that ends
is a part of the first seconds only. Where nothing can be known it says None.

O(log n) to observe and to ask, n being the marks; asking changes nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from math import floor, frexp, log10
from typing import TYPE_CHECKING, Final

from forebay.core.positions import Place
from forebay.core.records import NEVER_S, SWEEP_SLACK, Estimate
from forebay.core.service_times import Recent, size_of

if TYPE_CHECKING:
    from forebay.core.records import Account, Entry, Lane, WaitQueue

SPAN_S: Final = 300.0
"""Longer than a burst, shorter than a tide."""
MARK_S: Final = 1.0
MARKS_MAX: Final = 1024
UNMEASURED: Final = 10.0
"""So many starts at the mean service time are taken as seen before the first."""
RUN_MOST: Final = 0.8
"""For one that waits the estimate counts down until the next start, by so much of what lies between
two of them."""
DAMPING: Final = 0.65
LONGEST_MOST: Final = 2.2
RAW_MIN_S: Final = 0.001
OUTCOMES, ERRORS = 200, 2000
OCTAVES: Final = 16
FIRST_OCTAVE: Final = -2
"""Below a quarter of a second all are alike, and beyond two hours."""
DOUBT: Final = 8.0
"""So many outcomes that were as estimated are taken as seen before the first."""
FRESH_S: Final = 60.0
"""Of a wait of this length half of the correction is applied."""
RATIO_MIN: Final = 0.05
P90_UNKNOWN: Final = 2.0
P90_MIN: Final = 1.1
LONGEST_OF: Final = 500
LOADING_P90: Final = 1.5
"""Loads of one model take about the same each time, but a file may have left the disk's cache."""
TINY: Final = 1e-9


class Line:
    """What is known of one queue: what waits there, how fast it moves, how waits turned out."""

    def __init__(self) -> None:
        self.owed: dict[Account, float] = {}  # the cost of what each user has waiting
        self.sizes: dict[int, int] = {}  # how many wait, by the size of their prompts
        self.busy_s = 0.0  # time in which someone waited
        self.work_s = 0.0  # slot-seconds of that time
        self.expected_s = 0.0  # what the starts in that time usually take
        self.travel = 0.0  # of the clock V
        self.at_s = self._clock = 0.0  # when that was counted last, and V then
        self._slots = 0
        self._times = [0.0]  # busy_s at each mark
        self._marks = [(0.0, 0.0, 0.0)]  # work_s, expected_s and travel there
        self._ratios: dict[int, Recent] = {}  # actual / raw, by kind
        self._errors = Recent(ERRORS)  # actual / p50
        self.longest_s = self.before_s = 0.0  # of these hundreds of starts, and of those before
        self.waits = 0  # that have been measured

    def begin(self, queue: WaitQueue, now_s: float) -> None:
        """Count from now on."""
        self.at_s, self._clock, self._slots = now_s, queue.clock, queue.lane.slots

    def count(self, entry: Entry, change: int) -> None:
        """Count one that waits, or waits no more."""
        sizes, size = self.sizes, size_of(entry.arrival.prompt_tokens)
        waiting = sizes[size] + change if size in sizes else change
        if waiting:
            sizes[size] = waiting
        else:
            del sizes[size]
        if not entry.goes_first:
            owed, account = self.owed, entry.account
            if not account.live:  # no sum of many differences is exactly zero
                del owed[account]
            else:
                owed[account] = owed.get(account, 0.0) + change * entry.price

    def count_start(self, queue: WaitQueue, entry: Entry, now_s: float) -> None:
        """Count one that waited, has been charged, and starts now."""
        slots = usable_slots(queue.lane)
        if self._slots:  # else no node was up: a load says nothing about the pace
            passed_s = now_s - self.at_s
            self.busy_s += passed_s
            self.work_s += passed_s * slots
            self.travel += queue.clock - self._clock
            self.expected_s += queue.lane.times.of_size_s(size_of(entry.arrival.prompt_tokens))
        self.begin(queue, now_s)
        if self.busy_s >= self._times[-1] + MARK_S:
            if len(self._times) == MARKS_MAX:  # the older, the fewer are needed
                del self._times[1::2], self._marks[1::2]
            self._times.append(self.busy_s)
            self._marks.append((self.work_s, self.expected_s, self.travel))
        if entry.attempt == 0:
            if entry.waited_s > self.longest_s:
                self.longest_s = entry.waited_s
            self.waits += 1
            if self.waits % LONGEST_OF == 0:
                self.before_s, self.longest_s = self.longest_s, 0.0

    def last(self, span_s: float, queue: WaitQueue, now_s: float) -> tuple[float, float, float]:
        """Return slot-seconds, what starts usually take, and V's way in about the last seconds."""
        passed_s = now_s - self.at_s if queue.waiting else 0.0
        at = bisect_right(self._times, self.busy_s + passed_s - span_s) - 1
        work_s, expected_s, travel = self._marks[at if at > 0 else 0]
        return (
            self.work_s + passed_s * usable_slots(queue.lane) - work_s,
            self.expected_s - expected_s,
            self.travel - travel,
        )

    def promise(
        self, raw_s: float, behind_own: bool, header_s: float, queue: WaitQueue | None = None
    ) -> Estimate:
        """Correct a raw estimate by earlier outcomes of its kind."""
        kind = min(max(frexp(raw_s)[1] - FIRST_OCTAVE, 0), OCTAVES - 1) + OCTAVES * behind_own
        ratios = self._ratios.get(kind)
        p50_s = raw_s
        if ratios is not None:
            trust = ratios.count / (ratios.count + DOUBT) * FRESH_S / (FRESH_S + raw_s)
            p50_s *= ratios.quantile(0.5) ** trust
        high = self._errors.quantile(0.9) if self._errors.count > DOUBT else P90_UNKNOWN
        if high < P90_MIN:
            high = P90_MIN
        return Estimate(header_s, p50_s, p50_s * high, raw_s, kind, queue)

    def learn(self, promised: Estimate, waited_s: float) -> None:
        """Take note of a wait that is over, and of how it had been estimated."""
        ratios = self._ratios.get(promised.kind)
        if ratios is None:
            ratios = self._ratios[promised.kind] = Recent(OUTCOMES)
        ratios.add(max(waited_s / promised.raw_s, RATIO_MIN))
        self._errors.add(waited_s / promised.p50_s)


class Forecast:
    """Watches the queues and says when."""

    def __init__(self) -> None:
        self._lines: dict[WaitQueue, Line] = {}
        self._sweep_at: int = SWEEP_SLACK

    # -- what it is told

    def joined(self, entry: Entry, now_s: float) -> None:
        """An entry stands in its queue."""
        queue = entry.queue
        line = self._lines.get(queue)
        if line is None:
            if len(self._lines) >= self._sweep_at:
                self._sweep()
            line = self._lines[queue] = Line()
        if queue.waiting == 1:
            line.begin(queue, now_s)
        line.count(entry, 1)

    def left(self, entry: Entry) -> None:
        """An entry stands no longer in its queue: it has ended, or goes to another."""
        self._lines[entry.queue].count(entry, -1)

    def started(self, entry: Entry, now_s: float) -> None:
        """An entry has left its queue, has been charged, and starts."""
        queue = entry.queue
        line = self._lines[queue]
        line.count_start(queue, entry, now_s)
        if entry.attempt == 0:
            promised = entry.promised
            if promised is not None and promised.queue is not None:
                told_by = self._lines.get(promised.queue)  # it may have changed its queue since
                if told_by is not None:
                    told_by.learn(promised, entry.waited_s)

    # -- what it is asked

    def when(
        self, queue: WaitQueue, place: Place, now_s: float, mine: Entry | None = None
    ) -> Estimate | None:
        """Return how long one would wait at a place in a queue, or None where that is not known.

        `mine` is that one, where it stands there already.
        """
        lane = queue.lane
        if not lane.is_up:
            return _until_loaded(lane, place.ahead, now_s)
        mean_s = lane.times.mean_s()
        if mean_s is None:
            return None
        line = self._lines.get(queue) or Line()
        each_s = self._each_s(queue, mean_s, mine)
        raw_s = _raw_s(line, queue, place, (mean_s, each_s), now_s) + _load_left_s(lane, now_s)
        if mine is not None and mine.since_s < now_s:
            passed_s = now_s - max(line.at_s, mine.since_s)
            raw_s -= min(passed_s, RUN_MOST * raw_s / (place.ahead + 1))
        scale: float = 10.0 ** (2 - floor(log10(mean_s))) if mean_s > TINY else 1.0
        digits = floor(mean_s * scale + 0.5)  # three; whole, so that 100 x 0.07 s is not over 7 s
        header_s = place.ahead * digits / (scale * (lane.slots or 1))
        return line.promise(raw_s, place.own > 0.0, header_s, queue)

    def last_in_lane_s(self, lane: Lane, now_s: float) -> float | None:
        """Return the median wait of one that came last, behind all that wait in the lane."""
        queues = lane.queues[:-1]
        longest = max(queues, key=lambda queue: queue.waiting)
        estimate = self.when(longest, Place(sum(queue.waiting for queue in queues)), now_s)
        return None if estimate is None else estimate.p50_s

    def measured(self, lane: Lane) -> int:
        """Return how many waits of a lane have been measured."""
        return sum(self._lines[queue].waits for queue in lane.queues if queue in self._lines)

    def owed(self, queue: WaitQueue) -> dict[Account, float]:
        """Return the cost of what each user has waiting in a queue."""
        line = self._lines.get(queue)
        return {} if line is None else line.owed

    # -- how it is worked out

    def _each_s(self, queue: WaitQueue, mean_s: float, mine: Entry | None) -> float:
        """Return what one usually takes of those that wait in a class or above it, without mine."""
        times, count, total_s = queue.lane.times, 0, 0.0
        means_s, usual_s = times.by_size_s, times.usual_s
        if mine is not None:
            count, total_s = -1, -times.of_size_s(size_of(mine.arrival.prompt_tokens))
        for other in queue.lane.queues:
            if other.waiting and other in self._lines:
                for size, waiting in self._lines[other].sizes.items():
                    count += waiting
                    total_s += waiting * means_s.get(size, usual_s)
            if other is queue:
                break
        return total_s / count if count > 0 else mean_s

    def _sweep(self) -> None:
        """Give up the lanes that no node lists."""
        self._lines = {
            one: line for one, line in self._lines.items()
            if one.lane.listed or one.lane.unfinished
        }  # fmt: skip
        self._sweep_at = 2 * len(self._lines) + SWEEP_SLACK


def _raw_s(
    line: Line, queue: WaitQueue, place: Place, usual_s: tuple[float, float], now_s: float
) -> float:
    """Return the larger of the two estimates.

    `usual_s` is what services usually take, and what those that wait do.
    """
    mean_s, each_s = usual_s
    slots = usable_slots(queue.lane) or 1
    span_s = 2.0 * mean_s * place.ahead / slots
    work_s, expected_s, travel = line.last(span_s if span_s > SPAN_S else SPAN_S, queue, now_s)
    prior_s = UNMEASURED * mean_s + TINY
    sure_s = (place.ahead + 1) * each_s / slots
    raw_s = sure_s * (work_s + prior_s) / (expected_s + prior_s)
    longest_s = LONGEST_MOST * _longest_s(line, queue, place.account, now_s)
    if queue.rank and raw_s > longest_s > 0.0:  # what the classes above ask for mostly ebbs, too
        raw_s = longest_s if longest_s > sure_s else sure_s
    if raw_s < RAW_MIN_S:
        raw_s = RAW_MIN_S
    if place.distance > 0.0 and travel > 0.0:
        flow_s = place.distance * work_s / (travel * slots)
        if flow_s > longest_s:
            flow_s = longest_s
        if flow_s > raw_s:
            raw_s *= (flow_s / raw_s) ** DAMPING
    return raw_s


def usable_slots(lane: Lane) -> int:
    """Return how many slots the starts of a lane come from; one kept for a better node is none."""
    nodes = lane.nodes.values()
    for node in nodes:
        if node.held:
            used = sum(min(one.slots, len(one.leases) + one.lent) for one in nodes)
            return min(used, lane.slots)
    return lane.slots


def _load_left_s(lane: Lane, now_s: float) -> float:
    """Return how long it is until any run of a lane has its model loaded."""
    soonest_s = NEVER_S
    for entry in lane.running.values():
        if entry.since_s <= now_s:
            return 0.0
        soonest_s = min(soonest_s, entry.since_s)
    return 0.0 if soonest_s == NEVER_S else soonest_s - now_s


def _longest_s(line: Line, queue: WaitQueue, account: Account | None, now_s: float) -> float:
    """Return the longest wait to reckon with, by those of late and by those that go on."""
    longest_s = line.longest_s if line.longest_s > line.before_s else line.before_s
    if queue.waiting and now_s - queue.unserved_since_s > longest_s:
        longest_s = now_s - queue.unserved_since_s
    if account is not None and account.live and account.entries:
        oldest = account.entries[0][1]
        if oldest.state == "waiting" and now_s - oldest.since_s > longest_s:
            longest_s = now_s - oldest.since_s
    return longest_s


def _until_loaded(lane: Lane, ahead: int, now_s: float) -> Estimate | None:
    """Return the wait where a node is loading: until it is ready, then those ahead."""
    at_s, slots = NEVER_S, 1
    for node in lane.listed.values():
        if node.ready_at_s is not None and node.ready_at_s < at_s:
            at_s, slots = node.ready_at_s, max(1, node.slots)
    if at_s == NEVER_S:
        return None
    wait_s = max(0.0, at_s - now_s) + ahead / slots * (lane.times.mean_s() or 0.0)
    return Estimate(wait_s, wait_s, wait_s * LOADING_P90)  # teaches nothing about service
