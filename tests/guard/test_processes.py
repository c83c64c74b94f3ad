"""Guards as processes beside real gateways, in real time: frozen, killed, told to stop."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from forebay.gateway.gateway import Gateway
from forebay.settings import Settings
from forebay.testing import FakeNode, RawClient

from .child import LIMIT_S, ended, guard
from .conftest import CHAT, OK, TOKEN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from harness.preloaded import HeardCommand


class Stage:
    """A gateway with one node of its own, n1, and one that a guard brings, g1."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self.stack = stack
        self.folder = folder
        self.own: FakeNode
        self.guarded: FakeNode
        self.gateway: Gateway
        self.child: HeardCommand

    async def start(self) -> None:
        self.own = await self.stack.enter_async_context(FakeNode())
        self.guarded = await self.stack.enter_async_context(FakeNode())
        self.gateway = await self.stack.enter_async_context(self.make_gateway(0))
        self.child, _ = await self.stack.enter_async_context(
            guard(
                "--backend", self.guarded.url, "--name", "g1", "--token-env", "GUARD_TOKEN",
                "--gateway", f"http://127.0.0.1:{self.gateway.port}", GUARD_TOKEN=TOKEN,
            )
        )  # fmt: skip
        await self.until("online")

    def make_gateway(self, port: int) -> Gateway:
        given: dict[str, Any] = {
            "server": {"port": port},
            "guard": {"token_env": "T"},
            "nodes": [{"name": "n1", "url": self.own.url}],
            "jobs": {"database": f"sqlite:///{self.folder}/jobs.db"},
        }
        return Gateway(Settings(**given), environ={"T": TOKEN})

    async def until(self, state: str | None) -> None:
        """Wait until the guarded node is in that state; None: until it is gone."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                backend = self.gateway.parts.nodes.get("g1")
                if (None if backend is None else backend.told.state) == state:
                    return
                await asyncio.sleep(0.01)

    async def ask(self, **more: Any) -> RawClient:
        client = await RawClient.connect("127.0.0.1", self.gateway.port)
        client.timeout_s = LIMIT_S
        await self.stack.enter_async_context(client)
        await client.post(CHAT, {"model": "m", "messages": [], **more})
        return client


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        stage = Stage(stack, tmp_path)
        await stage.start()
        yield stage


async def test_a_guard_that_is_frozen_is_out_and_what_waits_goes_elsewhere(stage: Stage) -> None:
    running = [await stage.ask(), await stage.ask()]
    own, guarded = await stage.own.next_call(), await stage.guarded.next_call()
    waiting = await stage.ask()
    stage.child.send_signal(signal.SIGSTOP)
    try:
        await stage.until("offline")
        await own.answer(OK)
        await (await stage.own.next_call()).answer(OK)
        assert (await waiting.reply()).headers["x-forebay-node"] == "n1"
    finally:
        stage.child.send_signal(signal.SIGCONT)
    await stage.until("online")
    await guarded.answer(OK)  # what ran there has waited with it
    nodes = {(await client.reply()).headers["x-forebay-node"] for client in running}
    assert nodes == {"n1", "g1"}


async def test_a_guard_that_is_killed_loses_no_request_and_no_slot_of_its_backend(
    stage: Stage,
) -> None:
    running = [await stage.ask(), await stage.ask()]
    own, guarded = await stage.own.next_call(), await stage.guarded.next_call()
    stage.child.send_signal(signal.SIGKILL)
    await guarded.gone()  # the backend hears of it
    await own.answer(OK)
    again = await stage.own.next_call()
    await again.answer(OK)
    replies = [await client.reply() for client in running]
    assert [reply.status for reply in replies] == [200, 200]
    assert {reply.headers["x-forebay-node"] for reply in replies} == {"n1"}
    await stage.until("offline")


async def test_a_guard_that_is_told_to_stop_finishes_its_stream_and_leaves(stage: Stage) -> None:
    await stage.own.stop_listening()
    client = await stage.ask(stream=True)
    call = await stage.guarded.next_call()
    await call.start_stream()
    await call.chunk(b"data: {}\n\n")
    assert (await client.head()).headers["x-forebay-node"] == "g1"
    stage.child.send_signal(signal.SIGTERM)
    await stage.until("draining")
    await call.chunk(b"data: [DONE]\n\n")
    await call.end()
    assert await client.chunk() == b"data: {}\n\n"
    assert await client.chunk() == b"data: [DONE]\n\n"
    assert await client.chunk() is None
    assert await ended(stage.child) == 0
    await stage.until(None)


async def test_a_gateway_that_restarts_has_its_guard_back(stage: Stage) -> None:
    port = stage.gateway.port
    await stage.gateway.stop(0.0)
    stage.gateway = await stage.stack.enter_async_context(stage.make_gateway(port))
    await stage.until("online")
