"""A guard on a free port with fake time, in front of a node that does what it is told."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from forebay.guard.guard import Guard, GuardOptions
from forebay.nodes.gpu import GpuMeter, GpuReading
from forebay.testing import Call, FakeClock, FakeNode, RawClient, Reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CHAT = "/v1/chat/completions"
OK: dict[str, object] = {"choices": []}
TOKEN = "open-sesame"
TURNS = 2000
"""Of asking, until something must have come about."""


class GuardRig:
    """One test's guard, clock, node and clients."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack = stack
        self.clock = FakeClock(1000.0)
        self.guard: Guard
        self.gpu: GpuReading | None = None
        """What the driver says."""
        self.headers: dict[str, str] = {}
        """What every request sends along."""

    async def node(self, **options: Any) -> FakeNode:
        """Start a node."""
        return await self.stack.enter_async_context(FakeNode(**options))

    async def start(self, node: FakeNode, **options: Any) -> Guard:
        """Start a guard in front of the node."""
        made = GuardOptions(backend=node.url, port=0, **options)
        self.guard = Guard(made, self.clock, GpuMeter(lambda: self.gpu))
        return await self.stack.enter_async_context(self.guard)

    async def client(self, **options: Any) -> RawClient:
        """Connect a client to the guard."""
        client = await RawClient.connect("127.0.0.1", self.guard.port, **options)
        return await self.stack.enter_async_context(client)

    async def ask(self, path: str = CHAT, **more: Any) -> RawClient:
        """Send a request on a connection of its own."""
        client = await self.client()
        await client.post(path, {"model": "m", "messages": [], **more}, self.headers)
        return client

    async def get(self, path: str, headers: dict[str, str] | None = None) -> Reply:
        """Ask for a page on a connection of its own, and return the answer."""
        client = await self.client()
        await client.get(path, self.headers if headers is None else headers)
        reply = await client.reply()
        client.close()
        return reply

    async def status(self) -> dict[str, Any]:
        """Return what the guard says of itself."""
        shown: dict[str, Any] = (await self.get("/guard/status")).json
        return shown

    async def until(self, key: str, value: object) -> None:
        """Ask until the guard says so."""
        for _ in range(TURNS):
            seen = await self.status()
            if seen[key] == value:
                return
        raise AssertionError(f"{key} is {seen[key]!r}, not {value!r}")

    async def stream(self, node: FakeNode) -> tuple[RawClient, Call]:
        """Send a request whose answer has begun to stream."""
        client = await self.ask(stream=True)
        call = await node.next_call()
        await call.start_stream()
        await call.chunk(b"data: {}\n\n")
        assert (await client.head()).status == 200
        assert await client.chunk() == b"data: {}\n\n"
        return client, call


@pytest.fixture
async def rig() -> AsyncIterator[GuardRig]:
    """Give the test its rig, and check afterwards that every slot came back."""
    async with AsyncExitStack() as stack:
        rig = GuardRig(stack)
        yield rig
    if hasattr(rig, "guard"):
        assert rig.guard.slots.in_flight == 0
