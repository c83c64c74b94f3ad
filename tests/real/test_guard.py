"""A real llama.cpp behind a guard, which a real gateway hears of: slots, streams, hang-ups."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from forebay.gateway.gateway import Gateway
from forebay.guard.guard import Guard, GuardOptions
from forebay.settings import Settings
from forebay.testing import RawClient

from .conftest import ENDLESS, FORCED, LIMIT_S, LOOKS_FOR_CLIENTS_S, MODEL, PROMPT, SLOTS, Engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from .conftest import Stage

TOKEN = "open-sesame"
BUSY = "node_busy"


@pytest.fixture
async def guard(stage: Stage, llama_url: str, tmp_path: Path) -> AsyncIterator[Guard]:
    """A guard in front of the engine, and a gateway that has no node but this one."""
    stage.gateway = Gateway(
        Settings.model_validate(
            {
                "server": {"port": 0},
                "guard": {"token_env": "T"},
                "jobs": {"database": f"sqlite:///{tmp_path}/jobs.db"},
            }
        ),
        environ={"T": TOKEN},
    )
    await stage.stack.enter_async_context(stage.gateway)
    options = GuardOptions(backend=llama_url, port=0, gateways=(stage.url,), token=TOKEN, name="g1")
    guard = await stage.stack.enter_async_context(Guard(options))
    async with asyncio.timeout(LIMIT_S):
        while not stage.gateway.parts.nodes.any_up():  # noqa: ASYNC110 - a probe on its way
            await asyncio.sleep(0.01)
    yield guard
    await stage.stack.aclose()
    await Engine(llama_url).until_busy(0, LOOKS_FOR_CLIENTS_S)


async def ask_guard(stage: Stage, guard: Guard, **body: object) -> RawClient:
    """Send a request to the guard itself, as another gateway would."""
    client = await RawClient.connect("127.0.0.1", guard.port)
    client.timeout_s = LIMIT_S
    await stage.stack.enter_async_context(client)
    asked = {"model": MODEL, "messages": PROMPT, **FORCED, **body}
    await client.post("/v1/chat/completions", asked, {"X-Forebay-Guard-Token": TOKEN})
    return client


async def test_it_is_known_through_its_guard(stage: Stage, guard: Guard) -> None:
    client = await stage.connect()
    await client.get("/admin/nodes")
    (node,) = (await client.reply()).json["data"]
    assert (node["name"], node["kind"], node["guarded"]) == ("g1", "llama-cpp", True)
    assert (node["slots"], node["models"]) == (SLOTS, [MODEL])
    answer = await (await stage.ask(max_tokens=4)).reply()
    assert answer.json["usage"]["completion_tokens"] == 4
    assert answer.headers["x-forebay-node"] == "g1"


async def test_a_whole_stream_comes_through_and_its_slot_is_back(
    stage: Stage, guard: Guard
) -> None:
    text = (await (await stage.ask(max_tokens=8, stream=True)).reply()).body.decode()
    assert text.rstrip().endswith("data: [DONE]")
    assert guard.slots.in_flight == 0


async def test_beyond_its_slots_others_are_refused_and_the_gateway_s_wait(
    stage: Stage, guard: Guard, llama_url: str
) -> None:
    held = [await ask_guard(stage, guard, **ENDLESS) for _ in range(SLOTS)]
    for client in held:
        assert (await client.head()).status == 200
    refused = await (await ask_guard(stage, guard)).reply()
    assert (refused.status, refused.json["error"]["code"]) == (429, BUSY)
    waiting = await stage.ask(max_tokens=4)  # the gateway knows nothing of the others
    await stage.until("waiting", 1)
    assert await Engine(llama_url).busy_slots() == SLOTS
    for client in held:
        client.abort()
    assert (await waiting.reply()).status == 200
    assert guard.slots.in_flight == 0
