"""The nodes of a gateway that has none configured: discovered ones, else a model of its own.

In order: servers on the usual loopback ports; llama.cpp in a child process with the given GGUF or
the small built-in model; and only where llama.cpp is not installed, or has no weights to run, a
simulated node, which says that it is one.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from msgspec import Struct

from forebay.errors import BackendFailed
from forebay.nodes.adapters.llama_cpp import LlamaCpp
from forebay.nodes.adapters.simulated import Simulated
from forebay.nodes.discovery import LOOPBACK_URLS, discover, http_fetch
from forebay.nodes.embedded.embedded_node import EmbeddedNode, EmbeddedOptions
from forebay.nodes.embedded.model_files import find_model
from forebay.nodes.sim.engine import SimOptions
from forebay.nodes.sim.sim_node import SimNode
from forebay.settings import NodeSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

SIMULATED_MODEL = "simulated"
OWN_NAMES = ("embedded", "simulated")
"""Nodes that run in this process, or as its child."""


class DefaultNodes(Struct):
    """Nodes that nobody configured, and the servers to stop with the gateway."""

    settings: list[NodeSettings]
    explanation: str
    """What is used and why, for the console."""
    embedded: EmbeddedNode | None = None
    simulated: SimNode | None = None

    async def stop(self) -> None:
        """Stop the servers; may be called twice."""
        if self.embedded is not None:
            await self.embedded.stop()
        if self.simulated is not None:
            await self.simulated.stop()


async def find_default_nodes(
    gguf: Path | None, say: Callable[[str], None], urls: Iterable[str] | None = None
) -> DefaultNodes:
    """Return the nodes to use where none is configured; never fails for want of one.

    Looks at the usual loopback addresses, or at `urls`. Raises BackendFailed only where a `gguf`
    is given and cannot be run.
    """
    if gguf is None:
        found = await discover(http_fetch, LOOPBACK_URLS if urls is None else urls)
        if found:
            names = ", ".join(f"{node.kind} at {node.url}" for node in found)
            settings = [NodeSettings(name=n.name, url=n.url, kind=n.kind) for n in found]
            return DefaultNodes(settings, f"found {names}")
    if importlib.util.find_spec("xllamacpp") is None:
        reason = "llama.cpp is not installed (pip install 'forebay[embedded]')"
        if gguf is not None:
            raise BackendFailed(f"{gguf} cannot be run: {reason}")
        return await _simulated(reason)
    try:
        if gguf is None:
            say("no model server found on this machine: starting a small one of our own")
        model = await find_model(gguf, say=say)
        embedded = EmbeddedNode(EmbeddedOptions(model.path, model.model))
        await embedded.start()
    except BackendFailed as error:
        if gguf is not None:
            raise
        return await _simulated(f"the built-in model could not be started ({error})")
    settings = [NodeSettings(name=OWN_NAMES[0], url=embedded.url, kind=LlamaCpp.kind)]
    return DefaultNodes(settings, f"running {model.model} with llama.cpp", embedded=embedded)


async def _simulated(reason: str) -> DefaultNodes:
    node = SimNode(SimOptions(models=(SIMULATED_MODEL,), slots=4), "127.0.0.1", 0)
    await node.start()
    settings = [NodeSettings(name=OWN_NAMES[1], url=node.url, kind=Simulated.kind)]
    explanation = f"SIMULATED answers only, no real model: {reason}"
    return DefaultNodes(settings, explanation, simulated=node)
