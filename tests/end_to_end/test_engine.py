"""The example engine behind a guard behind a gateway: order, hang-ups, a crash and overload.

Skipped where no Python has PyTorch and transformers; ENGINE_PYTHON may name one that has.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from harness.polling import pause

from .conftest import CHAT, Command, Shell

if TYPE_CHECKING:
    from forebay.testing import RawClient

ROOT = Path(__file__).parents[2]
SERVER = ROOT / "examples" / "engine" / "server.py"
TOKEN = "open-sesame-4711"
START_S = 120.0
"""How long it may take to import PyTorch on a busy machine."""
BLOCK = 16

PYTHON = os.environ.get("ENGINE_PYTHON") or (  # noqa: TID251
    sys.executable if find_spec("torch") and find_spec("transformers") else ""
)
pytestmark = pytest.mark.skipif(not PYTHON, reason="needs PyTorch and transformers")


class Stage:
    """A gateway, a guard and an engine, each a process of its own."""

    def __init__(self, shell: Shell, folder: Path) -> None:
        self.shell = shell
        self._folder = folder
        self.gateway: Command
        self.engine: Command
        self.port = 0
        self.engine_port = 0

    async def start(self, *, slots: int, blocks: int = 256, batch: int = 64) -> None:
        """Start all three; `slots` are the guard's, `batch` is what the engine runs at once."""
        self.gateway, self.port = await self.shell.serve(
            "--set", "guard.token_env=GUARD_TOKEN", cwd=self._folder
        )
        self._options = ("--blocks", str(blocks), "--slots", str(batch))
        await self.start_engine()
        await self.shell.start(
            "node", "--port", "0", "--slots", str(slots), "--name", "engine",
            "--backend", f"http://127.0.0.1:{self.engine_port}",
            "--gateway", f"http://127.0.0.1:{self.port}", "--token-env", "GUARD_TOKEN",
        )  # fmt: skip
        await self.gateway.says("node is online")

    async def start_engine(self) -> None:
        self.engine = await self.shell.start_program(
            PYTHON, str(SERVER), "--random", "tiny", "--port", str(self.engine_port),
            "--block-size", str(BLOCK), "--step-tokens", "64", *self._options,
        )  # fmt: skip
        line = await self.engine.says("serving tiny on ", START_S)
        self.engine_port = urlsplit(line.split()[-1]).port or 0

    async def ask(self, tokens: int, user: str = "", priority: str = "", **body: Any) -> RawClient:
        """Send a request for an answer of so many tokens."""
        client = await self.shell.connect(self.port)
        client.timeout_s = START_S
        headers = {"X-Forebay-User": user, "X-Forebay-Priority": priority}
        message = {"role": "user", "content": "Wistaria in May"}
        asked = {"model": "tiny", "messages": [message], "max_tokens": tokens, **body}
        await client.post(CHAT, asked, {name: value for name, value in headers.items() if value})
        return client

    async def health(self) -> dict[str, Any]:
        said = await self.shell.get(self.engine_port, "/health")
        assert isinstance(said, dict)
        return said

    async def outcomes(self) -> dict[str, int]:
        """Return how many requests ended in which way, by the engine's metrics."""
        client = await self.shell.connect(self.engine_port)
        await client.get("/metrics")
        said = (await client.reply()).body.decode()
        found = re.findall(r'^engine_requests_total{outcome="(\w+)"} (\d+)$', said, re.MULTILINE)
        return {name: int(count) for name, count in found}

    async def until(self, **wanted: int) -> None:
        """Ask the engine until its `/health` says all that."""
        async with asyncio.timeout(START_S):
            while wanted.items() - (await self.health()).items():
                await pause()


@pytest.fixture
def stage(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stage:
    monkeypatch.setenv("GUARD_TOKEN", TOKEN)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    return Stage(shell, tmp_path)


async def test_class_and_user_hold_from_the_gateway_to_the_batch(stage: Stage) -> None:
    await stage.start(slots=16, batch=1)
    ended: list[str] = []
    tasks: list[asyncio.Task[None]] = []

    async def answered(name: str, client: RawClient) -> None:
        assert (await client.reply()).status == 200
        ended.append(name)

    async def send(name: str, tokens: int, **more: str) -> None:
        tasks.append(asyncio.create_task(answered(name, await stage.ask(tokens, **more))))

    await send("first", 2000)
    await stage.until(running=1)
    for number in range(4):
        await send(f"ann {number}", 40, user="ann", priority="low")
        await stage.until(waiting=number + 1)
    await send("bob", 40, user="bob", priority="low")
    await send("urgent", 40, user="ann", priority="high")
    await stage.until(waiting=6)  # all of them in the engine's own queue
    await asyncio.gather(*tasks)
    assert ended[:2] == ["first", "urgent"]
    assert ended.index("bob") <= 3  # the users take turns


async def test_a_client_that_leaves_gives_its_memory_back(stage: Stage) -> None:
    await stage.start(slots=16, batch=1)
    free = (await stage.health())["kv_free_tokens"]
    stream = await stage.ask(3000, stream=True)
    assert (await stream.head()).status == 200
    assert b"data: " in (await stream.chunk() or b"")
    unary = await stage.ask(500)
    await stage.until(running=1, waiting=1)
    assert (await stage.health())["kv_free_tokens"] < free
    unary.close()
    await stage.until(running=1, waiting=0)
    stream.close()
    await stage.until(running=0, waiting=0, kv_free_tokens=free)
    assert await stage.outcomes() == {"cancelled": 2}


async def test_a_killed_engine_ends_its_streams_with_an_error_and_serves_on_when_it_is_back(
    stage: Stage,
) -> None:
    await stage.start(slots=16)
    stream = await stage.ask(3000, stream=True)
    assert (await stream.head()).status == 200
    assert b"data: " in (await stream.chunk() or b"")
    stage.engine.signal(signal.SIGKILL)
    await stage.engine.ends()
    rest = b""
    while (data := await stream.chunk()) is not None:
        rest += data
    assert b'"error"' in rest
    assert b"[DONE]" not in rest
    waiting = await stage.ask(5)
    await stage.start_engine()
    reply = await waiting.reply()
    assert (reply.status, reply.json["usage"]["completion_tokens"]) == (200, 5)


async def test_overload_waits_in_the_gateway_and_nothing_fails(stage: Stage) -> None:
    await stage.start(slots=8, blocks=16)  # a cache of 256 tokens: two of these at once
    clients = [await stage.ask(80) for _ in range(6)]
    replies = [await client.reply() for client in clients]
    assert [reply.status for reply in replies] == [200] * 6
    assert "queued" in [reply.headers["x-queue-status"] for reply in replies]
    too_large = await (await stage.ask(5000)).reply()
    assert too_large.status == 400
    assert too_large.json["error"]["code"] == "context_length_exceeded"
    empty = await stage.shell.connect(stage.engine_port)
    bodies: tuple[Any, ...] = ({}, [], {"messages": []}, {"messages": [5]}, {"stream_options": 1})
    for body in bodies:
        await empty.post(CHAT, body)
        assert (await empty.reply()).status == 400
    assert (await stage.health())["status"] == "ok"
    assert await stage.outcomes() == {"answered": 6, "context_length_exceeded": 1}
