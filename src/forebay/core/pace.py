"""How fast a queue moves while requests wait in it, over any recent span.

Counted are starts, what these will take by their sizes (`forebay.core.sizes`), what they were
charged, how far the clock V went, and the slot-seconds that passed, all only in time in which
someone waited: an idle hour says nothing about a busy one. Slots
are counted by the second, so that a node that is lost, or comes back, counts at once and not when
its absence has been measured. A queue that shares its nodes with other lanes takes more
slot-seconds for each start: that is its share, and it needs no rule of its own. So does one below
other classes, but what these ask for while nobody waits below them counts as well, so that
`forebay.core.demand` is asked first.

A long wait is judged by a long past and a short one by a short past, so that any span may be asked
for. Marks are set each second and thinned when they are too many: O(1) to count, O(log) to ask.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from forebay.core.lanes import waiting_above

if TYPE_CHECKING:
    from forebay.core.records import Entry, WaitQueue

MARK_S: Final = 1.0
MARKS_MAX: Final = 1024
INSTANT_S: Final = 0.05
LIKE: Final = 0.9
"""Spans that differ by less than a tenth are taken as the same."""


class Pace:
    """The counts of one queue."""

    __slots__ = (
        "_answer", "_at_s", "_charged", "_clock", "_expected_s", "_had", "_marks", "_slots",
        "_span_s", "_starts", "_times", "_travel", "_until_s", "_work_s", "busy_s",
    )  # fmt: skip

    def __init__(self) -> None:
        self.busy_s = 0.0  # time in which someone waited
        self._work_s = 0.0  # slot-seconds of that time
        self._starts = 0
        self._expected_s = 0.0  # what these starts will take, by their sizes
        self._charged = 0.0  # for these starts, before weights
        self._travel = 0.0  # of the clock V
        self._at_s = 0.0  # when it was counted last
        self._clock = 0.0  # V then
        self._had = 0  # slots then
        self._until_s = self._span_s = 0.0  # how long the last answer stands, and what it is of
        self._slots = 0
        self._answer = (0.0, 0.0, 0, 0.0, 0.0, 0)
        self._times = [0.0]  # busy_s at each mark
        self._marks: list[tuple[float, float, int, float, float, int]] = [
            (0.0, 0.0, 0, 0.0, 0.0, 0)
        ]

    def begin(self, clock: float, slots: int, now_s: float) -> None:
        """Take note that the queue was empty until now."""
        self._at_s = now_s
        self._clock = clock
        self._had = slots

    def count_start(self, queue: WaitQueue, entry: Entry, now_s: float) -> None:
        """Count one that waited in its queue, has been charged, and starts now."""
        slots = queue.lane.slots
        if not self._had:  # no node was up: a load says nothing about the pace
            self.begin(queue.clock, slots, now_s)
            return
        passed_s = now_s - self._at_s
        self._at_s = now_s
        busy_s = self.busy_s = self.busy_s + passed_s
        lane, clock, times = queue.lane, queue.clock, self._times
        self._work_s += passed_s * slots
        self._had = slots
        self._starts += 1
        size = entry.size  # None where it came before anything was measured
        self._expected_s += size.mean_s if size is not None else lane.times.by_size.usual_s
        self._charged += entry.price
        self._travel += clock - self._clock
        self._clock = clock
        if busy_s >= times[-1] + MARK_S:
            if len(times) == MARKS_MAX:  # the older, the fewer are needed
                del times[1::2], self._marks[1::2]
            above = waiting_above(queue)
            times.append(busy_s)
            self._marks.append(
                (self._work_s, self._expected_s, self._starts, self._charged, self._travel, above)
            )

    def last(
        self, span_s: float, slots: int, above: int, now_s: float, *, busy: bool
    ) -> tuple[float, float, int, float, float, int]:
        """Return what was counted in about the last `span_s` seconds, to now.

        That is slot-seconds, what was expected of the starts, how many these were, charges, V's
        way, and by how much the classes above grew.
        While the queue is not `busy`, the time since its last start does not count.
        An answer stands for an instant, or until another span is asked for: where many ask, it is
        the same.
        """
        known_s = self._span_s
        alike = LIKE * span_s <= known_s and LIKE * known_s <= span_s
        if alike and now_s < self._until_s and slots == self._slots:
            return self._answer
        self._until_s, self._span_s, self._slots = now_s + INSTANT_S, span_s, slots
        passed_s = now_s - self._at_s if busy else 0.0
        place = bisect_right(self._times, self.busy_s + passed_s - span_s) - 1
        work_s, expected_s, starts, charged, travel, before = self._marks[place if place > 0 else 0]
        self._answer = (
            self._work_s + passed_s * slots - work_s,
            self._expected_s - expected_s,
            self._starts - starts,
            self._charged - charged,
            self._travel - travel,
            above - before,
        )
        return self._answer
