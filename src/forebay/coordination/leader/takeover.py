"""What a new leader hears before it decides anything.

Whoever takes over knows nothing. It waits until every replica that was alive has announced what it
has, or for a part of a lease at most, and only then goes to work: first what is known of the
nodes, then what runs (its slots are taken), then what waited, in its old order, then everything
else as it came. Who announces later is heard later.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING

from msgspec.structs import replace

from forebay.coordination.leader.node_views import View
from forebay.coordination.protocol.messages import Announced, Signed, Up
from forebay.core import NodeChanged, NodeRemoved, Resumed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.coordination.protocol.messages import Batch

GATHER = 1 / 3
"""The part of a lease for which a new leader waits for announcements."""
TAKEN_AT_ONCE = 1000
"""How much is taken between two turns of the loop: some 50 ms of work."""
KEPT = 1 << 20
"""More slots than any node has: kept back until all is known that has a claim to them."""
SEQ_BITS = 32
"""For the numbers that one epoch gives; the rest is for the epoch."""


def first_seq(epoch: int) -> int:
    """Return where an epoch's numbers begin: above all that those before it can have given.

    So what a replica announces late, because it was frozen, stands before whoever came meanwhile.
    """
    return epoch << SEQ_BITS


class Gathering:
    """Announcements on their way in."""

    def __init__(self, expected: Iterable[str], until_s: float) -> None:
        self._missing = set(expected)
        self.until_s = until_s
        self._items: dict[str, list[Up]] = {}
        self._heard_s: dict[str, float] = {}
        self._line: deque[tuple[str, Up]] | None = None  # in order, once it is over

    def begin(self, member: str, now_s: float = 0.0) -> None:
        """Forget what a replica said before: it announces anew."""
        self._items[member] = []
        self._heard_s[member] = now_s
        if self._line is not None:
            self._line = deque(said for said in self._line if said[0] != member)

    def add(self, member: str, item: Up) -> None:
        """Keep something for later."""
        if self._line is not None:
            self._line.append((member, item))
        else:
            self._items.setdefault(member, []).append(item)
        if isinstance(item, Announced):
            self._missing.discard(member)

    def keep(self, batch: Batch) -> list[Signed]:
        """Keep a batch for later; a sign of life counts now, what is counted in it in its turn."""
        for item in batch.items:
            self.add(batch.member, item)
        return [Signed(item.stamp_s) for item in batch.items if isinstance(item, Signed)]

    def leave(self, member: str) -> None:
        """Wait no longer for a replica that has gone, and forget what it said."""
        self.begin(member)
        self._missing.discard(member)
        if not self._missing:
            self.until_s = 0.0

    def is_over(self, now_s: float) -> bool:
        """Say whether all have been heard, or waited for long enough."""
        return self._line is not None or not self._missing or now_s >= self.until_s

    @property
    def is_empty(self) -> bool:
        """Whether everything was taken."""
        return not self._line

    def in_order(self, now_s: float = 0.0) -> list[tuple[str, Up]]:
        """Take the next of all that was said, the state of the world before its news.

        What waits or runs has done so while it was kept here, too.

        Not all of a long line at once: signs of life, and the lease, must not wait for it.
        """
        if self._line is None:
            said = [(member, item) for member, items in self._items.items() for item in items]
            self._line = deque(sorted(said, key=lambda one: _place(one[1])))
            self._items.clear()
            self.until_s = 0.0  # the rest comes as soon as there is time
        taken: list[tuple[str, Up]] = []
        for _ in range(min(TAKEN_AT_ONCE, len(self._line))):
            member, item = self._line.popleft()
            heard_s = self._heard_s.get(member, now_s)
            if isinstance(item, Resumed):
                item = _older(item, now_s - heard_s)
            elif isinstance(item, NodeChanged):
                item = View(item, heard_s).at(now_s)
            taken.append((member, item))
        return taken


def _older(item: Resumed, by_s: float) -> Resumed:
    if item.node:
        return replace(item, ran_s=item.ran_s + by_s)
    return replace(item, waited_s=item.waited_s + by_s)


def _place(item: Up) -> tuple[int, float, float]:
    if isinstance(item, NodeChanged | NodeRemoved):
        return (0, 0.0, 0.0)
    if not isinstance(item, Resumed):
        return (3, 0.0, 0.0)  # sorting is stable: each replica's news stays in order
    if item.node:
        return (1, 0.0, 0.0)
    return (2, item.seq or inf, -item.waited_s)
