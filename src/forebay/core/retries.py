"""Entries that go first in their queue, oldest first, grouped by the nodes they are excluded from.

Those are the retries, and who was next for a node that it may not use. There can be thousands that
are all kept off the same node, so they are kept in groups: what a node may have is the oldest of
the heads of those groups that are not kept off it. Groups are few; each operation is O(groups +
log n), beside moving pointers.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import attrgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from forebay.core.entries import Entry

NOWHERE: Final[frozenset[str]] = frozenset()
_by_seq = attrgetter("seq")


class Retries:
    """The retries of one queue."""

    __slots__ = ("_groups", "count")

    def __init__(self) -> None:
        self._groups: dict[frozenset[str], list[Entry]] = {}  # nodes kept off -> entries by seq
        self.count = 0

    def add(self, entry: Entry) -> None:
        insort(self._groups.setdefault(entry.excluded, []), entry, key=_by_seq)
        self.count += 1

    def remove(self, entry: Entry) -> None:
        group = self._groups[entry.excluded]
        place = bisect_left(group, entry.seq, key=_by_seq)
        while group[place] is not entry:  # two taken over from different cores may have one place
            place += 1
        del group[place]
        if not group:
            del self._groups[entry.excluded]
        self.count -= 1

    def first_for(self, node: str, but: frozenset[str] = NOWHERE) -> Entry | None:
        """Return the oldest that a node may have, of others than some users."""
        first: Entry | None = None
        for excluded, group in self._groups.items():
            if node in excluded:
                continue
            head = next((one for one in group if one.user.name not in but), None)
            if head is not None and (first is None or head.seq < first.seq):
                first = head
        return first

    def ahead_of(self, entry: Entry) -> int:
        """Count those that are older than one of them."""
        return sum(bisect_left(group, entry.seq, key=_by_seq) for group in self._groups.values())

    def excluded_from(self, node: str) -> list[tuple[frozenset[str], list[Entry]]]:
        """Return those that are kept off a node, by all that they are kept off."""
        return [(nodes, [*group]) for nodes, group in self._groups.items() if node in nodes]

    def readmit(self, entry: Entry, node: str) -> None:
        self.remove(entry)
        entry.excluded -= {node}
        if entry.unreached:
            entry.unreached -= {node}
        self.add(entry)
