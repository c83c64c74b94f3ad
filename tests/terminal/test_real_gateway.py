"""The app in front of a real gateway with simulated nodes: what it shows is what is so."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from forebay.gateway.gateway import Gateway
from forebay.nodes.sim.engine import SimOptions
from forebay.nodes.sim.sim_node import SimNode
from forebay.settings import Settings, digest_of
from forebay.testing import RawClient

from .conftest import made_app, on_screen, shows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

KEYS = [
    {"name": "chief", "key_sha256": digest_of("chief-secret"), "admin": True},
    {"name": "team", "key_sha256": digest_of("team-secret")},
]
SLOW = SimOptions(models=("llama", "mistral"), slots=2, ttft_s=0.0, tokens_per_second=1.0)


class Place:
    """A gateway with simulated nodes, named n1, n2, ..."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self.gateway: Gateway

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway.port}"

    async def node(self, options: SimOptions = SLOW) -> str:
        node = SimNode(options, "127.0.0.1", 0)
        await node.start()
        self._stack.push_async_callback(node.stop)
        return node.url

    async def start(self, *urls: str, port: int = 0, **settings: Any) -> Gateway:
        listed = [{"name": f"n{i + 1}", "url": url} for i, url in enumerate(urls)]
        server = {"port": port, "shutdown_seconds": 0}
        jobs = {"database": f"sqlite:///{self._folder}/jobs.db"}
        made = Settings(nodes=listed, server=server, jobs=jobs, **settings)  # type: ignore[arg-type] # pydantic reads dicts
        self.gateway = Gateway(made, environ={})
        return await self._stack.enter_async_context(self.gateway)

    async def ask(self, **headers: str) -> RawClient:
        """Send a request that takes long, and return while it is under way."""
        client = await RawClient.connect("127.0.0.1", self.gateway.port)
        await self._stack.enter_async_context(client)
        said = {"role": "user", "content": "Count to a thousand."}
        body = {"model": "llama", "messages": [said], "max_tokens": 1000, "ignore_eos": True}
        await client.post("/v1/chat/completions", body, headers)
        return client

    async def state_of(self, name: str) -> str:
        client = await RawClient.connect("127.0.0.1", self.gateway.port)
        async with client:
            await client.get("/admin/nodes")
            nodes = (await client.reply()).json["data"]
        return next(str(node["state"]) for node in nodes if node["name"] == name)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        yield Place(stack, tmp_path)


async def test_who_waits_and_who_runs_is_shown(place: Place) -> None:
    await place.start(await place.node())
    for priority in ("normal", "normal", "high", "low", "low"):
        await place.ask(**{"x-forebay-priority": priority})
    app = made_app(place.url)
    async with on_screen(app) as pilot:
        screen = await shows(pilot, "3 of 100")
        assert "2 of 2" in screen
        assert "▰▰     2/2" in screen
        bars = {
            line.split()[0]: line[:30].split()[-1]
            for line in screen.splitlines()
            if line[:30].strip()
        }
        assert [bars[name] for name in ("high", "normal", "low")] == ["1", "0", "2"]
        assert re.search(r"llama +3 +2/2", screen)


async def test_the_keys_drain_and_resume_for_real(place: Place) -> None:
    await place.start(await place.node(), await place.node())
    app = made_app(place.url)
    async with on_screen(app) as pilot:
        await shows(pilot, "● online", lambda text: text.count("● online") == 2)
        await pilot.press("j", "d")
        await shows(pilot, "Drain n2?")
        await pilot.press("y")
        await shows(pilot, "n2 is draining: nothing new starts there.")
        await shows(pilot, "◒ draining")
        assert await place.state_of("n2") == "draining"
        assert await place.state_of("n1") == "online"
        await pilot.press("r")
        await shows(pilot, "Resume n2")
        await pilot.press("y")
        await shows(pilot, "● online", lambda text: text.count("● online") == 2)
        assert await place.state_of("n2") == "online"


async def test_a_gateway_that_is_restarted_is_found_again(place: Place) -> None:
    node = await place.node()
    first = await place.start(node)
    port = first.port
    app = made_app(place.url)
    async with on_screen(app) as pilot:
        await shows(pilot, "● online")
        await asyncio.wait_for(first.stop(), 20)
        await shows(pilot, "✕ reconnecting")
        await place.start(node, port=port)
        await shows(pilot, "● live")
        await shows(pilot, "The gateway has been restarted")


@pytest.mark.parametrize(("key", "may"), [("chief-secret", True), ("team-secret", False)])
async def test_only_an_admins_key_may_drain(place: Place, key: str, may: bool) -> None:
    await place.start(await place.node(), keys=KEYS)
    app = made_app(place.url, key)
    async with on_screen(app) as pilot:
        await shows(pilot, "● online")
        await pilot.press("d")
        await shows(pilot, "Drain n1?" if may else "Only an admin's key may drain")
        if may:
            await pilot.press("y")
            await shows(pilot, "n1 is draining")


async def test_without_a_key_it_ends_and_says_how_to_name_one(place: Place) -> None:
    await place.start(keys=KEYS)
    app = made_app(place.url)
    async with on_screen(app) as pilot:
        await shows(pilot, "the end", lambda _: app.problem is not None)
    assert app.problem is not None
    assert app.problem.is_about_the_key
    assert "--key-env" in str(app.problem)
