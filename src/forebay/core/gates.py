"""Why the entry that is next may not start on a node now: asked in this order, the first one holds.

1. *Rate*: its key is over its rate by now; it is parked, and keeps its place.
2. *Reach*: its owner does not get to the node; it goes first on the others.
3. *Better node*: it ends sooner on a busy one than on the best that is free (`placement`).
4. *Memory*: the node's key-value cache has no room for it; it keeps its turn, and nothing else of
   its class or a lower one starts there before it. The last two are asked of the node that was
   chosen, the first two of the one that is filled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core import retries
from forebay.core.placement import Start, has_memory_for
from forebay.core.tickets import total_wait_s

if TYPE_CHECKING:
    from forebay.core.events import Arrived
    from forebay.core.records import Entry, Names, Node
    from forebay.core.tickets import Book


def keeps_back(book: Book, entry: Entry, node: Node) -> bool:
    """Say whether one of the first two keeps who is next on a node from starting there."""
    if entry.claim is not None and book.rates.parks_head(entry, book.now_s):
        return True
    if not book.cluster.is_reached(entry, node):
        entry.unreached |= {node.name}
        _pass_over(book, entry, node, frozenset({node.name}))
        return True
    return False


def lacks_memory(book: Book, entry: Entry, node: Node) -> bool:
    """Close a node to all others while it has no memory for who is next there."""
    if has_memory_for(node, entry.queue.lane, entry.arrival, book.options):
        return False
    if entry.hold is not None:  # it is not full, so there is nothing to wait for
        end_hold(book, entry)
        book.lines.stale.update(entry.queue.lane.nodes)
    book.cluster.close(node)
    book.lines.short[node.name] = node
    return True


def may_be_held(book: Book, arrival: Arrived, rank: int) -> bool:
    """Say whether an arrival may wait for a better node: no job, no prompt, who may wait at all."""
    if rank == book.job_rank or arrival.patient:
        return False
    return book.bounds.lets_wait(arrival) is None


def waits_for_better(book: Book, entry: Entry, node: Node) -> bool:
    """Hold who is next for a better node than the best free one, if there is one worth it.

    It is charged, kept off the other nodes, and first of its class on that one. The hold ends after
    what it would have taken on the free one, with half of the rest of its wait limit gone, or when
    the better node cannot be used. After the first two it is never held again.
    """
    arrival, queue, now_s = entry.arrival, entry.queue, book.now_s
    if entry.hold is not None or entry.attempt or entry.guest:
        return False  # held already: it may start where it is looked at
    if 0.0 < entry.held_until_s <= now_s or not may_be_held(book, arrival, queue.rank):
        return False
    start = Start(book.cluster, queue, arrival, entry.excluded, now_s)
    hold = start.hold_for(node, total_wait_s(entry, now_s))
    if hold is None:
        return False
    hold.until_s = min(hold.until_s, now_s + (entry.deadline_s - now_s) / 2.0)
    if entry.held_until_s:
        hold.until_s = min(hold.until_s, entry.held_until_s)
    entry.held_until_s = hold.until_s
    hold.kept_off = frozenset(queue.lane.nodes) - entry.excluded - {hold.node.name}
    entry.hold = hold
    hold.node.held[entry] = None
    _pass_over(book, entry, node, hold.kept_off)
    book.timers.arm(entry)
    return True


def _pass_over(book: Book, entry: Entry, node: Node, excluded: Names) -> None:
    """Keep who is next on a node off some nodes.

    It is charged as if it ran, once, and goes first wherever else it can: it was its turn.
    """
    book.charging.charge(entry, node)
    book.charging.refund_class(entry, node)
    book.lines.leave(entry)
    entry.excluded |= excluded
    book.lines.join(entry, entry.queue.unserved_since_s, book.now_s, first=True)


def end_hold(book: Book, entry: Entry) -> None:
    """Let an entry go anywhere that waits for a better node; the nodes must look again."""
    returned = entry.queue.returned
    retries.remove(returned, entry)
    retries.forget_hold(entry)
    retries.add(returned, entry)
    book.timers.arm(entry)
