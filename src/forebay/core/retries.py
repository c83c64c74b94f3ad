"""Entries that go first in their queue, oldest first, grouped by the nodes they are excluded from.

Those are the retries, and who was next for a node that it may not use. There can be thousands that
are all kept off the same node, so they are kept in groups: what a node may have is the oldest of
the heads of those groups that are not kept off it. Groups are few; each operation is O(groups +
log n), beside moving pointers.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import attrgetter
from typing import TYPE_CHECKING

from forebay.core.records import NOWHERE

if TYPE_CHECKING:
    from forebay.core.records import Entry, FirstInLine, Names

_by_seq = attrgetter("seq")


def add(returned: FirstInLine, entry: Entry) -> None:
    """Put an entry at its place among those kept off the same nodes."""
    insort(returned.setdefault(entry.excluded, []), entry, key=_by_seq)


def remove(returned: FirstInLine, entry: Entry) -> None:
    """Take an entry out; it must be there."""
    group = returned[entry.excluded]
    place = bisect_left(group, entry.seq, key=_by_seq)
    while group[place] is not entry:  # two taken over from different cores may have one place
        place += 1
    del group[place]
    if not group:
        del returned[entry.excluded]


def first_for(returned: FirstInLine, node: str, but: Names = NOWHERE) -> Entry | None:
    """Return the oldest that a node may have, of others than some users."""
    first: Entry | None = None
    for excluded, group in returned.items():
        if node in excluded:
            continue
        head = next((one for one in group if one.user.name not in but), None)
        if head is not None and (first is None or head.seq < first.seq):
            first = head
    return first


def count(returned: FirstInLine) -> int:
    """Count all of them."""
    return sum([len(group) for group in returned.values()])


def ahead_of(returned: FirstInLine, entry: Entry) -> int:
    """Count those that are older than one of them."""
    return sum(bisect_left(group, entry.seq, key=_by_seq) for group in returned.values())


def readmit(returned: FirstInLine, entry: Entry, node: str) -> None:
    """Let an entry run on a node again that it was kept off."""
    remove(returned, entry)
    entry.excluded -= {node}
    if entry.unreached:
        entry.unreached -= {node}
    add(returned, entry)


def forget_hold(entry: Entry) -> None:
    """Let an entry run on the nodes again that it was kept off for the sake of another."""
    hold = entry.hold
    if hold is not None:
        entry.hold = None
        hold.node.held.pop(entry, None)
        entry.excluded -= hold.kept_off
