"""Which entry a free slot goes to: classes in order, then lines, then users.

1. Class: strict order, or what the classes are owed on this node; jobs come after all of them.
2. Line: of those with something for this node, the swap rule may leave only some; of these, one
   with a retry, else the lowest tag in the node's time; ties go to the oldest head.
3. Entry: the oldest retry, else the head of the user with the lowest counter.

A line that cannot use this node is passed over and blocks nobody. The cost is O(lines that are
not empty + log n): lanes are configuration, not load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core import swaps

if TYPE_CHECKING:
    from forebay.core.entries import Entry
    from forebay.core.fairness import Line
    from forebay.core.nodes import Node
    from forebay.core.options import Options
    from forebay.core.timers import Timers


class Dispatch:
    """The lines that are not empty, and the choice among them."""

    __slots__ = ("_lines", "_timers", "options", "stale")

    def __init__(self, options: Options, timers: Timers) -> None:
        self.options = options
        self._timers = timers
        self.stale: dict[str, Node] = {}  # nodes to fill again before the event is done
        self._lines: list[dict[Line, None]] = [{} for _ in range(len(options.priorities) + 1)]

    def note_join(self, line: Line, now_s: float) -> None:
        """Remember a line that something has just joined."""
        if line.waiting == 1:
            self._lines[line.rank][line] = None
            line.unserved_since_s = now_s

    def note_leave(self, line: Line) -> None:
        """Forget a line that has just become empty, and look again at nodes that drain for it."""
        if line.waiting == 0:
            self._lines[line.rank].pop(line, None)
        if line.backlogged == 0:
            for node in line.lane.nodes.values():
                if node.swap_target == line.lane.model:
                    self.stale[node.name] = node

    def pick(self, node: Node, now_s: float) -> Entry | None:
        """Return the entry that should start on this open node now, or None."""
        if node.loaded is not None or self.options.class_order == "weighted":
            return self._pick_in_order(node, now_s)
        for rank, waiting in enumerate(self._lines):  # strict, and no model ever swaps
            if not waiting:
                continue
            (line, *others) = waiting
            if not others and not line.returned.count:  # by far the most common: nothing to compare
                if node.name in line.lane.nodes:
                    return line.best()
            elif lines := self._lines_for(node, rank):
                return self._best(node, lines)
        return None

    def _pick_in_order(self, node: Node, now_s: float) -> Entry | None:
        """Like `pick`, for nodes that swap models and for weighted order."""
        if node.swap_target is not None and not self._wanted(node, node.swap_target):
            node.swap_target = None
        jobs = len(self._lines) - 1
        ranks = self._ranks_in_order(node)
        for place, rank in enumerate(ranks):
            lines = self._lines_for(node, rank)
            if lines and node.loaded is not None:
                below = [other for other in ranks[place + 1 :] if other != jobs]
                lines = self._after_swaps(node, rank, lines, below, now_s)
                if not lines and node.swap_target is not None and not swaps.may_load(node):
                    return None  # draining: classes that could go first have been asked
            if lines:
                return self._best(node, lines)
        if node.swap_target is None:
            return None
        node.swap_target = None  # nobody may load it after all: let the others on
        return self._pick_in_order(node, now_s)

    def _ranks_in_order(self, node: Node) -> list[int]:
        """Return the classes that wait for something, the next one first; jobs are last."""
        jobs = len(self._lines) - 1
        ranks = [rank for rank in range(jobs) if self._lines[rank]]
        if len(ranks) > 1 and self.options.class_order == "weighted":
            ranks = node.shares.order(ranks)
        if self._lines[jobs]:
            ranks.append(jobs)
        return ranks

    def _lines_for(self, node: Node, rank: int) -> list[Line]:
        """Return the lines of a class that have an entry which may run on this node."""
        name = node.name
        return [
            line
            for line in self._lines[rank]
            if name in line.lane.nodes
            and (line.backlogged or line.first_returned(node) is not None)
        ]

    def _best(self, node: Node, lines: list[Line]) -> Entry | None:
        if len(lines) == 1:  # nothing to compare, so nothing is placed in the node's time yet
            return lines[0].first_returned(node) or lines[0].best()
        best: Entry | None = None
        best_key: tuple[float, int] | None = None
        for line in lines:
            entry = line.first_returned(node) if line.returned.count else None
            if entry is not None:
                key = (node.shares.clocks[line.rank], entry.seq)
            else:
                entry = line.best()
                if entry is None:
                    continue
                key = (node.shares.tag(line, entry.account.counter), entry.seq)
            if best_key is None or key < best_key:
                best, best_key = entry, key
        return best

    def _after_swaps(
        self, node: Node, rank: int, lines: list[Line], below: list[int], now_s: float
    ) -> list[Line]:
        """Return the lines that the swap rule lets run now; may start a drain."""
        target = node.swap_target
        wanted = [line for line in lines if line.lane.model == target]
        if target is not None and (rank >= node.swap_rank or len(wanted) == len(lines)):
            lines = wanted  # the swap is decided: who wants that model goes by class
        else:
            warm_below = rank == len(self._lines) - 1 or any(
                node.is_warm(line.lane.model)
                for other in below
                for line in self._lines_for(node, other)
            )
            lines, again_s = swaps.choose(node, lines, warm_below, now_s, self.options.swap_wait_s)
            if again_s is not None:
                self._timers.wake(node, again_s, now_s)
        if lines and not node.is_warm(lines[0].lane.model) and not swaps.may_load(node):
            node.swap_target, node.swap_rank = lines[0].lane.model, rank
            return []
        return lines

    def _wanted(self, node: Node, model: str) -> bool:
        """Say whether anyone of the class that asked for a swap, or of a higher one, still does."""
        return any(
            line.lane.model == model
            for rank in range(node.swap_rank + 1)
            for line in self._lines_for(node, rank)
        )
