"""When to look at what again: one heap of entries that wait, of nodes, and of rates of keys.

Each of them says in `wake_s` when it is looked at next, whatever for, and is in the heap with that
time. Items are never removed when they become moot; they are checked when due and swept when more
than half of them are dead. What is due at the same time comes in order of arrival, so that neither
sweeping nor asking for the next deadline can be told from outside. The shell arms one timer.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, TypeAlias

from forebay.core.records import NEVER_S, SWEEP_SLACK, Entry, Node

if TYPE_CHECKING:
    from forebay.core.records import KeyRate

    Target: TypeAlias = Entry | Node | KeyRate


class TimerQueue:
    """A heap of things to look at."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, Target]] = []
        self._count = 0
        self._sweep_at: int = SWEEP_SLACK
        self.next_s = NEVER_S

    def set(self, target: Target, at_s: float) -> None:
        """Ask to look at something at a given time, and not before."""
        if at_s == target.wake_s:
            return
        target.wake_s = at_s
        if at_s == NEVER_S:
            return
        if len(self._heap) >= self._sweep_at:
            self._heap = [item for item in self._heap if item[3].wake_s == item[0]]
            heapify(self._heap)
            self._sweep_at = 2 * len(self._heap) + SWEEP_SLACK
        self._count += 1
        heappush(self._heap, (at_s, target.seq, self._count, target))
        if at_s < self.next_s:
            self.next_s = at_s

    def arm(self, entry: Entry) -> None:
        """Look at one that waits when it expires, counts one class higher, or its hold ends."""
        at_s = min(entry.deadline_s, entry.since_s + entry.promotes_in_s)
        if entry.hold is not None:
            at_s = min(at_s, entry.hold.until_s)
        self.set(entry, at_s)

    def due(self, now_s: float) -> tuple[list[Entry], list[KeyRate], list[Node]]:
        """Return what is due, each to be looked at at once: it is in the heap no more."""
        entries: list[Entry] = []
        rates: list[KeyRate] = []
        nodes: list[Node] = []
        while (at_s := self.next_live_s()) is not None and at_s <= now_s:
            target = heappop(self._heap)[3]
            target.wake_s = NEVER_S
            if isinstance(target, Entry):
                entries.append(target)
            elif isinstance(target, Node):
                nodes.append(target)
            else:
                rates.append(target)
        return entries, rates, nodes

    def next_live_s(self) -> float | None:
        """Return when something is due that still matters."""
        heap = self._heap
        while heap:
            at_s, _, _, target = heap[0]
            if target.wake_s == at_s:
                self.next_s = at_s
                return at_s
            heappop(heap)
        self.next_s = NEVER_S
        return None
