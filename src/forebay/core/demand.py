"""What the classes of a lane ask for, over the last minutes: how much is left for those below.

**Theory.** In strict order one of a lower class starts when all ahead of it is served, and all that
has come above it meanwhile: with the work x ahead, in seconds of all slots, and the load r of the
classes above, at x / (1 - r), the mean of a busy period that begins with x. (Kleinrock, Queueing
Systems II, 3.3.) r is the requests that came above, less those that left before they ran, x the
slot-seconds of a run / the slot-seconds that passed: of the same span, because a mean of a hundred
runs is known to a tenth only, and at r = 0.8 a tenth of r is two fifths of 1 - r.

The span is of real time. While nobody of the class waits, the classes above ask for less: what was
measured only while someone waited is what they ask for at their busiest.

**What it does not do.** It does not foresee r. And where other lanes had slots of the same nodes,
what they leave to this one is known only from how fast its queue moved: `forebay.core.pace`.

A run is counted when it ends, and a mark set each second: O(1), and O(1) to ask.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from forebay.core.lanes import listing

if TYPE_CHECKING:
    from forebay.core.records import Lane, WaitQueue

SPAN_S: Final = 300.0
"""Longer than a burst, shorter than a tide, like the memory of `forebay.core.backlogs`."""
MARK_S: Final = 1.0
UNMEASURED: Final = 10.0
"""So many runs that left all slots to this class are taken as seen before the first."""
LEFT_MIN: Final = 0.02
"""Who is last gets something in the end: no span is as busy as this for ever."""

Mark = tuple[float, float, int, float, tuple[int, ...]]
"""When; slot-seconds of runs until then; runs; slot-seconds of other lanes; came, by class."""


class Demand:
    """The counts of one lane."""

    __slots__ = ("_marks", "_others_s", "next_s", "runs", "work_s")

    def __init__(self) -> None:
        self.work_s = 0.0  # slot-seconds of all runs that have ended
        self.runs = 0
        self.next_s = 0.0  # when the next mark is due
        self._others_s = 0.0  # slot-seconds that other lanes had on the nodes of this one
        self._marks: deque[Mark] = deque()

    def mark(self, lane: Lane, now_s: float) -> None:
        """Set a mark; those too old to be asked for are dropped, and all after a long pause."""
        marks = self._marks
        self.next_s = now_s + MARK_S
        if marks:
            last_s = marks[-1][0]
            held = sum(len(node.leases) for node in listing(lane)) - len(lane.running)
            if held > 0:
                self._others_s += held * (now_s - last_s)
            if now_s - last_s > SPAN_S:
                marks.clear()
        while len(marks) > 1 and marks[1][0] <= now_s - SPAN_S:
            marks.popleft()
        came = tuple(queue.ended + queue.running + queue.waiting for queue in lane.queues)
        marks.append((now_s, self.work_s, self.runs, self._others_s, came))

    def known_s(self, now_s: float) -> float:
        """Return how much of the past is known, up to about the span; 0 before the first mark."""
        return now_s - self._marks[0][0] if self._marks else 0.0

    def left(self, queue: WaitQueue, slots: int, mean_s: float, now_s: float) -> float | None:
        """Return the share of the slots that the classes above leave to this one and those below.

        None where that is not known, or not what counts: before the first mark, where nobody came
        above, where other lanes had slots, and where classes have shares, so that one does not take
        all that it asks for.
        """
        if not (self._marks and queue.lane.strict):
            return None
        at_s, work_s, runs, others_s, came = self._marks[0]
        runs = self.runs - runs
        run_s = (self.work_s - work_s + UNMEASURED * mean_s) / (runs + UNMEASURED)
        above = -sum(came[: queue.rank])
        for one in queue.lane.queues[: queue.rank]:
            above += one.ended + one.running + one.waiting
        if above <= 0 or run_s <= 0.0 or others_s < self._others_s:
            return None
        left = 1.0 - above * run_s / (slots * (now_s - at_s) + UNMEASURED * run_s)
        return left if left > LEFT_MIN else LEFT_MIN

    def came_per_s(self, queue: WaitQueue, now_s: float) -> float:
        """Return how many requests of a class have come in a second; 0 where that is not known."""
        if not self._marks:
            return 0.0
        at_s, *_, came = self._marks[0]
        count = queue.ended + queue.running + queue.waiting - came[queue.rank]
        return count / (now_s - at_s) if now_s - at_s > MARK_S else 0.0
