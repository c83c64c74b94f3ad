"""Short words for what tests of jobs do over and over."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from forebay.testing import RawClient, Reply

    from ..conftest import Rig

KEYS: list[dict[str, Any]] = [
    {"name": "a", "key_env": "A"},
    {"name": "b", "key_env": "B"},
    {"name": "root", "key_env": "ROOT", "admin": True},
]
ENVIRON = {"A": "sk-a-0123456789", "B": "sk-b-0123456789", "ROOT": "sk-root-01234567"}


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {ENVIRON[name]}"}


def chat(number: int = 0, model: str = "m", **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"hello {number}"}]
    return {"type": "chat", "params": {"model": model, "messages": messages}, **more}


async def post(rig: Rig, body: object, headers: dict[str, str] | None = None) -> Reply:
    given = {"content-type": "application/json", **(headers or {})}
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await rig.get("/jobs", given, "POST", body=raw)


async def submit(rig: Rig, body: object | None = None) -> int:
    reply = await post(rig, chat() if body is None else body)
    assert reply.status == 202, reply.json
    return int(reply.json["id"])


async def job(rig: Rig, job_id: int) -> dict[str, Any]:
    reply = await rig.get(f"/jobs/{job_id}")
    assert reply.status == 200
    seen: dict[str, Any] = reply.json
    return seen


async def until(rig: Rig, job_id: int, status: str) -> dict[str, Any]:
    """Ask until the job is there: what happens in the store's thread is seen when it is done."""
    for _ in range(2000):
        seen = await job(rig, job_id)
        if seen["status"] == status:
            return seen
    raise AssertionError(f"job {job_id} is {seen['status']}, not {status}: {seen}")


async def until_metrics_say(rig: Rig, line: str) -> str:
    """Ask until they do: the loop hears of a change just after a reader of the store may see it."""
    for _ in range(2000):
        text = (await rig.get("/metrics")).body.decode()
        if line in text:
            return text
    raise AssertionError(f"no {line!r} in {text}")


async def pieces(client: RawClient) -> AsyncIterator[bytes]:
    while (piece := await client.chunk()) is not None:
        yield piece
