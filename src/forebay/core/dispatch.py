"""Which entry a free slot goes to: classes in order, then queues, then users.

1. Class: strict order, or what the classes are owed on this node; jobs come after all of them.
2. Queue: of those with something for this node, the swap rule may leave only some; of these, one
   with a retry, else the lowest tag in the node's time; ties go to the oldest head.
3. Entry: the oldest retry, else the head of the user with the lowest counter. Users with three
   strikes on the node come after all others of the class (`forebay.core.nodes`).

A queue that cannot use this node is passed over and blocks nobody. The cost is O(queues that are
not empty + log n): lanes are configuration, not load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core import gates, nodes, shares, swaps
from forebay.core.fairness import best, next_for
from forebay.core.memory import is_warm, victim
from forebay.core.placement import choose
from forebay.core.records import NEVER_S, NOWHERE
from forebay.core.retries import first_for

if TYPE_CHECKING:
    from forebay.core.records import Entry, Lane, Names, Node, WaitQueue
    from forebay.core.tickets import Book


def fill(book: Book, node: Node, fresh: Entry | None = None) -> None:
    """Start what may start on a node, until it is full or nothing fits.

    What has waited could use no other node, or it would run there. Only a `fresh` entry, which
    has just become eligible, may still find a better one.
    """
    cluster = book.cluster
    if node.removed or not nodes.would_open(node, book.now_s):
        cluster.close(node)
        return
    while len(node.leases) + node.lent < node.slots:  # `has_room`, without the call
        entry = pick(book, node)
        if entry is None:
            cluster.open[node.name] = node
            return
        claim = entry.claim
        is_gated = claim is not None or cluster.reaches is not None
        if is_gated and gates.keeps_back(book, entry, node):  # nearly never
            continue
        is_fresh = entry is fresh or claim is not None  # its rate may have kept it off other nodes
        best = _best_open(book, entry, node) if is_fresh else node
        if len(entry.queue.lane.nodes) > 1 and gates.waits_for_better(book, entry, best):
            continue
        if node.room is not None and best is node and gates.lacks_memory(book, entry, node):
            return
        book.start(entry, best)
    cluster.open.pop(node.name, None)  # it is full


def _best_open(book: Book, entry: Entry, node: Node) -> Node:
    """Return where an entry had better start that may use a node, and maybe others."""
    cluster = book.cluster
    cluster.open[node.name] = node
    if node.swap_target == entry.queue.lane.model:
        node.swap_target = None  # it comes now, here or on a better node
    best = choose(cluster, entry.queue, entry.arrival, entry.excluded, book.now_s)
    if best is None or (entry.claim is not None and pick(book, best) is not entry):
        return node  # there another one is first
    return best


def fill_stale(book: Book) -> None:
    """Fill the nodes whose reason to keep a slot free may be gone."""
    stale = book.lines.stale
    while stale:
        node = stale.pop(next(iter(stale)))
        if node.held:
            release_holds(book, node)
        fill(book, node)


def fill_open(book: Book, lane: Lane, fresh: Entry) -> None:
    """Let the open nodes of a lane look again: something has joined it."""
    open_nodes, short = book.cluster.open, book.lines.short
    if open_nodes or short:
        for node in list(lane.nodes.values()):
            if node.name in open_nodes or node.name in short:
                fill(book, node, fresh)


def end_holds(book: Book, entries: list[Entry]) -> None:
    """Let entries go anywhere that waited for a better node: all, before the first may start."""
    for entry in entries:
        gates.end_hold(book, entry)
    for entry in entries:
        if entry.state == "waiting":
            fill_open(book, entry.queue.lane, entry)


def release_holds(book: Book, node: Node) -> None:
    """Let those go anywhere that wait for a node which cannot be used now, or lost their model."""
    is_up = node.state == "online" and book.now_s >= node.rest_until_s
    lost: list[Entry] = []
    for entry in node.held:
        lane = entry.queue.lane
        if not is_up or node.name not in lane.nodes or not is_warm(node, lane.model):
            lost.append(entry)
    end_holds(book, lost)


def pick(book: Book, node: Node) -> Entry | None:
    """Return the entry that should start on this open node now, or None."""
    if not node.holds_all:
        return _pick_among_models(book, node)
    if book.options.class_order == "weighted":
        classes = _classes_for(book, node)
        return _best(book, node, classes[0]) if classes else None
    for rank, waiting in enumerate(book.lines.queues):  # strict, and no model ever swaps
        if not waiting:
            continue
        queue = next(iter(waiting))
        if len(waiting) == 1 and not queue.returned and not node.strikes:  # mostly
            if node.name in queue.lane.nodes:
                return best(queue)
        elif queues := _queues_for(book, node, rank):
            return _best(book, node, queues)
    return None


def _pick_among_models(book: Book, node: Node) -> Entry | None:
    """Like `pick`, where not all models are in memory."""
    classes = _classes_for(book, node)
    if not classes or swaps.has_room(node):
        node.swap_target = None
        return _best(book, node, classes[0]) if classes else None
    again_s = _choose_target(book, node, classes)
    may_load = node.swap_target is not None and swaps.may_load(node)
    for queues in classes:
        runnable = [
            one for one in queues
            if swaps.may_use(node, one.lane.model, one.rank, book.options)
        ]  # fmt: skip
        if may_load and not swaps.goes_before(node, queues[0].rank, book.options):
            wanted = [one for one in queues if one.lane.model == node.swap_target]
            since_s = min((one.unserved_since_s for one in wanted), default=0.0)
            runnable = [one for one in runnable if one.unserved_since_s < since_s] or wanted
        if runnable:
            return _best(book, node, runnable)
    if again_s < NEVER_S:
        book.timers.set(node, min(node.wake_s, again_s))
    return None


def _choose_target(book: Book, node: Node, classes: list[list[WaitQueue]]) -> float:
    """Decide whether a model must leave, and for which; return when to look again."""
    target = node.swap_target
    if target is not None and (is_warm(node, target) or not _is_wanted(node, classes)):
        node.swap_target = None  # it is there by now, or nobody waits for it any more
    chosen = None if node.swap_target is None else _first_above(book, node, classes)
    again_s = NEVER_S
    if chosen is None:  # also while it drains: another may be next in turn by now
        live = [queues for queues in classes if queues[0].rank != book.job_rank]
        chosen, again_s = swaps.next_swap(node, live or classes, not live, book.now_s, book.options)
    if chosen is not None:
        node.swap_victim = victim(node)
        node.swap_target, node.swap_rank = chosen.lane.model, chosen.rank
    return again_s


def _first_above(book: Book, node: Node, classes: list[list[WaitQueue]]) -> WaitQueue | None:
    """Return the first in turn of the classes above that for which a model leaves already."""
    ranks_above = (
        queues for queues in classes if swaps.goes_before(node, queues[0].rank, book.options)
    )
    rivals = swaps.in_turn(node, list(ranks_above))
    return rivals[0].queue if rivals else None


def earliest_s(book: Book, queue: WaitQueue) -> float | None:
    """Return how soon a newcomer of a queue can run at best whose model no node has in memory.

    Were it the first of its queue. None where that is not so.
    """
    found: list[float] = []
    for node in queue.lane.nodes.values():
        if node.state != "online" or not node.slots:
            continue
        if is_warm(node, queue.lane.model):
            return None
        classes = _classes_for(book, node)
        if classes and classes[-1][0].rank == book.job_rank:
            classes.pop()
        found.append(swaps.earliest_s(node, classes, queue, book.now_s, book.options))
    return min(found, default=None)


def _classes_for(book: Book, node: Node) -> list[list[WaitQueue]]:
    """Return what a node could run by class, the next one first; jobs are last."""
    ranks = [rank for rank in range(book.job_rank) if book.lines.queues[rank]]
    if book.options.class_order == "weighted":
        ranks = shares.classes_in_order(node.shares, ranks)
    found = [_queues_for(book, node, rank) for rank in (*ranks, book.job_rank)]
    return [queues for queues in found if queues]


def _queues_for(book: Book, node: Node, rank: int) -> list[WaitQueue]:
    """Return the queues of a class that have an entry which may run on this node."""
    name = node.name
    return [
        queue
        for queue in book.lines.queues[rank]
        if name in queue.lane.nodes
        and (queue.backlogged or first_for(queue.returned, name) is not None)
    ]


def _best(book: Book, node: Node, queues: list[WaitQueue]) -> Entry | None:
    """Return who of one class is next: others before those who have struck out."""
    if node.strikes and (struck := nodes.struck(node, book.now_s)):
        return _first(node, queues, struck) or _first(node, queues, NOWHERE)
    return _first(node, queues, NOWHERE)


def _first(node: Node, queues: list[WaitQueue], struck: Names) -> Entry | None:
    if len(queues) == 1:  # nothing to compare, so nothing is placed in the node's time yet
        return next_for(queues[0], node, struck)
    chosen: Entry | None = None
    chosen_key: tuple[float, int] | None = None
    for queue in queues:
        entry = next_for(queue, node, struck)
        if entry is None:
            continue
        if entry.goes_first:
            key = (node.shares.clocks[queue.rank], entry.seq)
        else:
            key = (shares.tag_of(node.shares, queue, entry.account.counter), entry.seq)
        if chosen_key is None or key < chosen_key:
            chosen, chosen_key = entry, key
    return chosen


def _is_wanted(node: Node, classes: list[list[WaitQueue]]) -> bool:
    """Say whether anyone of the class that asked for a swap, or of a higher one, still does."""
    return any(
        queue.lane.model == node.swap_target
        for queues in classes
        for queue in queues
        if queue.rank <= node.swap_rank
    )
