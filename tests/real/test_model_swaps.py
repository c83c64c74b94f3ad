"""Two models, memory for one, and real llama.cpp servers: a busy model starves nobody."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from harness.polling import pause

from .conftest import LIMIT_S
from .model_router import model_router

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Stage

CLIENTS = 4
QUEUE = {"max_wait_seconds": 30.0, "swap_wait_seconds": 1.0}
"""The busy model goes on for ever, so that no wait is long enough without a swap; and on a machine
that is busy itself a load may take seconds, which callers of both models wait for."""


async def test_a_rare_model_is_served_beside_a_busy_one(stage: Stage, tiny_gguf: Path) -> None:
    answers: dict[str, list[int]] = {"busy": [], "rare": []}

    async def ask(model: str) -> None:
        client = await stage.ask(model=model, max_tokens=16)
        answers[model].append((await client.reply()).status)
        client.close()

    async def keep_asking() -> None:
        while True:
            await ask("busy")

    router, url = await stage.stack.enter_async_context(model_router(tiny_gguf, "busy", "rare"))
    await stage.start(url, queue=QUEUE)
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as clients:
        asking = [clients.create_task(keep_asking()) for _ in range(CLIENTS)]
        for _ in range(2):
            served = len(answers["busy"])
            while len(answers["busy"]) < served + 2 * CLIENTS:
                await pause()
            await ask("rare")
        for client in asking:
            client.cancel()
    assert answers["rare"] == [200, 200]
    assert set(answers["busy"]) == {200}
    assert router.loads[:4] == ["busy", "rare", "busy", "rare"]
    assert len(answers["busy"]) > 10 * len(answers["rare"])
