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

from forebay.core import swaps
from forebay.core.retries import NOWHERE

if TYPE_CHECKING:
    from forebay.core.entries import Entry
    from forebay.core.fairness import WaitQueue
    from forebay.core.nodes import Node
    from forebay.core.options import Options
    from forebay.core.timers import TimerQueue


class Dispatch:
    """The queues that are not empty, and the choice among them."""

    __slots__ = ("_queues", "_timers", "options", "short", "stale")

    def __init__(self, options: Options, timers: TimerQueue) -> None:
        self.options = options
        self._timers = timers
        self.stale: dict[str, Node] = {}  # nodes to fill again before the event is done
        self.short: dict[str, Node] = {}  # with a free slot, but no memory for who is next
        self._queues: list[dict[WaitQueue, None]] = [{} for _ in range(len(options.priorities) + 1)]

    def note_join(self, queue: WaitQueue, since_s: float, now_s: float) -> None:
        """Remember a queue that something has just joined which has waited since then."""
        if queue.waiting == 1:
            self._queues[queue.rank][queue] = None
            queue.unserved_since_s = since_s
            queue.pace.begin(queue.clock, queue.lane.slots, now_s)

    def note_leave(self, queue: WaitQueue) -> None:
        """Forget a queue that has just become empty, and look again at nodes that drain for it.

        And at those that had no memory for who has left: it may have kept others waiting.
        """
        if queue.waiting == 0:
            self._queues[queue.rank].pop(queue, None)
        if queue.backlogged == 0:
            for node in queue.lane.nodes.values():
                if node.swap_target == queue.lane.model:
                    self.stale[node.name] = node

        for name in self.short:
            if name in queue.lane.nodes:
                self.stale[name] = self.short[name]

    def pick(self, node: Node, now_s: float) -> Entry | None:
        """Return the entry that should start on this open node now, or None."""
        if not node.holds_all:
            return self._pick_among_models(node, now_s)
        if self.options.class_order == "weighted":
            classes = self._classes_for(node)
            return self._best(node, classes[0], now_s) if classes else None
        for rank, waiting in enumerate(self._queues):  # strict, and no model ever swaps
            if not waiting:
                continue
            queue = next(iter(waiting))
            if len(waiting) == 1 and not queue.returned.count and not node.strikes:  # mostly
                if node.name in queue.lane.nodes:
                    return queue.best()
            elif queues := self._queues_for(node, rank):
                return self._best(node, queues, now_s)
        return None

    def _pick_among_models(self, node: Node, now_s: float) -> Entry | None:
        """Like `pick`, where not all models are in memory."""
        classes = self._classes_for(node)
        if not classes or swaps.has_room(node):
            node.swap_target = None
            return self._best(node, classes[0], now_s) if classes else None
        again_s = self._choose_target(node, classes, now_s)
        may_load = node.swap_target is not None and swaps.may_load(node)
        for queues in classes:
            runnable = [one for one in queues if self._may_use_memory(node, one)]
            if may_load and not swaps.goes_before(node, queues[0].rank, self.options):
                wanted = [one for one in queues if one.lane.model == node.swap_target]
                since_s = min((one.unserved_since_s for one in wanted), default=0.0)
                runnable = [one for one in runnable if one.unserved_since_s < since_s] or wanted
            if runnable:
                return self._best(node, runnable, now_s)
        if again_s < swaps.NEVER_S:
            self._timers.wake(node, again_s, now_s)
        return None

    def _choose_target(self, node: Node, classes: list[list[WaitQueue]], now_s: float) -> float:
        """Decide whether a model must leave, and for which; return when to look again."""
        target = node.swap_target
        if target is not None and (node.is_warm(target) or not _is_wanted(node, classes)):
            node.swap_target = None  # it is there by now, or nobody waits for it any more
        chosen = None if node.swap_target is None else self._first_above(node, classes)
        again_s = swaps.NEVER_S
        if chosen is None:  # also while it drains: another may be next in turn by now
            jobs = len(self._queues) - 1
            live = [queues for queues in classes if queues[0].rank != jobs]
            chosen, again_s = swaps.next_swap(node, live or classes, not live, now_s, self.options)
        if chosen is not None:
            node.swap_victim = node.victim()
            node.swap_target, node.swap_rank = chosen.lane.model, chosen.rank
        return again_s

    def _first_above(self, node: Node, classes: list[list[WaitQueue]]) -> WaitQueue | None:
        """Return the first in turn of the classes above that for which a model leaves already."""
        ranks_above = (
            queues for queues in classes if swaps.goes_before(node, queues[0].rank, self.options)
        )
        rivals = swaps.in_turn(node, list(ranks_above))
        return rivals[0].queue if rivals else None

    def _may_use_memory(self, node: Node, queue: WaitQueue) -> bool:
        """Say whether a queue's model is in memory and not about to leave for others' sake."""
        model = queue.lane.model
        if not node.is_warm(model):
            return False
        leaves = node.swap_target is not None and model == node.swap_victim
        return not leaves or swaps.goes_before(node, queue.rank, self.options)

    def earliest_s(self, queue: WaitQueue, now_s: float) -> float | None:
        """Return how soon a newcomer of a queue can run at best whose model no node has in memory.

        Were it the first of its queue. None where that is not so.
        """
        found: list[float] = []
        for node in queue.lane.nodes.values():
            if node.state != "online" or not node.slots:
                continue
            if node.is_warm(queue.lane.model):
                return None
            classes = self._classes_for(node)
            if classes and classes[-1][0].rank == len(self._queues) - 1:
                classes.pop()
            found.append(swaps.earliest_s(node, classes, queue, now_s, self.options))
        return min(found, default=None)

    def _classes_for(self, node: Node) -> list[list[WaitQueue]]:
        """Return what a node could run by class, the next one first; jobs are last."""
        found = (self._queues_for(node, rank) for rank in self._ranks_in_order(node))
        return [queues for queues in found if queues]

    def _ranks_in_order(self, node: Node) -> list[int]:
        """Return the classes that wait for something, the next one first; jobs are last."""
        jobs = len(self._queues) - 1
        ranks = [rank for rank in range(jobs) if self._queues[rank]]
        if len(ranks) > 1 and self.options.class_order == "weighted":
            ranks = node.shares.order(ranks)
        if self._queues[jobs]:
            ranks.append(jobs)
        return ranks

    def _queues_for(self, node: Node, rank: int) -> list[WaitQueue]:
        """Return the queues of a class that have an entry which may run on this node."""
        name = node.name
        return [
            queue
            for queue in self._queues[rank]
            if name in queue.lane.nodes
            and (queue.backlogged or queue.first_returned(node) is not None)
        ]

    def _best(self, node: Node, queues: list[WaitQueue], now_s: float) -> Entry | None:
        """Return who of one class is next: others before those who have struck out."""
        if node.strikes and (struck := node.struck(now_s)):
            others = [queue for queue in queues if queue.next_for(node, struck) is not None]
            if others:
                return self._first(node, others, struck)
        return self._first(node, queues, NOWHERE)

    def _first(self, node: Node, queues: list[WaitQueue], struck: frozenset[str]) -> Entry | None:
        if len(queues) == 1:  # nothing to compare, so nothing is placed in the node's time yet
            return queues[0].next_for(node, struck)
        best: Entry | None = None
        best_key: tuple[float, int] | None = None
        for queue in queues:
            entry = queue.next_for(node, struck)
            if entry is None:
                continue
            if entry.goes_first:
                key = (node.shares.clocks[queue.rank], entry.seq)
            else:
                key = (node.shares.tag(queue, entry.account.counter), entry.seq)
            if best_key is None or key < best_key:
                best, best_key = entry, key
        return best


def _is_wanted(node: Node, classes: list[list[WaitQueue]]) -> bool:
    """Say whether anyone of the class that asked for a swap, or of a higher one, still does."""
    return any(
        queue.lane.model == node.swap_target
        for queues in classes
        for queue in queues
        if queue.rank <= node.swap_rank
    )
