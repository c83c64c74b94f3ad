"""Asking each configured node whether it is there, as the gateway would, without a gateway."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, NamedTuple

from forebay.clock import LoopClock
from forebay.nodes.backend import Backend
from forebay.nodes.gpu import GpuMeter
from forebay.settings import node_api_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.settings import NodeSettings

LIMIT_S = 10.0
MODELS_SHOWN = 5


class NodeProbe(NamedTuple):
    """What a node said."""

    name: str
    url: str
    state: str
    kind: str
    slots: int
    models: tuple[str, ...]
    error: str
    engine_slots: int | None = None
    """How many it runs at once by its own account; None where it does not say."""

    def __str__(self) -> str:
        if self.state not in ("online", "loading"):
            reason = self.error or "it does not answer"
            return (
                f"Node {self.name} does NOT answer now: {reason}. Start it, or correct {self.url}."
            )
        shown = ", ".join(self.models[:MODELS_SHOWN]) or "no model yet"
        more = len(self.models) - MODELS_SHOWN
        also = f" and {more} more" if more > 0 else ""
        return f"Node {self.name} is {self.state} now ({self.kind}): {shown}{also}."


def probe(nodes: Iterable[NodeSettings]) -> list[NodeProbe]:
    """Ask every node once, all at the same time; raises SettingsError where a key is missing."""
    logging.getLogger("forebay").addHandler(logging.NullHandler())  # the answer says it all
    return asyncio.run(_probe(tuple(nodes)))


async def _probe(nodes: tuple[NodeSettings, ...]) -> list[NodeProbe]:
    clock, gpu = LoopClock(asyncio.get_running_loop()), GpuMeter(lambda: None)
    # With slots of its own choice, so that each tells how many it has.
    asked = [node.model_copy(update={"slots": "auto"}) for node in nodes]
    backends = [Backend(node, node_api_key(node), lambda event: None, clock, gpu) for node in asked]
    try:
        for backend in backends:
            backend.start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LIMIT_S):
                await asyncio.gather(*(backend.first_probe() for backend in backends))
        return [_told(backend, node) for backend, node in zip(backends, nodes, strict=True)]
    finally:
        for backend in backends:
            backend.stop()


def _told(backend: Backend, node: NodeSettings) -> NodeProbe:
    told = backend.told
    answered = backend.was_probed and not backend.last_error
    return NodeProbe(
        backend.name,
        backend.settings.url,
        str(told.state) if answered else "offline",
        backend.kind,
        told.slots if node.slots == "auto" else node.slots,
        tuple(told.models),
        backend.last_error,
        told.slots if told.slots_kind == "named" else None,
    )
