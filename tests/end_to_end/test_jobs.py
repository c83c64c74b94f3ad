"""Jobs and batches through the installed command, killed midway: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import openai
import pytest
from sqlalchemy import create_engine, text

from forebay.testing import FakeNode
from harness.polling import pause

from .conftest import LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.testing.fake_node import Call

    from .conftest import Shell

LINES = 120
ENDED = ("completed", "failed", "expired", "cancelled")


def lines(count: int) -> bytes:
    return b"".join(
        json.dumps(
            {"custom_id": f"c{i}", "method": "POST", "url": "/v1/chat/completions",
             "body": {"model": "m", "messages": [{"role": "user", "content": str(i)}]}}
        ).encode() + b"\n"
        for i in range(count)
    )  # fmt: skip


class Counting:
    """A node that answers what it is asked, counts it, and says when it is time to strike."""

    def __init__(self, strike_after: tuple[int, ...]) -> None:
        self.answered: Counter[str] = Counter()
        self.strikes = list(strike_after)
        self.strike = asyncio.Event()

    async def answer(self, call: Call) -> None:
        content = call.json["messages"][0]["content"]
        self.answered[content] += 1
        if self.strikes and self.answered.total() == self.strikes[0]:
            self.strikes.pop(0)
            self.strike.set()
        await call.answer({"echo": content})


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_a_batch_outlives_a_gateway_that_is_killed_again_and_again(
    shell: Shell, tmp_path: Path, request: pytest.FixtureRequest, database: str
) -> None:
    url = request.getfixturevalue(f"{database}_url")
    options = ("--set", f"jobs.database={url}", "--set", f"jobs.files_folder={tmp_path}/files",
               "--set", "jobs.lease_seconds=1")  # fmt: skip
    counting = Counting((10, 40, 75))
    async with FakeNode(slots=3) as node:
        node.automatic = counting.answer
        gateway, port = await shell.serve("--node", node.url, *options, cwd=tmp_path)
        client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="x")
        file = await client.files.create(file=lines(LINES), purpose="batch")
        batch = await client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        killed = 0
        while counting.strikes or counting.strike.is_set():
            async with asyncio.timeout(LIMIT_S):
                await counting.strike.wait()
            counting.strike.clear()
            gateway.signal(signal.SIGKILL)
            await gateway.ends()
            killed += 1
            gateway, port = await shell.serve("--node", node.url, *options, cwd=tmp_path)
        await client.close()
        client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="x")
        async with asyncio.timeout(LIMIT_S):
            while batch.status not in ENDED:
                await pause()
                batch = await client.batches.retrieve(batch.id)
        assert killed == 3
        assert batch.status == "completed", batch
        assert batch.request_counts is not None
        assert (batch.request_counts.completed, batch.request_counts.failed) == (LINES, 0)
        assert batch.output_file_id is not None
        output = await client.files.content(batch.output_file_id)
        read: list[Any] = [json.loads(text) for text in output.text.splitlines()]
        assert [one["custom_id"] for one in read] == [f"c{i}" for i in range(LINES)]
        assert [one["response"]["body"]["echo"] for one in read] == [str(i) for i in range(LINES)]
        await client.close()
    # Only what was running, or just answered and not yet on disk, when the axe fell ran again.
    assert set(counting.answered) == {str(i) for i in range(LINES)}
    assert counting.answered.total() - LINES <= killed * 2 * 3


async def test_jobs_outlive_a_kill_and_only_the_running_one_is_interrupted(
    shell: Shell, tmp_path: Path
) -> None:
    async with FakeNode() as node:
        gateway, port = await shell.serve("--node", node.url, cwd=tmp_path)
        ids = []
        for number in range(4):
            body = {"type": "chat", "params": {"model": "m", "messages": [number]}}
            client = await shell.connect(port)
            await client.post("/jobs", body)
            ids.append((await client.reply()).json["id"])
        call = await node.next_call()
        assert call.json["messages"] == [0]
        gateway.signal(signal.SIGKILL)
        await gateway.ends()
        gateway, port = await shell.serve("--node", node.url, cwd=tmp_path)
        for number in (1, 2, 3):  # in their order, at once
            call = await node.next_call()
            assert call.json["messages"] == [number]
            await call.answer({"n": number})
        seen: list[Any] = []
        async with asyncio.timeout(LIMIT_S):
            while [one["status"] for one in seen] != ["failed", *["completed"] * 3]:
                await pause()
                seen = []
                for job_id in ids:
                    client = await shell.connect(port)
                    await client.get(f"/jobs/{job_id}")
                    seen.append((await client.reply()).json)
        assert seen[0]["error"] == "Interrupted by restart"
        assert [one["result"] for one in seen[1:]] == [{"n": 1}, {"n": 2}, {"n": 3}]
        gateway.signal(signal.SIGTERM)
        assert await gateway.ends() == 0


async def test_a_signal_ends_a_gateway_whose_database_hangs(
    shell: Shell, tmp_path: Path, postgres_url: str
) -> None:
    options = ("--set", f"jobs.database={postgres_url}", "--set", "server.shutdown_seconds=1",
               "--set", f"jobs.files_folder={tmp_path}/files")  # fmt: skip
    async with FakeNode() as node:
        gateway, port = await shell.serve("--node", node.url, *options, cwd=tmp_path)
        client = await shell.connect(port)
        await client.post("/jobs", {"type": "chat", "params": {"model": "m", "messages": []}})
        assert (await client.reply()).status == 202
        await node.next_call()
        address = postgres_url.replace("postgresql://", "postgresql+psycopg://", 1)
        engine = create_engine(address)
        with engine.connect() as connection:
            connection.execute(text("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE"))
            gateway.signal(signal.SIGTERM)
            assert await gateway.ends() == 0  # while the lock lasts
        engine.dispose()


async def test_a_module_that_cannot_be_imported_is_said_in_a_line(shell: Shell) -> None:
    gateway = await shell.start("serve", "--port", "0", "--set", 'jobs.modules=["no.such"]')
    assert await gateway.ends() == 2
    assert "jobs.modules: no.such cannot be imported" in gateway.text
    assert "Traceback" not in gateway.text
