"""The nodes of a gateway that has none configured: discovered ones, else a model of its own.

In order: servers on the usual loopback ports; llama.cpp in a child process with the given GGUF or
the small built-in model. Answers are simulated only where that is asked for.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

from msgspec import Struct

from forebay.errors import BackendFailed
from forebay.nodes.adapters.llama_cpp import LlamaCpp
from forebay.nodes.adapters.simulated import Simulated
from forebay.nodes.discovery import LOOPBACK_URLS, USUAL_PORTS, discover, http_fetch
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
    gguf: Path | None,
    say: Callable[[str], None],
    urls: Iterable[str] | None = None,
    *,
    simulate: bool = False,
) -> DefaultNodes:
    """Return the nodes to use where none is configured; a simulated one only where that is asked.

    Looks at the usual loopback addresses, or at `urls`. Raises BackendFailed where no model can be
    run.
    """
    if simulate:
        return await _simulated()
    if gguf is None:
        found = await discover(http_fetch, LOOPBACK_URLS if urls is None else urls)
        if found:
            names = ", ".join(f"{node.kind} at {node.url}" for node in found)
            settings = [NodeSettings(name=n.name, url=n.url, kind=n.kind) for n in found]
            return DefaultNodes(settings, f"found {names}")
    if not has_llama_cpp():
        raise BackendFailed(no_model_hint(gguf))
    if gguf is None:
        say("no model server found on this machine: starting the built-in model")
    model = await find_model(gguf, say=say)
    embedded = EmbeddedNode(EmbeddedOptions(model.path, model.model))
    await embedded.start()
    settings = [NodeSettings(name=OWN_NAMES[0], url=embedded.url, kind=LlamaCpp.kind)]
    return DefaultNodes(settings, f"running {model.model} with llama.cpp", embedded=embedded)


async def check_for_a_model(gguf: Path | None) -> None:
    """Raise BackendFailed where no model server answers and none can be started; starts nothing."""
    if has_llama_cpp():
        return
    if gguf is not None or not await discover(http_fetch, LOOPBACK_URLS):
        raise BackendFailed(no_model_hint(gguf))


def has_llama_cpp() -> bool:
    """Say whether the built-in node can run here."""
    return importlib.util.find_spec("xllamacpp") is not None


def no_model_hint(gguf: Path | None) -> str:
    """Say what is missing, and the ways to have a model."""
    install = f"the built-in llama.cpp is not installed. Install it with: {install_command()}"
    if gguf is not None:
        return f"{gguf} cannot be run: {install}"
    ports = ", ".join(f"{name} {port}" for name, port in USUAL_PORTS.items())
    return (
        f"no model server answers on this machine ({ports}), and {install}\n"
        "Or start a model server, or name one with --node URL or in [[nodes]]. "
        "Without any model: forebay demo, or serve --simulate."
    )


def install_command(extra: str = "embedded") -> str:
    """Return how an extra is added to this installation."""
    wanted = f"'forebay[{extra}]'"
    if "/pipx/" in sys.prefix:
        return f"pipx install --force {wanted}"
    if "/uv/tools/" in sys.prefix:
        return f"uv tool install --force {wanted}"
    return f"pip install {wanted}"


async def _simulated() -> DefaultNodes:
    node = SimNode(SimOptions(models=(SIMULATED_MODEL,), slots=4), "127.0.0.1", 0)
    await node.start()
    settings = [NodeSettings(name=OWN_NAMES[1], url=node.url, kind=Simulated.kind)]
    return DefaultNodes(settings, "SIMULATED answers only, as asked", simulated=node)
