"""Takeover by a new leader: collect the replicas' announcements, then apply them in order.

A new leader knows nothing. It waits until every replica that was alive has announced what it has,
or for a part of a lease at most. Then it takes these announcements in order: first the nodes, then
what runs (its slots are taken), then what waits, in its old order, then everything else as it came.
A replica that announces itself later is taken later.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING

from msgspec.structs import replace

from forebay.coordination.leader.node_views import ReportedNode
from forebay.coordination.protocol.messages import Announced, Heartbeat, Up
from forebay.core import NodeChanged, NodeRemoved, Resumed

if TYPE_CHECKING:
    from collections.abc import Iterable

TAKEOVER_LEASES = 1 / 3
"""The part of a lease for which a new leader waits for announcements."""
TAKEN_AT_ONCE = 1000
"""Items taken in one turn of the event loop: some 50 ms of work."""
WITHHELD = 1 << 20
"""More slots than any node has: withheld until all is known that has a claim to them."""
SEQ_BITS = 32
"""For the numbers that one epoch gives; the rest is for the epoch."""


def first_seq(epoch: int) -> int:
    """Return where an epoch's sequence numbers begin: above all of the epochs before it.

    So what a replica announces late, because it was frozen, is ahead of what arrived meanwhile.
    """
    return epoch << SEQ_BITS


class Takeover:
    """Announcements that have come in."""

    def __init__(self, expected: Iterable[str], until_s: float) -> None:
        self._missing = set(expected)
        self.until_s = until_s
        self._items: dict[str, list[Up]] = {}
        self._heard_s: dict[str, float] = {}
        self._pending: deque[tuple[str, Up]] | None = None  # in order, once all have come in

    def begin(self, member: str, now_s: float = 0.0) -> None:
        """Forget what a replica sent before: it announces itself anew."""
        self._items[member] = []
        self._heard_s[member] = now_s
        if self._pending is not None:
            self._pending = deque(said for said in self._pending if said[0] != member)

    def add(self, member: str, item: Up) -> None:
        if self._pending is not None:
            self._pending.append((member, item))
        else:
            self._items.setdefault(member, []).append(item)
        if isinstance(item, Announced):
            self._missing.discard(member)

    def keep(self, member: str, items: Iterable[Up]) -> list[Heartbeat]:
        """Keep items for later; return the heartbeats without counts, to be taken now."""
        heartbeats = []
        for item in items:
            self.add(member, item)
            if isinstance(item, Heartbeat):
                heartbeats.append(Heartbeat(item.stamp_s))
        return heartbeats

    def leave(self, member: str) -> None:
        """Wait no longer for a replica that has left, and forget what it sent."""
        self.begin(member)
        self._missing.discard(member)
        if not self._missing:
            self.until_s = 0.0

    def is_over(self, now_s: float) -> bool:
        """Say whether all have announced themselves, or the time is up."""
        return self._pending is not None or not self._missing or now_s >= self.until_s

    @property
    def is_empty(self) -> bool:
        return not self._pending

    def in_order(self, now_s: float = 0.0) -> list[tuple[str, Up]]:
        """Take the next part of what was announced, older by the time that it was kept here.

        Not all of a long queue at once: heartbeats, and the lease, must not wait for it.
        """
        if self._pending is None:
            said = [(member, item) for member, items in self._items.items() for item in items]
            self._pending = deque(sorted(said, key=lambda one: _place(one[1])))
            self._items.clear()
            self.until_s = 0.0  # the rest is taken in the next turns
        taken: list[tuple[str, Up]] = []
        for _ in range(min(TAKEN_AT_ONCE, len(self._pending))):
            member, item = self._pending.popleft()
            heard_s = self._heard_s.get(member, now_s)
            if isinstance(item, Resumed):
                item = _older(item, now_s - heard_s)
            elif isinstance(item, NodeChanged):
                item = ReportedNode(item, heard_s).at(now_s)
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
        return (3, 0.0, 0.0)  # sorting is stable: each replica's events stay in order
    if item.node:
        return (1, 0.0, 0.0)
    return (2, item.seq or inf, -item.waited_s)
