"""A running gateway for the commands that ask one, and a way to run them beside it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from forebay.cli.main import app
from forebay.gateway.gateway import Gateway
from forebay.nodes.sim.engine import SimOptions
from forebay.nodes.sim.sim_node import SimNode
from forebay.settings import Settings
from forebay.testing import FakeNode, RawClient
from harness.preloaded import HeardCommand

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from typer.testing import Result


BY_SOMEBODY_ELSE = """#!/bin/bash
exec 3<>/dev/tcp/127.0.0.1/PORT
{ env -0; printf '%s\\0' -- "$@"; printf '\\0'; } >&3
exec cat <&3
"""


async def run_for_a_shell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Run `forebay` as a shell has it: its variables, its words, and all that it says."""
    given = (await reader.readuntil(b"\0\0")).decode().split("\0")[:-2]
    at = given.index("--")
    environ = dict(variable.split("=", 1) for variable in given[:at])
    command = await HeardCommand.start(*given[at + 1 :], cwd=Path(environ["PWD"]), env=environ)
    writer.writelines(await command.communicate())
    writer.close()


@pytest.fixture
async def quick_bin(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A folder with a `forebay` for shells that call it often: each call is a fork."""
    program = tmp_path_factory.mktemp("bin") / "forebay"
    async with await asyncio.start_server(run_for_a_shell, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        program.write_text(BY_SOMEBODY_ELSE.replace("PORT", str(port)))
        program.chmod(0o755)
        yield str(program.parent)


class Desk:
    """One gateway, and someone who types commands."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.gateway: Gateway
        self.settings: Settings

    def read_settings(self) -> Settings:
        """Read what a reload finds; a test may put something else there."""
        return self.settings

    async def node(self, **options: Any) -> FakeNode:
        return await self._stack.enter_async_context(FakeNode(**options))

    async def simulated(self, **options: Any) -> SimNode:
        """Start a node that answers by itself."""
        node = SimNode(SimOptions(**options))
        await node.start()
        self._stack.push_async_callback(node.stop)
        return node

    async def start(self, *nodes: FakeNode | SimNode, **settings: Any) -> Gateway:
        """Start a gateway in front of these nodes, named n1, n2, ..."""
        listed = [{"name": f"n{i + 1}", "url": node.url} for i, node in enumerate(nodes)]
        environ = settings.pop("environ", {})
        server = {"port": 0, **settings.pop("server", {})}
        settings.setdefault("jobs", {"database": "sqlite://"})  # nothing is to be left behind
        self.settings = made = Settings(nodes=listed, server=server, **settings)  # type: ignore[arg-type] # pydantic reads dicts
        self.gateway = Gateway(made, environ=environ, read_settings=self.read_settings)
        return await self._stack.enter_async_context(self.gateway)

    async def ask(self, name: str, body: dict[str, Any]) -> RawClient:
        """Send a request by this id, on a connection that stays; return once it is taken."""
        client = await RawClient.connect("127.0.0.1", self.gateway.port)
        self._stack.callback(client.close)
        await client.post("/v1/chat/completions", body, {"X-Request-Id": name})
        for _ in range(2000):
            if name in self.gateway.parts.relay.exchanges:
                return client
            await asyncio.sleep(0)
        raise AssertionError(f"{name} was not taken")

    async def run(self, *words: str, url: str = "", **environment: str) -> Result:
        """Run a command against the gateway, or against another address."""
        asked = [*words, "--url", url or f"http://127.0.0.1:{self.gateway.port}"]
        return await asyncio.to_thread(lambda: CliRunner(env=environment).invoke(app, asked))


@pytest.fixture(scope="session", autouse=True)
def _commands_made_once() -> Iterator[None]:
    """Make the commands once, not at every call: reading their signatures takes longest."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("typer.testing._get_command", cache(get_command))
        yield


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with AsyncExitStack() as stack:
        yield Desk(stack)
