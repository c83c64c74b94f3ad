"""Which entry a free slot goes to: classes in order, then queues, then users.

1. Class: strict order, or what the classes are owed on this node; jobs come after all of them.
2. Queue: of those with something for this node, the swap rule may leave only some; of these, one
   with a retry, else the lowest tag in the node's time; ties go to the oldest head.
3. Entry: the oldest retry, else the head of the user with the lowest counter.

A queue that cannot use this node is passed over and blocks nobody. The cost is O(queues that are
not empty + log n): lanes are configuration, not load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core import swaps

if TYPE_CHECKING:
    from forebay.core.entries import Entry
    from forebay.core.fairness import WaitQueue
    from forebay.core.nodes import Node
    from forebay.core.options import Options
    from forebay.core.timers import TimerQueue


class Dispatch:
    """The queues that are not empty, and the choice among them."""

    __slots__ = ("_queues", "_timers", "options", "stale")

    def __init__(self, options: Options, timers: TimerQueue) -> None:
        self.options = options
        self._timers = timers
        self.stale: dict[str, Node] = {}  # nodes to fill again before the event is done
        self._queues: list[dict[WaitQueue, None]] = [{} for _ in range(len(options.priorities) + 1)]

    def note_join(self, queue: WaitQueue, now_s: float) -> None:
        """Remember a queue that something has just joined."""
        if queue.waiting == 1:
            self._queues[queue.rank][queue] = None
            queue.unserved_since_s = now_s

    def note_leave(self, queue: WaitQueue) -> None:
        """Forget a queue that has just become empty, and look again at nodes that drain for it."""
        if queue.waiting == 0:
            self._queues[queue.rank].pop(queue, None)
        if queue.backlogged == 0:
            for node in queue.lane.nodes.values():
                if node.swap_target == queue.lane.model:
                    self.stale[node.name] = node

    def pick(self, node: Node, now_s: float) -> Entry | None:
        """Return the entry that should start on this open node now, or None."""
        if node.loaded is not None or self.options.class_order == "weighted":
            return self._pick_in_order(node, now_s)
        for rank, waiting in enumerate(self._queues):  # strict, and no model ever swaps
            if not waiting:
                continue
            (queue, *others) = waiting
            if (
                not others and not queue.returned.count
            ):  # by far the most common: nothing to compare
                if node.name in queue.lane.nodes:
                    return queue.best()
            elif queues := self._queues_for(node, rank):
                return self._best(node, queues)
        return None

    def _pick_in_order(self, node: Node, now_s: float) -> Entry | None:
        """Like `pick`, for nodes that swap models and for weighted order."""
        if node.swap_target is not None and not self._wanted(node, node.swap_target):
            node.swap_target = None
        jobs = len(self._queues) - 1
        ranks = self._ranks_in_order(node)
        for place, rank in enumerate(ranks):
            queues = self._queues_for(node, rank)
            if queues and node.loaded is not None:
                below = [other for other in ranks[place + 1 :] if other != jobs]
                queues = self._after_swaps(node, rank, queues, below, now_s)
                if not queues and node.swap_target is not None and not swaps.may_load(node):
                    return None  # draining: classes that could go first have been asked
            if queues:
                return self._best(node, queues)
        if node.swap_target is None:
            return None
        node.swap_target = None  # nobody may load it after all: let the others on
        return self._pick_in_order(node, now_s)

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

    def _best(self, node: Node, queues: list[WaitQueue]) -> Entry | None:
        if len(queues) == 1:  # nothing to compare, so nothing is placed in the node's time yet
            return queues[0].first_returned(node) or queues[0].best()
        best: Entry | None = None
        best_key: tuple[float, int] | None = None
        for queue in queues:
            entry = queue.first_returned(node) if queue.returned.count else None
            if entry is not None:
                key = (node.shares.clocks[queue.rank], entry.seq)
            else:
                entry = queue.best()
                if entry is None:
                    continue
                key = (node.shares.tag(queue, entry.account.counter), entry.seq)
            if best_key is None or key < best_key:
                best, best_key = entry, key
        return best

    def _after_swaps(
        self, node: Node, rank: int, queues: list[WaitQueue], below: list[int], now_s: float
    ) -> list[WaitQueue]:
        """Return the queues that the swap rule lets run now; may start a drain."""
        target = node.swap_target
        wanted = [queue for queue in queues if queue.lane.model == target]
        if target is not None and (rank >= node.swap_rank or len(wanted) == len(queues)):
            queues = wanted  # the swap is decided: who wants that model goes by class
        else:
            warm_below = rank == len(self._queues) - 1 or any(
                node.is_warm(queue.lane.model)
                for other in below
                for queue in self._queues_for(node, other)
            )
            queues, again_s = swaps.choose(
                node, queues, warm_below, now_s, self.options.swap_wait_s
            )
            if again_s is not None:
                self._timers.wake(node, again_s, now_s)
        if queues and not node.is_warm(queues[0].lane.model) and not swaps.may_load(node):
            node.swap_target, node.swap_rank = queues[0].lane.model, rank
            return []
        return queues

    def _wanted(self, node: Node, model: str) -> bool:
        """Say whether anyone of the class that asked for a swap, or of a higher one, still does."""
        return any(
            queue.lane.model == model
            for rank in range(node.swap_rank + 1)
            for queue in self._queues_for(node, rank)
        )
