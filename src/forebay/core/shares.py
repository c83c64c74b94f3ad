"""How one node shares its slots between queues and, in weighted order, between classes.

**Queues.** Each queue keeps its users' counters in its own virtual time, so two queues can only be
compared in the time of the node that serves both. The node keeps an offset per queue: a head's
*tag* is its counter plus that offset, and the lowest tag is next. The node's clock is the tag of
what it dispatched last. A queue whose tag fell behind the clock (it was empty, its model was cold,
its node was away) is moved up to it, and one too far ahead (another node served it meanwhile) is
moved back to within its largest charge. Moving the *queue* keeps its users' order among themselves.
For queues that are backlogged here all along neither move ever happens, so they share as if all
users stood in one queue: nine users in one lane and one in another get a tenth each.

**Classes.** Weighted order is start-time fair queueing again, with the class's weight: a class
that is backlogged on this node gets at least its share of tokens less one largest cost. The state
is per node, because only a node's own picks tell which classes competed for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forebay.core.records import Shares, WaitQueue


def tag_of(shares: Shares, queue: WaitQueue, counter: float) -> float:
    """Return where a head of that queue stands in this node's time."""
    clock = shares.clocks[queue.rank]
    tag = counter + shares.offsets.get(queue, 0.0)
    if tag < clock:
        shares.offsets[queue] = clock - counter
        return clock
    if tag > clock + queue.charge_max:
        tag = clock + queue.charge_max
        shares.offsets[queue] = tag - counter
    return tag


def classes_in_order(shares: Shares, ranks: Sequence[int]) -> list[int]:
    """Sort the classes by what they are owed; ties go to the more urgent."""
    return sorted(ranks, key=lambda rank: (max(shares.class_tags[rank], shares.class_clock), rank))


def charge_class(shares: Shares, rank: int, amount: float) -> None:
    """Charge a class for a dispatch; `amount` is the cost over the class's weight."""
    start = max(shares.class_tags[rank], shares.class_clock)
    shares.class_clock = start
    shares.class_tags[rank] = start + amount


def correct_class(shares: Shares, rank: int, amount: float) -> None:
    """Add to a class's tag, or give back, never behind the clock."""
    shares.class_tags[rank] = max(shares.class_tags[rank] + amount, shares.class_clock)
