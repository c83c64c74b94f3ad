"""Many clients that do as they please: no more run than may, and every slot comes back."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from .conftest import CHAT, OK

if TYPE_CHECKING:
    from forebay.testing import Call

    from .conftest import GuardRig

CLIENTS = 25
CALLS = 8
ENDS = ("answer", "stream", "reset", "cut", "close")


class Play:
    """What everyone does, drawn from one seed."""

    def __init__(self, rig: GuardRig, seed: int) -> None:
        self._rig = rig
        self.chance = random.Random(seed)
        self.statuses: list[int] = []

    async def dawdle(self, turns_max: int) -> None:
        for _ in range(self.chance.randint(0, turns_max)):
            await asyncio.sleep(0)

    async def serve(self, call: Call) -> None:
        """Answer a call in one of many ways, right or wrong."""
        await self.dawdle(5)
        end = self.chance.choice(ENDS)
        if end == "answer":
            await call.answer(OK)
        elif end == "close":
            await call.answer(OK, headers={"connection": "close"})
        elif end == "reset":
            call.reset()
        else:
            await call.start_stream()
            await call.chunk(b"data: {}\n\n")
            await call.end() if end == "stream" else call.close()

    async def ask(self) -> None:
        """Send some requests, one after the other, and stay for most of the answers."""
        for _ in range(CALLS):
            line = await self._rig.client()
            await line.post(CHAT, {"model": "m", "stream": True})
            await self.dawdle(8)
            if self.chance.random() < 0.3:
                line.abort()
                continue
            try:
                self.statuses.append((await line.reply()).status)
            except (EOFError, ConnectionResetError):
                self.statuses.append(0)
            line.close()


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_clients_and_backend_do_the_slots_hold(rig: GuardRig, seed: int) -> None:
    play = Play(rig, seed)
    slots = play.chance.randint(1, 4)
    node = await rig.node(slots=slots)
    await rig.start(node)
    node.automatic = play.serve
    await asyncio.gather(*(play.ask() for _ in range(CLIENTS)))
    await rig.until("in_flight", 0)
    assert node.max_running <= slots
    assert {200, 429} <= set(play.statuses)
    assert set(play.statuses) <= {0, 200, 429, 502}
    node.automatic = None
    held = [await rig.ask() for _ in range(slots)]  # every slot can be had again
    calls = [await node.next_call() for _ in held]
    assert (await (await rig.ask()).reply()).status == 429
    for call in calls:
        await call.answer(OK)
    assert [(await asked.reply()).status for asked in held] == [200] * slots
