"""The slots of a real llama.cpp that is not asked how many it has."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from .conftest import FORCED, MODEL, llama_cpp, ready_url

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Stage

PARALLEL = 4
CLIENTS = 16


async def load(stage: Stage, requests: int) -> None:
    """Keep so many clients asking until so many streams have come to their end."""
    left = iter(range(requests))

    async def ask() -> None:
        client = await stage.connect()
        for number in left:
            text = [{"role": "user", "content": "water " * (1 + number * 37 % 60)}]
            body: dict[str, Any] = {"model": MODEL, "messages": text, "stream": True, **FORCED}
            await client.post("/v1/chat/completions", {**body, "max_tokens": 20 + number * 13 % 60})
            assert (await client.reply()).status == 200

    await asyncio.gather(*(ask() for _ in range(CLIENTS)))


async def node(stage: Stage) -> dict[str, Any]:
    client = await stage.connect()
    await client.get("/admin/nodes")
    (found,) = (await client.reply()).json["data"]
    return dict(found)


@pytest.mark.long
async def test_it_finds_about_as_many_as_the_engine_runs(stage: Stage, tiny_gguf: Path) -> None:
    """Whether that is as fast as the best fixed number, a machine at rest must say."""
    with llama_cpp(tiny_gguf, "--slots", str(PARALLEL), "--context", "2048") as child:
        kind = {"kind": "openai-compatible", "slots": "auto"}
        nodes = [{"name": "n1", "url": ready_url(child), **kind}]
        await stage.start(nodes=nodes, queue={"max_size": 100})
        assert (await node(stage))["slots"] == 4, "as for any kind that does not say"
        await load(stage, 400)
        found = await node(stage)
        assert found["slots_reason"]
        assert 1 <= found["slots"] <= 4 * PARALLEL, found["slots_reason"]
        await stage.stack.aclose()
