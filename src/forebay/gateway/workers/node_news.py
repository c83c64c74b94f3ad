"""Node states from the leader, for the workers that do not probe nodes themselves.

The leader finds slots for all of them, too: what the others see of answers comes in reports, by
turns of the event loop.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from forebay.gateway.workers.asides import NodeNews, NodeState, ProbeAsked, SlotsSeen
from forebay.nodes.slot_sharing import (
    BrokenOff,
    FollowedLimit,
    FoundSlots,
    LeadingLimit,
    News,
    Refused,
    SlotReport,
)
from forebay.settings import parse_node

if TYPE_CHECKING:
    from forebay.clock import TimerHandle, Timers
    from forebay.coordination.workers.store import WorkerStore
    from forebay.gateway.fleet.guarded_nodes import GuardedNodes
    from forebay.gateway.workers.asides import Asides
    from forebay.nodes.backend import Backend
    from forebay.nodes.probing import AnyLimit
    from forebay.nodes.registry import Nodes

RECOUNT_S = 1.0
"""How long the leader may believe that requests run which have ended without an answer."""


class NodeNewsChannel:
    """Sends node states while this worker is the leader, and receives them while it is not."""

    def __init__(
        self,
        store: WorkerStore,
        asides: Asides,
        nodes: Nodes,
        guarded: GuardedNodes,
        clock: Timers,
    ) -> None:
        self._store = store
        self._asides = asides
        self._nodes = nodes
        self._guarded = guarded
        self._changed: dict[
            str, None
        ] = {}  # names of nodes that the others do not know as they are
        self._probes: dict[str, int] = {}  # of each node, which result was heard last
        self._clock = clock
        self._seen: dict[str, list[News]] = {}  # of nodes, since the last report
        self._in_use: dict[str, int] = {}  # requests at nodes, as the leader knows
        self._recount: TimerHandle | None = None
        self.heard = asyncio.Event()
        """Set once the leader has told of its nodes."""
        asides.take(NodeNews, self._hear)
        asides.take(ProbeAsked, self._probe)
        asides.take(SlotsSeen, self._take_reports)
        nodes.probing.asks = False
        nodes.probing.request = self._ask_to_probe
        nodes.probing.on_result = self._note
        nodes.probing.limit = self._limit
        nodes.on_change = self._note

    def lead(self) -> None:
        """Ask the nodes from now on, and tell the others."""
        self._nodes.probing.asks = True
        self._seen.clear()
        for backend in self._nodes:
            backend.refresh()
            backend.find_slots()
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

    def forget(self, worker: str) -> None:
        """Know that a worker is gone, and what ran there with it."""
        for backend in self._nodes:
            if isinstance(backend.limit, LeadingLimit):
                backend.limit.forget(worker)

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
            self._found(backend),
        )

    def _found(self, backend: Backend) -> FoundSlots | None:
        limit = backend.limit
        if not isinstance(limit, LeadingLimit):
            return None
        return limit.found(backend.running(), len(self._store.members))

    def _take_reports(self, worker: str, seen: SlotsSeen) -> None:
        for report in seen.reports:
            backend = self._nodes.get(report.node)
            limit = None if backend is None else backend.limit
            if backend is None or not isinstance(limit, LeadingLimit):
                continue  # reported before this one led, or the node has a number now
            if limit.take(worker, report, backend.running()):
                backend.tell_slots(self._clock.monotonic_s())

    # -- as one of the others

    def _limit(self, name: str, known: AnyLimit | None) -> AnyLimit:
        """Return the limit of a node for this worker, from what it was."""
        if not self._nodes.probing.asks:
            if isinstance(known, FollowedLimit):
                return known
            limit = FollowedLimit(lambda news: self._pass_on(name, limit, news))
            return limit
        if isinstance(known, LeadingLimit):
            known.forget_all()  # they begin to count anew, too
            return known
        leading = LeadingLimit(1 if known is None else known.slots, partial(self._note, name))
        leading.reason = "" if known is None else known.reason
        return leading

    def _pass_on(self, name: str, limit: FollowedLimit, news: News) -> None:
        """Report it in the next turn of the loop, with others; at once what must not wait."""
        backend = self._nodes.get(name)
        if backend is None or backend.limit is not limit:
            return  # it ran at a server that had this name before
        if not self._seen:
            asyncio.get_running_loop().call_soon(self._report)
        self._seen.setdefault(name, []).append(news)
        if isinstance(news, Refused | BrokenOff):  # to be known before the slot is given away again
            self._report()

    def _report(self) -> None:
        """Tell the leader what was seen, and where other numbers run than it knows."""
        if self._nodes.probing.asks:  # this one leads by now
            return
        seen, self._seen = self._seen, {}
        reports: list[SlotReport] = []
        for name in {**self._in_use, **seen}:
            backend = self._nodes.get(name)
            in_use = 0 if backend is None else backend.running()
            if name in seen or self._in_use[name] != in_use:
                reports.append(SlotReport(name, in_use, seen.get(name, [])))
            self._in_use[name] = in_use
            if not in_use:
                del self._in_use[name]
        if reports:
            self._asides.send(SlotsSeen(reports))
        if self._in_use and self._recount is None:
            at_s = self._clock.monotonic_s() + RECOUNT_S
            self._recount = self._clock.call_at(at_s, self._report_again)

    def _report_again(self) -> None:
        self._recount = None
        self._report()

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
        if news.whole:
            found = (name for name, state in told.items() if state.found)
            self._in_use = dict.fromkeys(found, 0)  # as far as this leader knows
            self._report()
        self.heard.set()

    def _mirror(self, state: NodeState) -> None:
        settings = parse_node(state.settings)
        backend = self._nodes.get(settings.name)
        if backend is None or backend.settings != settings or backend.guarded != state.guarded:
            header = self._guarded.header() if state.guarded else b""
            backend = self._nodes.replace(settings, header)
            self._probes.pop(settings.name, None)
        limit, found = backend.limit, state.found
        if found and isinstance(limit, FollowedLimit) and limit.follow(found):
            backend.tell_slots(self._clock.monotonic_s())
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
