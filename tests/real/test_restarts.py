"""Servers that die, load and come back under a steady load: nobody gets an error."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

import httpx
import pytest
from msgspec.structs import replace

from forebay.nodes.sim.engine import SimOptions
from forebay.nodes.sim.sim_node import SimNode

from .conftest import LIMIT_S, MODEL, PROMPT, llama_cpp, ready_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from .conftest import Stage

RATE = 4.0
"""Requests a second, whatever becomes of them."""
SIZES = [
    pytest.param(1.0, 12, id="short"),
    pytest.param(5.0, 72, id="full", marks=pytest.mark.long),
]
"""For how many seconds the server is away, and how many requests are sent."""
QUICK = SimOptions(models=(MODEL,), slots=2, ttft_s=0.02, tokens_per_second=1000.0)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


async def open_loop(
    stage: Stage, count: int, disturb: Callable[[], Awaitable[None]]
) -> Counter[int]:
    """Send requests at a steady rate, without retries, while something happens to the server."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=LIMIT_S, trust_env=False, limits=limits) as client:

        async def ask(number: int) -> int:
            await asyncio.sleep(number / RATE)
            body = {"model": MODEL, "messages": PROMPT, "max_tokens": 4}
            return (await client.post(f"{stage.url}/v1/chat/completions", json=body)).status_code

        statuses, _ = await asyncio.gather(asyncio.gather(*map(ask, range(count))), disturb())
    return Counter(statuses)


@pytest.mark.parametrize(("away_s", "count"), SIZES)
async def test_a_llama_cpp_that_is_killed_and_started_again_fails_nobody(
    stage: Stage, tiny_gguf: Path, away_s: float, count: int
) -> None:
    port = free_port()
    with ExitStack() as stack:
        child = stack.enter_context(llama_cpp(tiny_gguf, "--port", str(port), "--slots", "2"))
        await stage.start(await asyncio.to_thread(ready_url, child))

        async def restart() -> None:
            await asyncio.sleep(1.0)
            child.kill()
            await asyncio.sleep(away_s)
            again = stack.enter_context(llama_cpp(tiny_gguf, "--port", str(port), "--slots", "2"))
            await asyncio.to_thread(ready_url, again)

        assert await open_loop(stage, count, restart) == {200: count}
        await stage.stack.aclose()


@pytest.mark.parametrize(("away_s", "count"), SIZES)
async def test_a_node_that_goes_away_for_seconds_fails_nobody(
    stage: Stage, away_s: float, count: int
) -> None:
    port = free_port()
    node = SimNode(QUICK, port=port)
    await node.start()
    stage.stack.push_async_callback(node.stop)
    await stage.start(node.url)

    async def restart() -> None:
        await asyncio.sleep(1.0)
        await node.kill()
        await asyncio.sleep(away_s)
        await node.start()

    assert await open_loop(stage, count, restart) == {200: count}


@pytest.mark.parametrize(
    ("loads_s", "count"),
    [pytest.param(1.5, 9, id="short"), pytest.param(8.0, 45, id="full", marks=pytest.mark.long)],
)
async def test_a_node_that_loads_for_seconds_fails_nobody(
    stage: Stage, loads_s: float, count: int
) -> None:
    port = free_port()
    before = SimNode(QUICK, port=port)
    await before.start()
    await stage.start(before.url)
    await before.kill()
    after = SimNode(replace(QUICK, start_s=loads_s), port=port)
    await after.start()
    stage.stack.push_async_callback(after.stop)

    async def nothing() -> None:
        pass

    assert await open_loop(stage, count, nothing) == {200: count}


async def test_a_node_that_is_not_up_at_the_start_is_waited_for(stage: Stage) -> None:
    port = free_port()
    node = SimNode(QUICK, port=port)
    stage.stack.push_async_callback(node.stop)
    await stage.start(f"http://127.0.0.1:{port}")

    async def start() -> None:
        await asyncio.sleep(1.0)
        await node.start()

    assert await open_loop(stage, 8, start) == {200: 8}
