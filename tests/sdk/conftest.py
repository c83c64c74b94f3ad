"""Gateways, nodes and scripted servers for the SDK, and time that tests do not wait for."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from forebay.gateway.gateway import Gateway
from forebay.sdk import AsyncClient
from forebay.settings import Settings
from forebay.testing import Call, FakeNode

from .scripted_server import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


class QuickPace:
    """Time that passes as soon as somebody waits for it; every wait is kept."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self._now_s = 0.0

    def monotonic_s(self) -> float:
        return self._now_s

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._now_s += seconds
        await asyncio.sleep(0)


class StillPace(QuickPace):
    """Time that stands still: who sleeps does so until it is ended."""

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.Event().wait()


class HighestChance(random.Random):
    """Chance that always draws the highest number."""

    def uniform(self, a: float, b: float) -> float:
        return b


class Place:
    """Where a test's gateway, nodes and clients live."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self.stack = stack
        self.pace = QuickPace()
        self._folder = folder
        self.gateway: Gateway

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway.port}"

    async def node(self, **options: Any) -> FakeNode:
        return await self.stack.enter_async_context(FakeNode(**options))

    async def start(self, *nodes: FakeNode, **settings: Any) -> Gateway:
        """Start a gateway in front of these nodes, named n1, n2, ..."""
        listed = [{"name": f"n{i + 1}", "url": node.url} for i, node in enumerate(nodes)]
        jobs = {"database": f"sqlite:///{self._folder}/jobs.db"}
        environ = settings.pop("environ", {})
        given: dict[str, Any] = {"nodes": listed, "jobs": jobs, **settings}
        given["server"] = {"port": 0, **settings.get("server", {})}
        self.gateway = Gateway(Settings(**given), environ=environ)
        return await self.stack.enter_async_context(self.gateway)

    async def client(self, url: str = "", **options: Any) -> AsyncClient:
        """Make a client that waits for no time."""
        given: dict[str, Any] = {"pace": self.pace, "random": HighestChance(), **options}
        return await self.stack.enter_async_context(AsyncClient(url or self.url, **given))


async def until(reached: Callable[[], object]) -> None:
    """Let the loop turn until a condition holds."""
    async with asyncio.timeout(10):
        while not reached():  # noqa: ASYNC110 - of what has no event to wait for
            await asyncio.sleep(0)


def piece(text: str, finish_reason: str | None = None) -> bytes:
    """Return one chunk of a chat stream."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}
    return f"data: {json.dumps({'choices': [choice]})}\n\n".encode()


async def say(call: Call, *words: str) -> None:
    """Let a node stream an answer of these words."""
    await call.start_stream()
    for word in words:
        await call.chunk(piece(word))
    await call.chunk(piece("", "stop") + b"data: [DONE]\n\n")
    await call.end()


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        yield Place(stack, tmp_path)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer()
    await server.start()
    yield server
    await server.go_away()
