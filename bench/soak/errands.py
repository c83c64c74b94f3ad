"""Clients of the other routes: jobs, batches, sessions, and those who look at the gateway."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from bench.soak import bodies
from bench.soak.stage import SMALL

if TYPE_CHECKING:
    from bench.soak.visits import Visitor
    from forebay.testing.raw_client import RawClient

BOUNDARY = "soak-boundary"
LOOKS = 20
LOOK_S = 1.0


async def job(visitor: Visitor) -> None:
    """Submit a job; some are cancelled, some looked after."""
    _, params = bodies.body(visitor.draw, "chat", is_stream=False)
    async with visitor.connected() as client:
        submission: dict[str, object] = {"type": "chat", "params": params}
        if visitor.draw.random() < 0.3:
            submission["idempotency_key"] = f"key{visitor.draw.randrange(50)}"
        taken = await visitor.asked(client, "job", "POST", "/jobs", submission)
        if taken.status != 202:
            return
        path = f"/jobs/{taken.json['id']}"
        await asyncio.sleep(visitor.draw.uniform(0, 1))
        if visitor.draw.random() < 0.3:
            await visitor.asked(client, "job", "DELETE", path)
        await visitor.asked(client, "job", "GET", path)


async def batch(visitor: Visitor) -> None:
    """Upload a file, run it as a batch, fetch the answers, delete the files."""
    lines = [
        {"custom_id": f"line{number}", "method": "POST", "url": "/v1/chat/completions",
         "body": {"model": SMALL, "max_tokens": 4, "messages": [{"role": "user", "content": "x"}]}}
        for number in range(visitor.draw.randint(1, 8))
    ]  # fmt: skip
    async with visitor.connected() as client:
        file_id = await _upload(visitor, client, "\n".join(map(json.dumps, lines)))
        if file_id is None:
            return
        asked = {
            "input_file_id": file_id,
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
        }
        made = await visitor.asked(client, "batch", "POST", "/v1/batches", asked)
        if made.status == 200:
            await _follow(visitor, client, f"/v1/batches/{made.json['id']}")
        await visitor.asked(client, "batch", "DELETE", f"/v1/files/{file_id}")


async def _upload(visitor: Visitor, client: RawClient, text: str) -> str | None:
    parts = (
        f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="file"; filename="a.jsonl"\r\n'
        f"content-type: application/jsonl\r\n\r\n{text}\r\n--{BOUNDARY}--\r\n"
    )
    headers = visitor.headers()
    kind = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    await client.post("/v1/files", parts.encode(), headers | kind)
    reply = await client.reply()
    visitor.tally.answered("batch", headers["x-request-id"], reply)
    return reply.json["id"] if reply.status == 200 else None


async def _follow(visitor: Visitor, client: RawClient, path: str) -> None:
    """Look at a batch until it has ended; one in five is cancelled."""
    if visitor.draw.random() < 0.2:
        await visitor.asked(client, "batch", "POST", f"{path}/cancel")
    for _ in range(LOOKS):
        reply = await visitor.asked(client, "batch", "GET", path)
        seen = reply.json if reply.status == 200 else {"status": "failed"}
        if seen["status"] in ("completed", "failed", "cancelled", "expired"):
            break
        await asyncio.sleep(LOOK_S)
    for name in ("output_file_id", "error_file_id"):
        if seen.get(name):
            content = f"/v1/files/{seen[name]}"
            await visitor.asked(client, "batch", "GET", f"{content}/content")
            await visitor.asked(client, "batch", "DELETE", content)


async def session(visitor: Visitor) -> None:
    """Make a session, prompt it, follow it for a moment, perhaps cancel; mostly delete it."""
    async with visitor.connected() as client, visitor.connected() as following:
        made = {"model": SMALL, "maxTokens": visitor.draw.randint(*bodies.TOKENS)}
        found = await visitor.asked(client, "session", "POST", "/session", made)
        if found.status != 201:
            return
        path = f"/session/{found.json['sessionId']}"
        await following.get(f"{path}/events", visitor.headers())
        for _ in range(visitor.draw.randint(1, 6)):  # one more than may be pending
            said = {"prompt": bodies.text(visitor.draw)}
            await visitor.asked(client, "session", "POST", f"{path}/prompt", said)
        await asyncio.sleep(visitor.draw.uniform(0, 2))
        if visitor.draw.random() < 0.4:
            await visitor.asked(client, "session", "POST", f"{path}/cancel")
        if visitor.draw.random() < 0.1:
            return  # it is left to its end by idleness
        await visitor.asked(client, "session", "DELETE", path)


async def look(visitor: Visitor) -> None:
    """Ask how the gateway is."""
    path = visitor.draw.choice(["/health", "/v1/queue", "/v1/models", "/jobs?limit=5", "/"])
    async with visitor.connected() as client:
        await visitor.asked(client, "look", "GET", path)


async def watch(visitor: Visitor) -> None:
    """Watch the live events, as the page does, and go away."""
    async with visitor.connected() as client:
        await client.get("/events", visitor.headers())
        await client.head()
        for _ in range(visitor.draw.randint(1, 12)):
            await client.chunk()
    visitor.tally.left("watch", "hung up")
