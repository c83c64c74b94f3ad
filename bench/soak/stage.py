"""The programs under test: one gateway, its nodes, its settings file, all in one folder."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from forebay.testing.raw_client import RawClient
from harness.fleet.asking import answers
from harness.fleet.ports import free_port
from harness.fleet.program import Program

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from forebay.testing.raw_client import Reply

HOST = "127.0.0.1"
OLLAMA_SLOTS = 4
KEY = "soak-key-of-the-application"
OTHER_KEY = "soak-key-of-a-team"
SMALL, LARGE, OLLAMA = "sim-small", "sim-large", "ollama-small"
FOREBAY = "from forebay.cli.main import main; main()"
OLLAMA_NODE = Path(__file__).with_name("ollama_node.py")
PATIENCE_S = 90.0
"""Longer than any time limit of the settings below: who waits longer was forgotten."""

FIXED = """
[server]
port = {port}
connections_max = 400
write_seconds = 8
body_seconds = 20
header_seconds = 5
idle_seconds = 20
shutdown_seconds = 5
[queue]
max_size = {queue}
max_per_user = {per_user}
max_wait_seconds = 15
first_byte_seconds = 20
chunk_gap_seconds = 10
run_seconds = 60
keepalive_seconds = 1
[sessions]
idle_seconds = 20
[jobs]
on_interrupt = "retry"
[[keys]]
name = "application"
key_env = "SOAK_KEY"
trust_user = true
admin = true
[[keys]]
name = "team"
key_env = "SOAK_OTHER_KEY"
max_priority = "normal"
max_running = 20
"""
NODE = """
[[nodes]]
name = "{name}"
url = "http://{host}:{port}"
kind = "{kind}"
slots = {slots}
connect_seconds = 2
"""


class Node(Struct):
    """A node: how it is started, and where it listens for good."""

    name: str
    kind: str
    port: int
    slots: int
    program: Program


class Stage:
    """Gateway and nodes; `start` and `stop` own every program."""

    def __init__(
        self, folder: Path, source: Path, draw: random.Random, options: Sequence[str] = ()
    ) -> None:
        """`source` is copied, so that a checkout that is worked in meanwhile does not matter.

        `options` are given to `forebay serve`.
        """
        self.folder = folder
        self.port = free_port(draw)
        shutil.copytree(source, folder / "src")
        shutil.copy(OLLAMA_NODE, folder)
        self._variables = {
            "PYTHONPATH": str(folder / "src"),
            "PYTHONDONTWRITEBYTECODE": "",
            "SOAK_KEY": KEY,
            "SOAK_OTHER_KEY": OTHER_KEY,
        }
        speed = ["--ttft-ms", "50", "--tokens-per-second", "60"]
        small, both = ["--model", SMALL], ["--model", SMALL, "--model", LARGE]
        self.nodes = [
            self._sim_node("sim0", draw, 4, [*small, *speed]),
            self._sim_node("sim1", draw, 4, [*both, *speed, "--fail-rate", "0.02"]),
            self._sim_node("sim2", draw, 2, [*both, *speed, "--load-seconds", "0.3"]),
            self._ollama_node("ollama", draw, OLLAMA_SLOTS),
        ]
        self.settings = folder / "forebay.toml"
        words = self._forebay("serve", "--config", str(self.settings), *options)
        self.gateway = Program("gateway", words, folder, self._variables)

    async def start(self) -> None:
        """Start everything; returns when the gateway is ready."""
        self.write_settings()
        for node in self.nodes:
            node.program.start()
        self.gateway.start()
        await answers(self.port, "/ready", self.gateway)

    async def stop(self) -> None:
        """End everything that was started, whatever state it is in."""
        await self.gateway.stop()
        for node in self.nodes:
            await node.program.kill()

    def write_settings(self, draw: random.Random | None = None) -> None:
        """Write the settings: those of the start, or others by chance; a node may be missing."""
        queue, per_user, nodes = 60, 0, self.nodes
        if draw is not None:
            queue, per_user = draw.choice([20, 60, 100]), draw.choice([0, 10, 30])
            away = draw.choice([None, *self.nodes])
            nodes = [node for node in self.nodes if node is not away]
        text = FIXED.format(port=self.port, queue=queue, per_user=per_user)
        for node in nodes:
            text += NODE.format(
                name=node.name, host=HOST, port=node.port, kind=node.kind, slots=node.slots
            )
        self.settings.write_text(text)

    async def ask(self, method: str, path: str, body: object = b"") -> Reply:
        """Ask the gateway on a connection of its own, as its operator."""
        async with await RawClient.connect(HOST, self.port) as client:
            client.timeout_s = PATIENCE_S
            await client.request(method, path, body, {"authorization": f"Bearer {KEY}"})
            return await client.reply()

    def _forebay(self, *words: str) -> list[str]:
        return [sys.executable, "-c", FOREBAY, *words]

    def _sim_node(self, name: str, draw: random.Random, slots: int, options: list[str]) -> Node:
        port = free_port(draw)
        words = self._forebay("sim-node", "--port", str(port), "--slots", str(slots), *options)
        return Node(name, "sim", port, slots, Program(name, words, self.folder, self._variables))

    def _ollama_node(self, name: str, draw: random.Random, slots: int) -> Node:
        port = free_port(draw)
        words = [sys.executable, str(self.folder / OLLAMA_NODE.name), str(port), str(slots)]
        return Node(name, "ollama", port, slots, Program(name, words, self.folder, self._variables))
