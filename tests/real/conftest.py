"""A gateway on a free port, with real time, real engines behind it and real clients in front."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from forebay.gateway.gateway import Gateway
from forebay.settings import Settings
from forebay.testing import FakeNode, RawClient
from harness.polling import LOOK_S, pause
from harness.tiny_model import write_tiny_model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

LIMIT_S = 60.0  # only turns a hang into a failure
MODEL = "tiny"
SLOTS = 2
CONTEXT_TOKENS = 8192
PROMPT = [{"role": "user", "content": "Is the queue waiting?"}]
FORCED = {"ignore_eos": True, "temperature": 0}
"""Makes llama.cpp go on to the limit, with the same tokens each time."""
ENDLESS = {"max_tokens": 8000, "stream": True}
"""An answer that lasts for seconds at least: longer than anything a test does meanwhile."""

LOOKS_FOR_CLIENTS_S = 1.5
"""While it makes a whole answer, llama.cpp looks whether its client is there after a second in
which nothing else asked for results, our own looks at `/slots` included."""


class Stage:
    """One gateway, and those who talk to it."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack = stack
        self.gateway: Gateway

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway.port}"

    async def fake_node(self, **options: Any) -> FakeNode:
        return await self.stack.enter_async_context(FakeNode(**options))

    async def start(self, *urls: str, **settings: Any) -> Gateway:
        """Start a gateway in front of these nodes, named n1, n2, ..."""
        listed = [{"name": f"n{i + 1}", "url": url} for i, url in enumerate(urls)]
        given: dict[str, Any] = {"nodes": listed, **settings}
        given["server"] = {"port": 0, **settings.get("server", {})}
        self.gateway = Gateway(Settings(**given), environ={})
        return await self.stack.enter_async_context(self.gateway)

    async def connect(self, **options: Any) -> RawClient:
        client = await RawClient.connect("127.0.0.1", self.gateway.port, **options)
        client.timeout_s = LIMIT_S
        return await self.stack.enter_async_context(client)

    async def ask(self, path: str = "/v1/chat/completions", **body: Any) -> RawClient:
        """Send a request on a connection of its own."""
        client = await self.connect()
        await client.post(path, {"model": MODEL, "messages": PROMPT, **FORCED, **body})
        return client

    async def queue(self) -> dict[str, Any]:
        client = await self.connect()
        await client.get("/v1/queue")
        body: dict[str, Any] = (await client.reply()).json
        client.close()
        return body

    async def until(self, key: str, value: object) -> None:
        """Ask until the queue says so."""
        async with asyncio.timeout(LIMIT_S):
            while (await self.queue())[key] != value:
                await pause()


class Engine:
    """A real llama.cpp server, asked directly."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def busy_slots(self) -> int:
        slots = (await self._get("/slots")).json()
        return sum(slot["is_processing"] for slot in slots)

    async def until_busy(self, count: int, every_s: float = LOOK_S) -> None:
        async with asyncio.timeout(LIMIT_S):
            while await self.busy_slots() != count:  # noqa: ASYNC110 - another program's state
                await asyncio.sleep(every_s)

    async def metric(self, name: str) -> float:
        lines = (await self._get("/metrics")).text.splitlines()
        (value,) = [line.split()[1] for line in lines if line.startswith(f"llamacpp:{name} ")]
        return float(value)

    async def _get(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient(timeout=LIMIT_S, trust_env=False) as client:
            return await client.get(self.url + path)


@contextmanager
def llama_cpp(gguf: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """Run llama.cpp's server in a child process, as the embedded node does."""
    command = [sys.executable, "-m", "forebay.nodes.embedded.llama_child", "--gguf", str(gguf)]
    with subprocess.Popen(
        [*command, "--alias", MODEL, "--threads", "1", *flags],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        yield child
        assert child.stdin is not None
        child.stdin.close()
        child.wait(LIMIT_S)


def ready_url(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    word, _, url = child.stdout.readline().partition(" ")
    assert word == "ready"
    return url.strip()


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="session")
def llama_url(tiny_gguf: Path) -> Iterator[str]:
    flags = ("--slots", str(SLOTS), "--context", str(CONTEXT_TOKENS))
    with llama_cpp(tiny_gguf, *flags) as child:
        yield ready_url(child)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        yield Stage(stack)


@pytest.fixture
async def engine(stage: Stage, llama_url: str) -> AsyncIterator[Engine]:
    """A gateway in front of a real engine that nobody uses at the beginning, or at the end."""
    engine = Engine(llama_url)
    await stage.start(llama_url)
    yield engine
    await stage.stack.aclose()
    await engine.until_busy(0, LOOKS_FOR_CLIENTS_S)
