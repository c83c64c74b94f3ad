"""Sessions through the installed command: killed in mid-prompt, and a thousand of them at once."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from forebay.nodes.sim.engine import SimOptions
from forebay.testing import FakeNode
from harness.polling import pause

from .conftest import LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.testing.fake_node import Call

    from .conftest import Shell

TERMINAL = ("turn_complete", "turn_error")
PROMPTS, WORKERS = 5, 50


def delta(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode() + b"\n\n"


class Slow:
    """A node that says one word and then goes on only if it is told to."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.asked: Counter[str] = Counter()
        self.patient = True

    async def answer(self, call: Call) -> None:
        self.asked[call.json["messages"][-1]["content"]] += 1
        await call.start_stream()
        await call.chunk(delta("word"))
        self.begun.set()
        if self.patient:
            await call.gone(LIMIT_S)
            return
        await call.chunk(b"data: [DONE]\n\n")
        await call.end()


async def ends_of(
    client: httpx.AsyncClient, session: str, prompts: list[str], after: int | None
) -> list[dict[str, Any]]:
    """Read a session's events until each of these prompts has ended; return everything seen."""
    headers = {} if after is None else {"last-event-id": str(after)}
    seen: list[dict[str, Any]] = []
    wanted = set(prompts)
    async with (
        asyncio.timeout(LIMIT_S),
        client.stream("GET", f"/session/{session}/events", headers=headers) as stream,
    ):
        number = 0
        async for line in stream.aiter_lines():
            if line.startswith("id: "):
                number = int(line[4:])
            if line.startswith("data: "):
                event = json.loads(line[6:])
                seen.append({**event, "id": number})
                if event["type"] in TERMINAL:
                    wanted.discard(event["promptId"])
            if not wanted:
                return seen
    raise AssertionError(f"no end of {wanted}: {seen}")


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_every_accepted_prompt_has_exactly_one_end_after_kill_9_in_mid_prompt(
    shell: Shell, tmp_path: Path, request: pytest.FixtureRequest, database: str
) -> None:
    url = request.getfixturevalue(f"{database}_url")
    options = ("--set", f"sessions.database={url}")
    slow = Slow()
    async with FakeNode() as node:
        node.automatic = slow.answer
        gateway, port = await shell.serve("--node", node.url, *options, cwd=tmp_path)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            session = (await client.post("/session", json={"model": "m"})).json()["sessionId"]
            prompts, after = [], None
            for number in range(4):
                said = await client.post(f"/session/{session}/prompt", json={"prompt": f"{number}"})
                assert said.status_code == 202
                prompts.append(said.json()["promptId"])
                after = said.json()["lastEventId"] if after is None else after
            await client.delete(f"/session/{session}/pending-prompts/{prompts[3]}")
            async with asyncio.timeout(LIMIT_S):
                await slow.begun.wait()
        gateway.signal(signal.SIGKILL)
        await gateway.ends()
        slow.patient = False
        _, port = await shell.serve("--node", node.url, *options, cwd=tmp_path)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            seen = await ends_of(client, session, prompts, after)
            turns = [
                (await client.get(f"/session/{session}/turns/{prompt}")).json()
                for prompt in prompts
            ]
            again = await client.post(f"/session/{session}/prompt", json={"prompt": "and now?"})
            assert again.status_code == 202
            await ends_of(client, session, [again.json()["promptId"]], None)
            left = (await client.get(f"/session/{session}")).json()
    assert [turn["status"] for turn in turns] == ["failed", "completed", "completed", "cancelled"]
    assert turns[0]["error"]["code"] == "outcome_unknown"
    assert seen[0]["type"] == "gap"
    ends = Counter(event["promptId"] for event in seen if event["type"] in TERMINAL)
    assert ends == Counter(prompts)
    assert slow.asked == {"0": 1, "1": 1, "2": 1, "and now?": 1}  # what ran was not run again
    assert left["pendingCount"] == 0


@pytest.mark.parametrize("total", [200, pytest.param(1000, marks=pytest.mark.long)])
async def test_many_sessions_of_five_prompts_each_end_without_drift(
    shell: Shell, tmp_path: Path, total: int
) -> None:
    options = SimOptions(models=("m",), slots=64, ttft_s=0.0, tokens_per_second=100_000.0)
    url = await shell.sim_node(options)
    _, port = await shell.serve("--node", url, "--set", "queue.max_size=50", cwd=tmp_path)
    sessions: list[str] = []

    async def some(count: int) -> None:
        """Make sessions one after the other, and give each all of its prompts at once."""
        client = await shell.connect(port)
        for _ in range(count):
            await client.post("/session", {"model": "m", "maxTokens": 3})
            session = (await client.reply()).json["sessionId"]
            sessions.append(session)
            for number in range(PROMPTS):
                await client.post(f"/session/{session}/prompt", {"prompt": f"{number}"})
                reply = await client.reply()
                assert reply.status == 202, reply.body

    async with asyncio.timeout(10 * LIMIT_S):
        await asyncio.gather(*(some(total // WORKERS) for _ in range(WORKERS)))
        while True:
            text = (await metrics(shell, port)).decode()
            if "forebay_sessions_pending_prompts 0.0" in text:
                break
            await pause()
    for session in sessions[:: total // 20]:
        seen = await shell.get(port, f"/session/{session}")
        assert (seen["pendingCount"], seen["turns"]) == (0, PROMPTS)
    queue = await shell.get(port, "/v1/queue")
    assert f'forebay_session_prompts_total{{outcome="completed"}} {total * PROMPTS}.0' in text
    assert 'outcome="queue_full"' not in text
    assert f"forebay_sessions {total}.0" in text
    assert (queue["waiting"], queue["processing"], queue["rejected_total"]) == (0, 0, 0)


async def metrics(shell: Shell, port: int) -> bytes:
    client = await shell.connect(port)
    await client.get("/metrics")
    reply = await client.reply()
    client.close()
    return reply.body
