"""What is due when: one heap for deadlines, promotions, holds, nodes and rates to look at again.

Items are never removed when they become moot; they are checked when due and swept when more than
half of them are dead. What is due at the same time comes in order of arrival, so that neither
sweeping nor asking for the next deadline can be told from outside. The shell arms one timer.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from forebay.core.records import NEVER_S, Entry, Node

if TYPE_CHECKING:
    from forebay.core.records import KeyRate

Kind: TypeAlias = Literal["deadline", "promotion", "release", "wake", "rate"]
SWEEP_SLACK: Final = 256


class Due(NamedTuple):
    """What is due, in the order in which it must be dealt with: nothing starts once expired."""

    expired: dict[Entry, None]
    promoted: dict[Entry, None]
    released: dict[Entry, None]
    nodes: dict[Node, None]
    rates: dict[KeyRate, None]


class TimerQueue:
    """A heap of things to look at."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, Kind, Entry | Node | KeyRate]] = []
        self._count = 0
        self._sweep_at: int = SWEEP_SLACK
        self.next_s = NEVER_S

    def add(self, at_s: float, kind: Kind, target: Entry | Node | KeyRate) -> None:
        """Ask to look at something at a given time."""
        if len(self._heap) >= self._sweep_at:
            self._sweep()
        self._count += 1
        heappush(self._heap, (at_s, target.seq, self._count, kind, target))
        if at_s < self.next_s:
            self.next_s = at_s

    def wake(self, node: Node, at_s: float, now_s: float) -> None:
        """Ask to look at a node again at a given time, or sooner if that was asked already."""
        if node.wake_s <= now_s or at_s < node.wake_s:
            node.wake_s = at_s
            self.add(at_s, "wake", node)

    def due(self, now_s: float) -> Due:
        heap = self._heap
        # Dicts, because a deadline that is set twice to the same time is in the heap twice.
        due = Due({}, {}, {}, {}, {})
        while heap and heap[0][0] <= now_s:
            at_s, _, _, kind, target = heappop(heap)
            if not _is_live(at_s, kind, target):
                continue
            if isinstance(target, Node):
                due.nodes[target] = None
            elif not isinstance(target, Entry):
                due.rates[target] = None
            elif kind == "deadline":
                due.expired[target] = None
            elif kind == "release":
                due.released[target] = None
            else:
                due.promoted[target] = None
        self.next_s = heap[0][0] if heap else NEVER_S
        return due

    def next_live_s(self) -> float | None:
        """Return when something is due that still matters."""
        heap = self._heap
        while heap:
            at_s, _, _, kind, target = heap[0]
            if _is_live(at_s, kind, target):
                self.next_s = at_s
                return at_s
            heappop(heap)
        self.next_s = NEVER_S
        return None

    def _sweep(self) -> None:
        self._heap = [item for item in self._heap if _is_live(item[0], item[3], item[4])]
        heapify(self._heap)
        self._sweep_at = 2 * len(self._heap) + SWEEP_SLACK


def _is_live(at_s: float, kind: Kind, target: Entry | Node | KeyRate) -> bool:
    if not isinstance(target, Entry):
        return target.wake_s == at_s
    if kind == "release":
        return target.hold is not None and target.hold.until_s == at_s
    claim = target.claim
    if kind == "deadline" and claim is not None and claim.gated and claim.parked:
        return False  # it stands still, and is set again
    due_s = target.deadline_s if kind == "deadline" else target.promotes_at_s
    return target.state == "waiting" and due_s == at_s
