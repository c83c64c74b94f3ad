"""Commands in subprocesses: started, listened to, signalled, and always ended."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE, Process
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from forebay.nodes.sim.sim_node import SimNode
from forebay.settings.environment import current_environment
from forebay.testing import RawClient
from harness.polling import pause
from harness.preloaded import COMMAND, HeardCommand
from harness.tiny_model import write_tiny_model

if TYPE_CHECKING:
    import signal
    from collections.abc import AsyncIterator
    from pathlib import Path

    from forebay.nodes.sim.engine import SimOptions

LIMIT_S = 30.0  # only turns a hang into a failure
PROMPT = "Wistaria in May"
CHAT = "/v1/chat/completions"


class Command:
    """A command that runs, and everything it has said."""

    def __init__(self, child: Process | HeardCommand) -> None:
        self._child = child
        self._said: list[str] = []
        self._news = asyncio.Event()
        assert child.stdout is not None
        assert child.stderr is not None
        self._streams = {"stdout": child.stdout, "stderr": child.stderr}
        self._readers: list[asyncio.Task[None]] = []
        for name in self._streams:
            self.read(name, True)

    @property
    def text(self) -> str:
        """All of its output so far."""
        return "".join(self._said)

    async def says(self, what: str, limit_s: float = LIMIT_S) -> str:
        """Wait until it has said that, and return the line."""
        async with asyncio.timeout(limit_s):
            while True:
                for line in self._said:
                    if what in line:
                        return line
                assert not all(reader.done() for reader in self._readers), self.text
                self._news.clear()
                await self._news.wait()

    async def ends(self) -> int:
        """Wait for its end and return its exit status."""
        async with asyncio.timeout(LIMIT_S):
            status = await self._child.wait()
            await asyncio.gather(*self._readers)
        return status

    async def ended(self) -> None:
        """Wait for its end, however long that takes."""
        await self._child.wait()

    @property
    def pid(self) -> int:
        return self._child.pid

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # it has ended by itself
            self._child.send_signal(number)

    async def stop(self) -> None:
        if self._child.returncode is None:
            self._child.kill()
        await self.ends()

    def read(self, name: str, is_read: bool) -> None:
        """Read a stream, or leave it unread from now on: what it has room for is soon used up."""
        if is_read:
            self._readers.append(asyncio.create_task(self._read(self._streams[name]), name=name))
            return
        for reader in [one for one in self._readers if one.get_name() == name]:
            self._readers.remove(reader)
            reader.cancel()

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            self._said.append(line.decode())
            self._news.set()
        self._news.set()


class Shell:
    """Starts commands and talks to what they serve."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def start(
        self, *words: str, cwd: Path | None = None, script: Path | str = COMMAND, **variables: str
    ) -> Command:
        """Start `forebay` with these words, or a script that does something to it before."""
        env = {**current_environment(), **variables}
        return self._started(await HeardCommand.start(*words, cwd=cwd, env=env, script=script))

    async def start_program(self, *words: str) -> Command:
        """Start a program that must begin as a new process."""
        return self._started(await asyncio.create_subprocess_exec(*words, stdout=PIPE, stderr=PIPE))

    def _started(self, child: Process | HeardCommand) -> Command:
        command = Command(child)
        self._stack.push_async_callback(command.stop)
        return command

    async def sim_node(self, options: SimOptions) -> str:
        """Start a simulated node, here, and return its address."""
        node = SimNode(options)
        await node.start()
        self._stack.push_async_callback(node.stop)
        return node.url

    async def sim_node_program(self, *words: str) -> str:
        """Start a simulated node as a program of its own, and return its address."""
        node = await self.start("sim-node", "--port", "0", *words)
        line = await node.says("simulated node on ")
        return next(word for word in line.split() if word.startswith("http://"))

    async def serve(self, *words: str, cwd: Path | None = None) -> tuple[Command, int]:
        """Start a gateway and return it with its port, once it listens."""
        gateway = await self.start("serve", "--port", "0", *words, cwd=cwd)
        return gateway, await listening_port(gateway)

    async def connect(self, port: int) -> RawClient:
        client = await RawClient.connect("127.0.0.1", port)
        client.timeout_s = LIMIT_S
        return await self._stack.enter_async_context(client)

    async def ask(self, port: int, **body: Any) -> RawClient:
        """Send a chat request on a connection of its own."""
        client = await self.connect(port)
        message = {"role": "user", "content": PROMPT}
        await client.post(CHAT, {"messages": [message], **body})
        return client

    async def get(self, port: int, path: str) -> Any:
        client = await self.connect(port)
        await client.get(path)
        return (await client.reply()).json

    async def until_waiting(self, port: int, count: int) -> None:
        """Ask until that many wait."""
        async with asyncio.timeout(LIMIT_S):
            while (await self.get(port, "/v1/queue"))["waiting"] != count:
                await pause()


async def listening_port(gateway: Command) -> int:
    """Wait until a gateway listens, and return where."""
    line = await gateway.says("Forebay is listening on ")
    port = urlsplit(line.split()[-1]).port
    assert port is not None
    await gateway.says("Try it:")
    return port


@pytest.fixture
async def shell() -> AsyncIterator[Shell]:
    async with AsyncExitStack() as stack:
        yield Shell(stack)


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf")
