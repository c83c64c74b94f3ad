"""Gateways behind HAProxy, restarted one after the other under load: no client sees an error.

The SDK would send again what was turned away; here it may not, so that HAProxy's settings have to
do it alone.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import openai
import pytest

from harness.fleet import Fleet, FleetPlan, NodePlan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CONFIG = Path(__file__).parent.parent.parent / "deploy" / "haproxy.cfg"
NODES = (NodePlan("gpu1"), NodePlan("gpu2"))
CLIENTS = 8  # twice as many as there are slots: somebody always waits
TOKENS = 4
LIMIT_S = 30.0  # only turns a hang into a failure

pytestmark = pytest.mark.skipif(
    shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin") is None,
    reason="HAProxy is not installed",
)


class People:
    """Clients with the stock SDK that ask on and on, word by word or all at once."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/v1"
        self._enough = asyncio.Event()
        self._news = asyncio.Event()
        self.served = 0
        self.errors: list[str] = []

    async def ask_on(self, number: int) -> None:
        async with openai.AsyncOpenAI(base_url=self._url, api_key="none", max_retries=0) as client:
            while not self._enough.is_set():
                try:
                    await (self._stream if number % 2 else self._whole)(client, f"user{number}")
                    self.served += 1
                except (openai.OpenAIError, httpx.HTTPError) as error:
                    self.errors.append(repr(error))
                self._news.set()

    async def until_served(self, more: int) -> None:
        """Wait until so many more were served, or one was not."""
        target = self.served + more
        async with asyncio.timeout(LIMIT_S):
            while self.served < target and not self.errors:
                self._news.clear()
                await self._news.wait()

    async def _whole(self, client: openai.AsyncOpenAI, user: str) -> None:
        answer = await client.chat.completions.create(
            model="small",
            messages=[{"role": "user", "content": "hello"}],
            max_tokens=TOKENS,
            user=user,
        )
        self._finished(answer.choices[0].finish_reason)

    async def _stream(self, client: openai.AsyncOpenAI, user: str) -> None:
        chunks = await client.chat.completions.create(
            model="small",
            messages=[{"role": "user", "content": "hello"}],
            max_tokens=TOKENS,
            user=user,
            stream=True,
        )
        reasons = [chunk.choices[0].finish_reason async for chunk in chunks if chunk.choices]
        self._finished(reasons[-1] if reasons else None)

    def _finished(self, reason: str | None) -> None:
        if reason not in ("stop", "length"):
            self.errors.append(f"an answer without its end: {reason}")

    def enough(self) -> None:
        self._enough.set()


@asynccontextmanager
async def asking(people: People) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(people.ask_on(number))
        try:
            yield
        finally:
            people.enough()


@asynccontextmanager
async def fleet_behind_haproxy(folder: Path) -> AsyncIterator[Fleet]:
    plan = FleetPlan(gateways=2, nodes=NODES, haproxy=CONFIG.read_text(), lease_s=1.0)
    async with Fleet(plan, folder) as fleet:
        yield fleet


async def test_a_rolling_restart_under_load_is_seen_by_no_client(tmp_path: Path) -> None:
    async with fleet_behind_haproxy(tmp_path) as fleet:
        people = People(fleet.url)
        before = [gateway.pid for gateway in fleet.gateways]
        async with asking(people):
            await people.until_served(2 * CLIENTS)
            await fleet.roll()
            await people.until_served(2 * CLIENTS)
        assert people.errors == []
        assert people.served >= 4 * CLIENTS
        assert not set(before) & {gateway.pid for gateway in fleet.gateways}
        for gateway in fleet.gateways:
            assert gateway.log.read_text().count("Forebay is listening on ") == 2
            assert "Traceback" not in gateway.log.read_text()


@pytest.mark.long
async def test_the_same_clients_do_see_a_gateway_that_is_killed(tmp_path: Path) -> None:
    """The control: a stream that has begun cannot be saved by anybody."""
    async with fleet_behind_haproxy(tmp_path) as fleet:
        people = People(fleet.url)
        async with asking(people):
            while not people.errors:
                await people.until_served(CLIENTS)
                for gateway in fleet.gateways:
                    await gateway.kill()
                    await fleet.restart(gateway)
        assert people.errors
