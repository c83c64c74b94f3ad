"""Faults, one at a time: nodes that die, stand still or are drained; settings that change."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from bench.soak.stage import Node, Stage
    from bench.soak.tally import Tally

PAUSE_S = (4.0, 12.0)
FROZEN_S = (1.0, 8.0)
DEAD_S = (0.0, 6.0)


class Faults:
    """Makes a fault every few seconds until it is told to stop; then mends everything."""

    def __init__(self, stage: Stage, draw: random.Random, tally: Tally) -> None:
        self._stage = stage
        self._draw = draw
        self._tally = tally

    async def go_on(self) -> None:
        """Make faults for ever."""
        kinds = [self._kill, self._freeze, self._signal_reload, self._ask_reload, self._drain,
                 self._bad_settings]  # fmt: skip
        while True:
            await asyncio.sleep(self._draw.uniform(*PAUSE_S))
            kind = self._draw.choice(kinds)
            await kind()
            self._tally.outcomes[f"fault {kind.__name__.lstrip('_')}"] += 1

    async def mend(self) -> None:
        """Bring every node back, and the settings of the start."""
        for node in self._stage.nodes:
            node.program.thaw()
            if not node.program.running:
                node.program.start()
        self._stage.write_settings()
        await self._reload(200)
        for node in self._stage.nodes:
            await self._stage.ask("POST", f"/admin/nodes/{node.name}/resume")

    def _any_node(self) -> Node:
        return self._draw.choice(self._stage.nodes)

    async def _kill(self) -> None:
        node = self._any_node()
        await node.program.kill()
        await asyncio.sleep(self._draw.uniform(*DEAD_S))
        node.program.start()

    async def _freeze(self) -> None:
        node = self._any_node()
        node.program.freeze()
        try:
            await asyncio.sleep(self._draw.uniform(*FROZEN_S))
        finally:
            node.program.thaw()

    async def _signal_reload(self) -> None:
        self._stage.write_settings(self._draw)
        self._stage.gateway.signal(signal.SIGHUP)

    async def _ask_reload(self) -> None:
        self._stage.write_settings(self._draw)
        await self._reload(200)

    async def _bad_settings(self) -> None:
        self._stage.settings.write_text("[queue]\nmax_size = 'many'\n")
        await self._reload(400)
        self._stage.write_settings()

    async def _drain(self) -> None:
        path = f"/admin/nodes/{self._any_node().name}"
        await self._stage.ask("POST", f"{path}/drain")
        await asyncio.sleep(self._draw.uniform(*DEAD_S))
        await self._stage.ask("POST", f"{path}/resume")

    async def _reload(self, status: int) -> None:
        reply = await self._stage.ask("POST", "/admin/reload")
        if reply.status != status:
            self._tally.fault(f"reload: {reply.status} {reply.body[:200]!r}")
