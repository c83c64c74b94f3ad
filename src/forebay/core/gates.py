"""Why the entry that is next may not start on a node now: asked in this order, the first one holds.

1. *Rate*: its key is over its rate by now; it is parked, and keeps its place.
2. *Reach*: its owner does not get to the node; it goes first on the others.
3. *Better node*: another one has so much of its prompt cached that waiting for it pays.
4. *Memory*: the node's key-value cache has no room for it; it keeps its turn, and nothing else of
   its class or a lower one starts there before it. Asked last, of the node that was chosen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core import fairness, retries
from forebay.core.memory import is_warm
from forebay.core.placement import has_memory_for
from forebay.core.tickets import forget_hold

if TYPE_CHECKING:
    from forebay.core.events import Arrived
    from forebay.core.records import Entry, Node, WaitQueue
    from forebay.core.tickets import Book


def keeps_back(book: Book, entry: Entry, node: Node) -> bool:
    """Say whether one of the first three keeps who is next on a node from starting there."""
    if entry.claim is not None and book.rates.parks_head(entry, book.now_s):
        forget_hold(entry)
        return True
    if not book.cluster.is_reached(entry, node):
        entry.unreached |= {node.name}
        _pass_over(book, entry, node, frozenset({node.name}))
        return True
    return bool(entry.prefix) and _hold(book, entry, node)


def lacks_memory(book: Book, entry: Entry, node: Node) -> bool:
    """Close a node to all others while it has no memory for who is next there."""
    if has_memory_for(node, entry.queue.lane, entry.arrival, book.options):
        return False
    book.cluster.close(node)
    book.lines.short[node.name] = node
    return True


def better_node(
    book: Book, arrival: Arrived, queue: WaitQueue, node: Node
) -> tuple[Node, float] | None:
    """Return a busy node whose cache saves more than a turn there takes, and what it saves.

    Compared with one that has a free slot; None where there is none, or it cannot be known.
    """
    lane, cluster = queue.lane, book.cluster
    service_s = lane.times.mean_s()
    if len(lane.nodes) < 2 or service_s is None or queue.rank == book.job_rank:
        return None
    token_s, least = lane.prefill.token_s(), lane.prefill.tokens_to_wait_for()
    if float(sum(arrival.prefix_tokens)) < least:
        return None
    here = node.prefixes.cached_tokens(arrival)
    best: tuple[Node, float] | None = None
    gain_s = 0.0
    for other in lane.nodes.values():
        cached = other.prefixes.cached_tokens(arrival)
        if float(cached - here) < least or not other.slots or not is_warm(other, lane.model):
            continue
        if other.state != "online" or book.now_s < other.rest_until_s:
            continue
        if other.name in cluster.open or (
            cluster.reaches is not None and not cluster.reaches(arrival.id, other.name)
        ):
            continue
        saved_s = float(cached - here) * token_s
        wait_s = float(len(other.held) + 1) * service_s / float(other.slots)
        if saved_s - wait_s > gain_s:
            best, gain_s = (other, saved_s), saved_s - wait_s
    return best


def _hold(book: Book, entry: Entry, node: Node) -> bool:
    """Keep who is next on a node for one that has its prompt cached; once, and not for long."""
    if entry.held_until_s or entry.attempt:
        return False
    place = better_node(book, entry.arrival, entry.queue, node)
    if place is None or place[0].name in entry.excluded:
        return False
    other, saved_s = place
    if book.now_s + saved_s >= entry.deadline_s:
        return False  # it might time out for a cache
    entry.held_on, entry.held_until_s = other, book.now_s + saved_s
    entry.held_from = frozenset(entry.queue.lane.nodes) - entry.excluded - {other.name}
    other.held[entry] = None
    _pass_over(book, entry, node, entry.held_from)
    book.timers.add(entry.held_until_s, "release", entry)
    return True


def _pass_over(book: Book, entry: Entry, node: Node, excluded: frozenset[str]) -> None:
    """Keep who is next on a node off some nodes.

    It is charged as if it ran, once, and goes first wherever else it can: it was its turn.
    """
    queue = entry.queue
    book.charging.charge(entry, node)
    book.charging.refund_class(entry, node)
    fairness.take(queue, entry)
    entry.excluded |= excluded
    fairness.rejoin(queue, entry)
    book.lines.note_leave(queue)


def end_hold(entry: Entry) -> None:
    """Let an entry go anywhere that waits for a better node; the nodes must look again."""
    returned = entry.queue.returned
    retries.remove(returned, entry)
    forget_hold(entry)
    retries.add(returned, entry)
