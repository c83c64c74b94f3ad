"""Single requests of a gateway with workers: listed, paged and cancelled whichever is asked."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from forebay.nodes.sim.engine import SimOptions
from harness.polling import pause

from .conftest import CHAT, LIMIT_S
from .worker_rig import Workers

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.testing import RawClient, Reply

    from .conftest import Shell

TWO_SLOTS = SimOptions(models=("m",), slots=2, ttft_s=0.0, tokens_per_second=50.0)
LISTED = "/v1/queue/requests"
CANCELLED = {"wait0", "wait1", "wait2", "run1"}


@pytest.fixture(autouse=True)
def own_history(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the requests of one test out of the history of the next."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


async def sent(workers: Workers, number: int, request_id: str) -> RawClient:
    """Send a stream that does not end by itself to a given worker."""
    client = await workers.connect(number)
    body = {
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True,
        "max_tokens": 100_000, "ignore_eos": True,
    }  # fmt: skip
    await client.post(CHAT, body, {"X-Request-Id": request_id})
    return client


async def crowded(shell: Shell) -> tuple[Workers, dict[str, RawClient]]:
    """Return a gateway with one request that runs and two that wait at each of two workers."""
    workers = await Workers.serve(shell, "--node", await shell.sim_node(TWO_SLOTS))
    clients = {}
    for number in (0, 1):
        clients[f"run{number}"] = running = await sent(workers, number, f"run{number}")
        assert (await running.head()).status == 200
    for request_id, number in (("wait0", 0), ("wait1", 1), ("wait2", 0), ("wait3", 1)):
        clients[request_id] = await sent(workers, number, request_id)
        await workers.until_waiting(len(clients) - 2)
    return workers, clients


async def page(workers: Workers, number: int, query: str = "") -> Any:
    return listed(await workers.get(number, LISTED + query))


def listed(reply: Reply) -> Any:
    assert reply.status == 200, reply.body
    assert reply.json["incomplete"] == []
    return reply.json


async def test_requests_of_all_workers_are_listed_in_pages_whichever_is_asked(shell: Shell) -> None:
    workers, _ = await crowded(shell)
    for number in (0, 1):
        waiting = (await page(workers, number, "?state=waiting"))["data"]
        assert [row["id"] for row in waiting] == ["wait3", "wait2", "wait1", "wait0"]
        assert [row["position"] for row in waiting] == [4, 3, 2, 1]
        assert {row["reason_code"] for row in waiting} == {"busy"}
        running = (await page(workers, number, "?state=running"))["data"]
        assert [row["id"] for row in running] == ["run1", "run0"]
        assert all(row["node"] for row in running)
    for first, second in ((0, 1), (1, 0)):  # a page goes on where another worker's ended
        query, found = "?limit=2", []
        for number in (first, second, first):
            seen = await page(workers, number, query)
            found += [row["id"] for row in seen["data"]]
            query = f"?limit=2&before={found[-1]}"
            assert seen["has_more"] == (len(found) < 6)
        assert found == ["wait3", "wait2", "wait1", "wait0", "run1", "run0"]


async def test_any_worker_cancels_a_request_of_any(shell: Shell) -> None:
    workers, clients = await crowded(shell)
    for request_id, number in (("wait0", 1), ("wait1", 0), ("wait2", 0), ("run1", 0)):
        client = await workers.connect(number)
        await client.request("DELETE", f"/v1/queue/{request_id}")
        cancelled = await client.reply()
        assert (cancelled.status, cancelled.json["state"]) == (200, "cancelled"), request_id
    assert (await clients["wait0"].reply()).status == 499
    for number in (0, 1):
        asking = await workers.connect(number)
        await until_listed(asking, "?outcome=cancelled", CANCELLED)
        await until_listed(asking, "?state=running", {"run0", "wait3"})


async def test_a_worker_that_does_not_answer_is_named_beside_the_list(shell: Shell) -> None:
    workers = await Workers.serve(shell, "--node", await shell.sim_node(TWO_SLOTS))
    await (await sent(workers, workers.leader, "seen")).head()
    asking = await workers.connect(workers.leader)
    silent = workers.pid(workers.follower)
    os.kill(silent, signal.SIGSTOP)
    try:
        await asking.get(LISTED)
        reply = await asking.reply()
    finally:
        os.kill(silent, signal.SIGCONT)
    assert [row["id"] for row in reply.json["data"]] == ["seen"]
    assert reply.json["incomplete"] == [f"worker{workers.follower}"]


async def until_listed(asking: RawClient, query: str, ids: set[str]) -> None:
    """Ask until these requests are listed."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            await asking.get(LISTED + query)
            if {row["id"] for row in listed(await asking.reply())["data"]} == ids:
                return
            await pause()
