"""Two gateways on a real Valkey, each showing both: the queue, the metrics, readiness, the page."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from forebay.gateway.gateway import Gateway
from forebay.settings import Settings
from harness.valkey_server import ValkeyServer

from ..test_metrics import Scrape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AsyncExitStack
    from pathlib import Path

    from forebay.testing import FakeNode

    from ..conftest import Rig

LIMIT_S = 30.0  # only turns a hang into a failure
BODY = {"model": "m", "messages": []}


class Pair:
    """Two gateways before one node with one slot."""

    def __init__(self, http: httpx.AsyncClient, node: FakeNode, *gateways: Gateway) -> None:
        self.http = http
        self.node = node
        self.gateways = gateways

    def url(self, number: int, path: str) -> str:
        return f"http://127.0.0.1:{self.gateways[number].port}{path}"

    async def queue(self, number: int) -> dict[str, Any]:
        seen: dict[str, Any] = (await self.http.get(self.url(number, "/v1/queue"))).json()
        return seen

    async def metrics(self, number: int) -> Scrape:
        return Scrape((await self.http.get(self.url(number, "/metrics"))).text)

    def ask(self, number: int) -> asyncio.Task[httpx.Response]:
        url = self.url(number, "/v1/chat/completions")
        return asyncio.ensure_future(self.http.post(url, json=BODY))

    async def until(self, holds: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Wait until something holds of what both show, and return it."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                seen = [await self.queue(0), await self.queue(1)]
                if all(map(holds, seen)):
                    return seen
                await asyncio.sleep(0.02)


@pytest.fixture
def own_valkey() -> Iterator[ValkeyServer]:
    """A server that the test may end."""
    with ValkeyServer() as server:
        yield server


@pytest.fixture
async def pair(rig: Rig, own_valkey: ValkeyServer, tmp_path: Path) -> Pair:
    stack: AsyncExitStack = rig.stack
    node = await rig.node(slots=1)
    http = await stack.enter_async_context(httpx.AsyncClient(timeout=LIMIT_S, trust_env=False))
    gateways = []
    for number in range(2):
        settings: dict[str, Any] = {
            "server": {"port": 0},
            "nodes": [{"name": "n1", "url": node.url}],
            "jobs": {"database": f"sqlite:///{tmp_path}/{number}.db"},
            "coordination": {"url": own_valkey.url},
        }
        gateways.append(await stack.enter_async_context(Gateway(Settings(**settings), environ={})))
    made = Pair(http, node, *gateways)
    await made.until(lambda seen: seen["fleet"]["mode"] == "coordinated" and len(alive(seen)) == 2)
    return made


def alive(seen: dict[str, Any]) -> list[str]:
    return [one["state"] for one in seen["fleet"]["replicas"] if one["state"] != "lost"]


async def test_each_gateway_shows_the_work_of_both(pair: Pair) -> None:
    running = pair.ask(0)
    call = await pair.node.next_call()
    waiting = pair.ask(1)
    seen = await pair.until(lambda seen: seen["waiting"] == 1)
    for one in seen:
        assert (one["processing"], one["by_priority"]["normal"]) == (1, 1)
        assert sorted(alive(one)) == ["following", "leading"]
        assert all(replica["same_settings"] for replica in one["fleet"]["replicas"])
    assert {one["fleet"]["me"] for one in seen} == {
        replica["name"] for replica in seen[0]["fleet"]["replicas"]
    }
    for number in (0, 1):
        scrape = await pair.metrics(number)
        assert scrape.value("forebay_queue_depth", priority="normal") == 1
        assert scrape.value("forebay_node_in_flight", node="n1") == 1
        assert scrape.value("forebay_queue_enqueued_total") == 1
        assert scrape.value("forebay_node_up", node="n1") == 1
        assert scrape.value("forebay_replicas", state="following") == 1
    await call.answer({"choices": []})
    await (await pair.node.next_call()).answer({"choices": []})
    assert [(await one).status_code for one in (running, waiting)] == [200, 200]
    served = await pair.until(lambda seen: seen["served_total"] == 2)
    assert served[0]["processing"] == 0
    requests = [
        (await pair.metrics(number)).value(
            "forebay_requests_total", route="/v1/chat/completions", outcome="served"
        )
        for number in (0, 1)
    ]
    assert requests == [1, 1]  # of each its own


async def test_without_the_store_each_is_alive_and_ready_only_if_it_has_a_slot(
    pair: Pair, own_valkey: ValkeyServer
) -> None:
    own_valkey.stop()
    modes: list[str] = []
    async with asyncio.timeout(30.0):
        while sorted(modes) != ["alone", "cut_off"]:  # the only slot is one's
            # Who notices first may think for a moment that the other still has a leader.
            out = await pair.until(lambda seen: seen["fleet"]["mode"] in ("alone", "cut_off"))
            modes = [seen["fleet"]["mode"] for seen in out]
            assert not any("leading" in alive(seen) for seen in out)
    for number in (0, 1):
        ready = await pair.http.get(pair.url(number, "/ready"))
        assert ready.status_code == (200 if modes[number] == "alone" else 503)
        assert (await pair.http.get(pair.url(number, "/health"))).status_code == 200
        scrape = await pair.metrics(number)
        assert scrape.value("forebay_store_outages_total") == 1
        assert scrape.families["forebay_queue_enqueued"].samples == []
    own_valkey.start()
    await pair.until(lambda seen: seen["fleet"]["mode"] == "coordinated")
