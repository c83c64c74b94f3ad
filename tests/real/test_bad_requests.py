"""Requests that are wrong themselves, to which a real llama.cpp answers 500: nobody suffers."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from .conftest import FORCED, MODEL, PROMPT, llama_cpp, ready_url

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from forebay.testing import Reply

    from .conftest import Stage

CHAT, EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"
GOOD: dict[str, dict[str, Any]] = {
    CHAT: {"messages": PROMPT, "max_tokens": 2, **FORCED},
    EMBEDDINGS: {"input": "the queue"},
}
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PIXEL}}]}]
BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "an image for a text model": (CHAT, {"messages": IMAGE}, "image input is not supported"),
    "a tool without a function": (
        CHAT,
        {"messages": PROMPT, "tools": [{"type": "function"}]},
        "Missing tool function",
    ),
    "a message without a role": (CHAT, {"messages": [{"content": "hi"}]}, "Missing 'role'"),
    "an input over the batch size": (
        EMBEDDINGS,
        {"input": "the queue " * 700},
        "too large to process",
    ),
}
"""The route, what is wrong, and what llama.cpp says of it."""
OTHERS = 4
EACH = 8


@pytest.fixture(scope="session")
def nodes(tiny_gguf: Path, llama_url: str) -> Iterator[dict[str, list[str]]]:
    """Two real servers for chat and two for embeddings."""
    flags = ("--slots", "2", "--context", "8192")
    embedding = (*flags, "--embedding")
    with (
        llama_cpp(tiny_gguf, *flags) as other,
        llama_cpp(tiny_gguf, *embedding) as one,
        llama_cpp(tiny_gguf, *embedding) as two,
    ):
        yield {
            CHAT: [llama_url, ready_url(other)],
            EMBEDDINGS: [ready_url(one), ready_url(two)],
        }


async def send(stage: Stage, path: str, body: dict[str, Any], user: str) -> Reply:
    client = await stage.connect()
    await client.post(path, {"model": MODEL, "user": user, **body})
    reply = await client.reply()
    client.close()
    return reply


async def good_ones(stage: Stage, path: str) -> list[Reply]:
    """Send what several others want, one after the other each."""

    async def one(user: str) -> list[Reply]:
        return [await send(stage, path, GOOD[path], user) for _ in range(EACH)]

    every = await asyncio.gather(*(one(f"user-{number}") for number in range(OTHERS)))
    return [reply for replies in every for reply in replies]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("kind", BAD)
async def test_who_sends_nothing_but_bad_requests_costs_nobody_else_anything(
    stage: Stage, nodes: dict[str, list[str]], kind: str, count: int
) -> None:
    path, body, words = BAD[kind]
    await stage.start(*nodes[path][:count])
    seen: Counter[tuple[str, tuple[str, ...], tuple[str, ...]]] = Counter()
    bad: list[Reply] = []

    async def keep_sending() -> None:
        while True:
            for stream in (False, True):
                more = {"stream": True} if stream and path == CHAT else {}
                bad.append(await send(stage, path, {**body, **more}, "the bad one"))
            for backend in stage.gateway.parts.nodes:
                told = backend.told
                seen[told.state, told.failing, told.on_trial] += 1

    await send(stage, path, body, "the bad one")
    sending = asyncio.create_task(keep_sending())
    good = await good_ones(stage, path)
    sending.cancel()
    await asyncio.wait([sending])
    told = Counter((reply.status, words in reply.body.decode()) for reply in bad)
    assert Counter(reply.status for reply in good) == {200: OTHERS * EACH}
    assert set(told) == {(500, True)}, "the node's own status and words"
    assert {reply.headers["x-forebay-node"] for reply in bad} <= {"n1", "n2"}
    assert set(seen) == {("online", (), ())}, "no node went offline, no model rested"
