"""The queues that are not empty, by class, and the nodes that have to look at them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core import fairness

if TYPE_CHECKING:
    from forebay.core.forecast import Forecast
    from forebay.core.records import Entry, Node, WaitQueue


class Lines:
    """The lines that a freed slot can be given to, and who forecasts how long they take."""

    def __init__(self, ranks: int, forecast: Forecast) -> None:
        self.forecast = forecast
        self.queues: list[dict[WaitQueue, None]] = [{} for _ in range(ranks)]
        self.stale: dict[str, Node] = {}  # nodes to fill again before the event is done
        self.short: dict[str, Node] = {}  # with a free slot, but no memory for who is next

    def join(self, entry: Entry, since_s: float, now_s: float, *, first: bool) -> None:
        """Put an entry into its queue that has waited since then; the `first` before all others."""
        queue = entry.queue
        fairness.join(queue, entry, first=first)
        if queue.waiting == 1:
            self.queues[queue.rank][queue] = None
            queue.unserved_since_s = since_s
        self.forecast.joined(entry, now_s)

    def leave(self, entry: Entry) -> None:
        """Take an entry out of its queue, and look again at nodes that drained for that one.

        And at those that had no memory for it: it may have kept others waiting.
        """
        queue = entry.queue
        fairness.leave(queue, entry)
        self.forecast.left(entry)
        if queue.waiting == 0:
            self.queues[queue.rank].pop(queue, None)
        if queue.backlogged == 0:
            for node in queue.lane.nodes.values():
                if node.swap_target == queue.lane.model:
                    self.stale[node.name] = node
        for name in self.short:
            if name in queue.lane.nodes:
                self.stale[name] = self.short[name]
