"""A replica without its fleet: it leads itself, on its own share of the slots, without a queue.

What runs goes on. What waited already keeps its place and may start on the share as it comes free;
newcomers start at once or are refused (503): nobody knows how long the whole queue is, so no wait
is promised. Cut off (the others still have a leader), the share is nothing: the slots are theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from msgspec.structs import replace

from forebay.core import KeyLimits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.coordination.protocol.fleet import Mode
    from forebay.core import NodeChanged, Options, Reject

NO_SHARE = "the gateways cannot coordinate, and this gateway's share of the slots is in use"
CUT_OFF = (
    "this gateway cannot reach the shared store, but others may: it starts nothing new until it can"
)


class Share:
    """What one replica may use by itself."""

    def __init__(self, me: str, members: Iterable[str], *, cut_off: bool) -> None:
        """`members` are the replicas that were known last."""
        self._me = me
        self._everyone = {me, *members}
        self.cut_off = cut_off

    def mode(self, views: Iterable[NodeChanged]) -> Mode:
        """Return `cut_off` also where the share of every node is nothing."""
        shares = [self._slots(view) for view in views]
        return "cut_off" if self.cut_off or (shares and not any(shares)) else "alone"

    def of_node(self, view: NodeChanged) -> NodeChanged:
        """Return a node with the slots that are ours."""
        return replace(view, slots=self._slots(view), slots_kind="lent")

    def of_options(self, options: Options) -> Options:
        """Return the options of one that may not queue, and has a part of each key's rate."""
        others = len(self._everyone)
        limits = {key: _part(whole, others) for key, whole in options.key_limits.items()}
        return replace(options, enabled=False, key_limits=limits)

    def explained(self, action: Reject) -> Reject:
        """Return a rejection that says that it is for want of coordination, where it is."""
        if action.code in ("queue_disabled", "stream_not_queued"):
            why = CUT_OFF if self.cut_off else NO_SHARE
            return replace(action, code="coordination_lost", reasons=(why,))
        return action

    def _slots(self, view: NodeChanged) -> int:
        return 0 if self.cut_off else share_of(self._me, self._everyone, view.name, view.slots)


def _part(limits: KeyLimits, of: int) -> KeyLimits:
    """Divide limits among so many replicas; each has at least 1."""
    requests, tokens = limits.requests_per_minute, limits.tokens_per_minute
    return KeyLimits(-(-requests // of), -(-tokens // of), -(-limits.tokens_per_day // of))


def share_of(me: str, members: Iterable[str], node: str, slots: int) -> int:
    """Return how many of a node's slots are mine: a partition that all replicas work out alike.

    A node's slots are dealt out one by one over the replicas that were last known, in an order of
    its own for each node (rendezvous hashing, Thaler and Ravishankar 1998), so that the odd slots
    of many nodes spread over all. The shares of one node add up to its slots, whoever reckons, as
    long as all know the same replicas. A node with one slot belongs to one replica.

    >>> [share_of(name, ("a", "b", "c"), "gpu1", 4) for name in ("a", "b", "c")]
    [2, 1, 1]
    """
    everyone = sorted({me, *members}, key=lambda name: (crc32(f"{node}/{name}".encode()), name))
    whole, odd = divmod(max(0, slots), len(everyone))
    return whole + (everyone.index(me) < odd)
