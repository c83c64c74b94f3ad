"""What a new leader hears before it decides anything.

Whoever takes over knows nothing. It waits until every replica that was alive has announced what it
has, or for a part of a lease at most, and only then goes to work: first what is known of the
nodes, then what runs (its slots are taken), then what waited, in its old order, then everything
else as it came. Who announces later is heard later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.coordination.messages import Announced, Up
from forebay.core import NodeChanged, NodeRemoved, Resumed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Gathering:
    """Announcements on their way in."""

    def __init__(self, expected: Iterable[str], until_s: float) -> None:
        self._missing = set(expected)
        self.until_s = until_s
        self._items: dict[str, list[Up]] = {}

    def begin(self, member: str) -> None:
        """Forget what a replica said before: it announces anew."""
        self._items[member] = []

    def add(self, member: str, item: Up) -> None:
        """Keep something for later."""
        self._items.setdefault(member, []).append(item)
        if isinstance(item, Announced):
            self._missing.discard(member)

    def is_over(self, now_s: float) -> bool:
        """Say whether all have been heard, or waited for long enough."""
        return not self._missing or now_s >= self.until_s

    def in_order(self) -> Iterator[tuple[str, Up]]:
        """Return everything, the state of the world before its news."""
        said = [(member, item) for member, items in self._items.items() for item in items]
        yield from sorted(said, key=lambda one: _place(one[1]))


def _place(item: Up) -> tuple[int, float, float]:
    if isinstance(item, NodeChanged | NodeRemoved):
        return (0, 0.0, 0.0)
    if not isinstance(item, Resumed):
        return (3, 0.0, 0.0)  # sorting is stable: each replica's news stays in order
    if item.node:
        return (1, 0.0, 0.0)
    return (2, float(item.seq) if item.seq else float("inf"), -item.waited_s)
