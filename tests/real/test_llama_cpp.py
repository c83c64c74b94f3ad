"""A real llama.cpp behind the gateway: its dialects, its slots, its refusals, its loading."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from forebay.settings import NodeSettings
from forebay.wire.client import STREAMS_CLOSED_MAX
from harness.polling import pause
from harness.tiny_model import Size, write_tiny_model

from .conftest import ENDLESS, LIMIT_S, LOOKS_FOR_CLIENTS_S, MODEL, SLOTS, llama_cpp, ready_url

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.testing import RawClient

    from .conftest import Engine, Stage


async def events(client: RawClient) -> list[str]:
    """Read a stream to its end and return its lines of data."""
    text = (await client.reply()).body.decode()
    return [line[6:] for line in text.splitlines() if line.startswith("data: ")]


async def test_it_is_known_by_what_it_says_of_itself(stage: Stage, engine: Engine) -> None:
    client = await stage.connect()
    await client.get("/admin/nodes")
    (node,) = (await client.reply()).json["data"]
    assert (node["kind"], node["slots"], node["models"]) == ("llama-cpp", SLOTS, [MODEL])
    assert node["families"] == ["openai", "anthropic"]


async def test_it_answers_in_each_of_its_dialects(stage: Stage, engine: Engine) -> None:
    chat = await (await stage.ask(max_tokens=4)).reply()
    assert chat.json["usage"]["completion_tokens"] == 4
    assert chat.headers["x-forebay-node"] == "n1"
    text = await (await stage.ask("/v1/completions", prompt="the queue", max_tokens=4)).reply()
    assert text.json["object"] == "text_completion"
    message = await (await stage.ask("/v1/messages", max_tokens=4)).reply()
    assert message.json["usage"]["output_tokens"] == 4
    ollama = await (await stage.ask("/api/chat")).reply()
    assert (ollama.status, ollama.json["code"]) == (404, "route_not_supported")


async def test_its_streams_come_through_to_the_last_event(stage: Stage, engine: Engine) -> None:
    chat = await events(await stage.ask(max_tokens=4, stream=True))
    assert chat[-1] == "[DONE]"
    assert len([json.loads(event) for event in chat[:-1]]) >= 2
    message = await events(await stage.ask("/v1/messages", max_tokens=4, stream=True))
    assert [json.loads(event)["type"] for event in message][-1] == "message_stop"


async def begin(stage: Stage, **more: Any) -> RawClient:
    """Start an answer that lasts, and wait for its first piece."""
    body: dict[str, Any] = {**ENDLESS, **more}
    client = await stage.ask(**body)
    assert (await client.head()).status == 200
    assert await client.chunk()
    return client


async def test_what_its_slots_cannot_take_waits_here_and_never_there(
    stage: Stage, engine: Engine
) -> None:
    running = [await begin(stage) for _ in range(SLOTS)]
    assert await engine.busy_slots() == SLOTS
    third = await stage.ask(max_tokens=4)
    await stage.until("waiting", 1)
    assert await engine.metric("requests_processing") == SLOTS
    assert await engine.metric("requests_deferred") == 0
    running[0].close()
    reply = await third.reply()
    assert reply.status == 200
    assert reply.headers["x-queue-status"] == "queued"
    assert reply.headers["x-queue-position"] == "1"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_the_real_slot(
    stage: Stage, engine: Engine, stream: bool
) -> None:
    before = await engine.metric("tokens_predicted_total")
    body: dict[str, Any] = {**ENDLESS, "stream": stream}
    client = await stage.ask(**body)
    await engine.until_busy(1)
    client.close()
    await stage.until("processing", 0)
    await engine.until_busy(0, 0.0 if stream else LOOKS_FOR_CLIENTS_S)
    assert await engine.metric("tokens_predicted_total") - before < body["max_tokens"]


async def test_a_prompt_that_is_too_long_is_refused_in_its_own_words(
    stage: Stage, engine: Engine
) -> None:
    words = [{"role": "user", "content": "the queue " * 8000}]
    reply = await (await stage.ask(messages=words)).reply()
    assert reply.status == 400
    assert reply.json["error"]["type"] == "exceed_context_size_error"
    assert reply.headers["x-forebay-node"] == "n1"
    assert (await (await stage.ask(max_tokens=1)).reply()).status == 200


TRIES_MAX = 20


def wide_model(path: Path) -> Path:
    """Write a model that takes a while to load."""
    return write_tiny_model(path, size=Size(layers=4, width=512, hidden=4096))


async def until_loading(port: int) -> bool:
    """Ask until it answers at all; say whether it was still loading then."""
    async with asyncio.timeout(LIMIT_S):
        async with httpx.AsyncClient(trust_env=False, timeout=LIMIT_S) as client:
            while True:
                try:
                    health = await client.get(f"http://127.0.0.1:{port}/health")
                    return health.status_code == 503
                except httpx.TransportError:
                    await pause()


async def test_while_it_loads_it_says_so_and_then_it_serves(stage: Stage, tmp_path: Path) -> None:
    gguf = wide_model(tmp_path / "wide.gguf")
    await stage.start()
    for _ in range(TRIES_MAX):
        if await seen_loading(stage, gguf):
            return  # else it had loaded before it could be asked: once more
    raise AssertionError("it was never seen loading")


async def seen_loading(stage: Stage, gguf: Path) -> bool:
    """Start it and ask at once; False when it serves already."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with llama_cpp(gguf, "--port", str(port), "--context", "256") as child:
        if not await until_loading(port):
            return False
        nodes = stage.gateway.parts.nodes
        nodes.remove("late")
        nodes.add(NodeSettings(name="late", url=f"http://127.0.0.1:{port}", models=(MODEL,)))
        await nodes.first_probes(LIMIT_S)
        client = await stage.ask(max_tokens=4)
        queue = await stage.queue()
        backend = nodes.get("late")
        was_loading = backend is not None and backend.told.state == "loading"
        await asyncio.to_thread(ready_url, child)
        assert (await client.reply()).status == 200  # it waited, or came too late to see it load
        return was_loading and queue["waiting"] == 1


async def test_many_streams_in_line_are_all_served_and_the_node_stays_well(
    stage: Stage, engine: Engine
) -> None:
    """It closes the connection after every stream: that is no failure, however often."""
    clients = [await stage.ask(max_tokens=2, stream=True) for _ in range(40)]
    for client in clients:
        assert (await events(client))[-1] == "[DONE]"
    client = await stage.connect()
    await client.get("/metrics")
    metrics = (await client.reply()).body.decode()
    (retries,) = re.findall(r"^forebay_retries_total (.*)$", metrics, re.MULTILINE)
    assert float(retries) <= STREAMS_CLOSED_MAX + SLOTS, "until it is known"
    assert "forebay_node_failures_total{" not in metrics
