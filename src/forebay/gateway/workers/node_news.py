"""Node states from the leader, for the workers that do not probe nodes themselves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.gateway.workers.asides import NodeNews, NodeState, ProbeAsked
from forebay.settings import parse_node

if TYPE_CHECKING:
    from forebay.gateway.fleet.guarded_nodes import GuardedNodes
    from forebay.gateway.workers.asides import Asides
    from forebay.nodes.backend import Backend
    from forebay.nodes.registry import Nodes


class NodeNewsChannel:
    """Sends node states while this worker is the leader, and receives them while it is not."""

    def __init__(self, asides: Asides, nodes: Nodes, guarded: GuardedNodes) -> None:
        self._asides = asides
        self._nodes = nodes
        self._guarded = guarded
        self._changed: dict[
            str, None
        ] = {}  # names of nodes that the others do not know as they are
        self._probes: dict[str, int] = {}  # of each node, which result was heard last
        self.heard = asyncio.Event()
        """Set once the leader has told of its nodes."""
        asides.take(NodeNews, self._hear)
        asides.take(ProbeAsked, self._probe)
        nodes.probing.asks = False
        nodes.probing.request = self._ask_to_probe
        nodes.probing.on_result = self._note
        nodes.on_change = self._note

    def lead(self) -> None:
        """Ask the nodes from now on, and tell the others."""
        self._nodes.probing.asks = True
        for backend in self._nodes:
            backend.refresh()
        self.tell_all("")

    # -- as the leader

    def _note(self, name: str) -> None:
        """Tell of a node in the next turn of the loop, with others that have changed by then."""
        if not self._nodes.probing.asks:
            return
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._tell)
        self._changed[name] = None

    def _tell(self) -> None:
        names, self._changed = self._changed, {}
        found = [self._nodes.get(name) for name in names]
        states = tuple(self._state(backend) for backend in found if backend is not None)
        gone = tuple(name for name, backend in zip(names, found, strict=True) if backend is None)
        self._asides.send(NodeNews(states, gone, self._nodes.expected))

    def tell_all(self, member: str) -> None:
        """Tell one worker of all nodes, or all workers."""
        if self._nodes.probing.asks:
            states = tuple(self._state(backend) for backend in self._nodes)
            news = NodeNews(states, expected=self._nodes.expected, whole=True)
            self._asides.send(news, member)

    def _ask_to_probe(self, name: str) -> None:
        self._asides.send(ProbeAsked(name))

    def _probe(self, _: str, asked: ProbeAsked) -> None:
        if self._nodes.probing.asks:
            self._nodes.refresh(asked.node)

    def _state(self, backend: Backend) -> NodeState:
        return NodeState(
            backend.settings.model_dump(mode="json"),
            backend.last_result,
            backend.probes,
            backend.draining,
            backend.guarded,
            backend.heard_slots,
            backend.health.is_silent,
        )

    # -- as one of the others

    def _hear(self, _: str, news: NodeNews) -> None:
        if self._nodes.probing.asks:
            return  # of a leader that is none any more
        if news.whole:  # of a leader that may count anew
            self._probes.clear()
        self._nodes.mirror_expected(news.expected)
        told = {state.settings["name"]: state for state in news.nodes}
        gone = [backend.name for backend in self._nodes if news.whole and backend.name not in told]
        for name in (*gone, *news.gone):
            self._probes.pop(name, None)
            self._nodes.remove(name)
        for state in told.values():
            self._mirror(state)
        self.heard.set()

    def _mirror(self, state: NodeState) -> None:
        settings = parse_node(state.settings)
        backend = self._nodes.get(settings.name)
        if backend is None or backend.settings != settings or backend.guarded != state.guarded:
            header = self._guarded.header() if state.guarded else b""
            backend = self._nodes.replace(settings, header)
            self._probes.pop(settings.name, None)
        if state.draining != backend.draining:
            (backend.drain if state.draining else backend.resume)()
        if state.guarded:
            _mirror_guard(backend, state)
        if state.probes != self._probes.get(settings.name, 0):
            self._probes[settings.name] = state.probes
            backend.learn(state.result)


def _mirror_guard(backend: Backend, state: NodeState) -> None:
    """Take over what the guard before a node has said, or that it is silent."""
    is_silent = backend.health.is_silent
    if state.silent and not is_silent:
        backend.fell_silent()
    elif not state.silent and (is_silent or backend.heard_slots != state.heard_slots):
        backend.heard(state.heard_slots, None)
