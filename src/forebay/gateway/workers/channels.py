"""What one worker shares with the others beside the queue, in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.gateway.workers.asides import Asides, ReloadAsked
from forebay.gateway.workers.figures import Figures
from forebay.gateway.workers.node_news import NodeNewsChannel

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.clock import Timers
    from forebay.coordination.workers.store import WorkerStore
    from forebay.gateway.fleet.guarded_nodes import GuardedNodes
    from forebay.nodes.registry import Nodes


class WorkerChannels:
    """The nodes, the figures and the reloads of all workers."""

    def __init__(
        self,
        store: WorkerStore,
        nodes: Nodes,
        guarded: GuardedNodes,
        count: Callable[[], tuple[dict[str, float], dict[str, float]]],
        clock: Timers,
    ) -> None:
        """`count` returns what this worker has counted, and what it holds."""
        self._asides = Asides(store)
        self.node_news = NodeNewsChannel(store, self._asides, nodes, guarded)
        self.figures = Figures(store, self._asides, count, clock)

    def on_reload(self, reload: Callable[[], None]) -> None:
        """Call `reload` when the leader has reloaded its settings."""
        self._asides.take(ReloadAsked, lambda _, __: reload())

    def tell_reload(self) -> None:
        """Have the other workers reload: this one leads, and has."""
        self._asides.send(ReloadAsked())
