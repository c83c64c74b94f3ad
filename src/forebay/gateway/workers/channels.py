"""The channels of one worker beside the queue: nodes, keys, figures, reloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.gateway.workers.asides import Asides, KeyNews, ReloadAsked, UsageNews
from forebay.gateway.workers.figures import Figures
from forebay.gateway.workers.node_news import NodeNewsChannel

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.clock import Timers
    from forebay.coordination.workers.store import WorkerStore
    from forebay.gateway.fleet.guarded_nodes import GuardedNodes
    from forebay.gateway.records.service import RecordService
    from forebay.nodes.registry import Nodes


class WorkerChannels:
    """The nodes, the keys, the figures and the reloads of all workers."""

    def __init__(
        self,
        store: WorkerStore,
        nodes: Nodes,
        guarded: GuardedNodes,
        records: RecordService,
        count: Callable[[], tuple[dict[str, float], dict[str, float]]],
        clock: Timers,
    ) -> None:
        """`count` returns what this worker has counted, and what it holds."""
        self._asides = Asides(store)
        self.node_news = NodeNewsChannel(self._asides, nodes, guarded)
        self.figures = Figures(store, self._asides, count, clock)
        self._store = store
        self._records = records
        self._made_keys = records.keys
        records.owns = lambda: store.leads
        records.pass_on = lambda rows, requests: self._asides.send(UsageNews(rows, requests))
        self._asides.take(UsageNews, self._hear_usage)
        self._made_keys.on_change.append(self._tell_keys)
        self._asides.take(KeyNews, self._hear_keys)
        store.on_follower = self._tell_newcomer

    def _tell_newcomer(self, member: str) -> None:
        self._tell_keys(member)  # first: it answers 503 until it knows them
        self.node_news.tell_all(member)

    def _tell_keys(self, member: str = "") -> None:
        if self._store.leads and self._made_keys.is_known:
            self._asides.send(KeyNews(self._made_keys.table), member)

    def _hear_keys(self, _: str, news: KeyNews) -> None:
        if not self._store.leads:
            self._made_keys.take(news.table)

    def _hear_usage(self, _: str, news: UsageNews) -> None:
        self._records.hear(news.rows, news.requests)

    def on_reload(self, reload: Callable[[], None]) -> None:
        """Call `reload` when the leader has reloaded its settings."""
        self._asides.take(ReloadAsked, lambda _, __: reload())

    def tell_reload(self) -> None:
        """Have the other workers reload: this one leads, and has."""
        self._asides.send(ReloadAsked())
