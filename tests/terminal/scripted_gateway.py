"""A stand-in for a gateway's live view that does what a test tells it to, right or wrong.

Not a gateway: what the real one sends is tested with the real one. This one breaks off, falls
silent, says no, and sends names that try to be commands.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT_S = 20.0  # only turns a hang into a failure
SAMPLES = 300


def hello(**changed: Any) -> dict[str, Any]:
    """Return the first event of a connection."""
    depth = {
        "high": [0] * SAMPLES,
        "normal": [(i // 20) % 9 for i in range(SAMPLES)],
        "low": [i // 150 for i in range(SAMPLES)],
    }
    history = {
        "sample_number": 1234,
        "depth": depth,
        "processing": [2] * SAMPLES,
        "served": [i % 3 for i in range(SAMPLES)],
        "rejected": [0] * SAMPLES,
    }
    return {
        "version": 1, "gateway": "0.5.0", "epoch": "9f2c61d0", "admin": True, "keys": False,
        "priorities": ["high", "normal", "low"], "history": history, **changed,
    }  # fmt: skip


def node(name: str, **changed: Any) -> dict[str, Any]:
    """Return a node that is well."""
    return {
        "name": name, "kind": "ollama", "state": "online", "state_seconds": 812.2, "slots": 2,
        "in_flight": 1, "models": ["qwen3:8b", "gemma3:4b"], "models_total": 2,
        "loaded": ["qwen3:8b"], "failing": [], "gpu_load": 0.93,
        "vram_used_bytes": 9123456789, "vram_total_bytes": 25769803776,
        "failures": {}, "last_error": None, "simulated": False, **changed,
    }  # fmt: skip


def model(name: str, **changed: Any) -> dict[str, Any]:
    """Return a model that some wait for."""
    return {
        "model": name, "families": ["openai"], "waiting": 3, "processing": 2, "slots": 2,
        "wait_p50_seconds": 6.1, "wait_p90_seconds": 11.0, **changed,
    }  # fmt: skip


def snapshot(**changed: Any) -> dict[str, Any]:
    """Return a picture with something of everything; `queue` changes single numbers of it."""
    queue = {
        "enabled": True, "waiting": 11, "processing": 5, "max_size": 100,
        "average_wait_seconds": 1.234, "average_service_seconds": 4.5,
        "by_priority": {"high": 1, "normal": 8, "low": 2},
        "served_per_minute": 42, "rejected_per_minute": 3, "served_total": 4021,
        "rejected_total": 17, "timeouts_total": 2, "cancelled_total": 5, "retries_total": 1,
        "model_swaps_total": 4, "prefix_tokens_total": 51200, "prefix_hit_tokens_total": 30720,
        "prefix_saved_seconds_total": 6.1, "waiting_jobs": 0, "processing_jobs": 1,
        **changed.pop("queue", {}),
    }  # fmt: skip
    offline = {
        "state": "offline", "state_seconds": 140.0, "in_flight": 0, "gpu_load": None,
        "failures": {"connect": 12, "timeout": 3}, "last_error": "connection refused",
    }  # fmt: skip
    trouble = {
        "level": "error", "code": "node_offline", "node": "gpu3", "seconds": 140.0,
        "text": {"en": "Node gpu3 has been offline for 2 min. Last error: connection refused."},
        "advice": {"en": "Start its server, or take it out with: forebay nodes remove gpu3"},
    }  # fmt: skip
    problem = {
        "code": "queue_full", "kind": "rejection", "last_minute": 3, "last_15_minutes": 40,
        "total": 41, "seconds_ago": 2.5, "remedy": {"en": "Try again after Retry-After."},
    }  # fmt: skip
    jobs = {"type": "chat", "queued": 12, "running": 2, "completed": 40, "failed": 1}
    return {
        "at": "2026-11-15T14:00:00.623Z", "uptime_seconds": 12345.6, "draining": False,
        "ready": True, "queue": queue, "models": [model("qwen3:8b"), model("gemma3:4b")],
        "nodes": [node("gpu1"), node("gpu2", slots=4), node("gpu3", **offline)],
        "jobs": {"types": [jobs], "batches": {"open": 1, "lines": 1000, "completed": 412}},
        "sessions": {"held": 4, "pending_prompts": 1}, "problems": [problem],
        "troubles": [trouble], "caption": None, "sample_number": 1235,
        "sample": {"depth": {"high": 1, "normal": 8, "low": 2}, "served": 1, "rejected": 0},
        **changed,
    }  # fmt: skip


def request(name: str, **changed: Any) -> dict[str, Any]:
    """Return a request that waits."""
    return {
        "id": name, "state": "waiting", "model": "qwen3:8b", "user": "alice", "position": 1,
        "priority": "normal", "estimated_wait_seconds": {"p50": 12.0, "p90": 30.0},
        "waited_seconds": 3.5, "node": None, "reason": "every slot is taken", "arrived": 1.0,
        **changed,
    }  # fmt: skip


def frame(event: str, value: object) -> bytes:
    """Return an event as it goes over the wire."""
    return f"event: {event}\ndata: {json.dumps(value)}\n\n".encode()


class ScriptedGateway:
    """Sends to whoever follows `/events` what the test says."""

    def __init__(self) -> None:
        self.hello = hello()
        self.snapshot = snapshot()
        self.asked: list[str] = []
        """Methods and paths, in order."""
        self.headers: list[str] = []
        self.refusal: tuple[int, object] | None = None
        """Answers `/events` with this instead."""
        self.admin_answer: tuple[int, object] = (200, {"name": "gpu1", "state": "draining"})
        self.requests: tuple[int, dict[str, Any]] = (200, {"data": []})
        """Answers `/v1/queue/requests`; rows by their state."""
        self.content_type = "text/event-stream"
        self.url = ""
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._followers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        port = int(self.url.rpartition(":")[2]) if self.url else 0
        self._server = await asyncio.start_server(self._begin, "127.0.0.1", port)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Hang up on everybody and refuse connections."""
        assert self._server is not None
        self._server.close()
        self.hang_up()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def send(self, **changed: Any) -> None:
        """Send a picture, with these parts changed for good."""
        self.snapshot = {**self.snapshot, **changed}
        self.send_raw(frame("snapshot", self.snapshot))

    def send_raw(self, data: bytes) -> None:
        for writer in self._followers:
            writer.write(data)

    def hang_up(self) -> None:
        """Break every connection."""
        for writer in self._followers:
            writer.transport.abort()
        self._followers.clear()

    async def until(self, reached: Callable[[], object]) -> None:
        """Wait until a condition holds; looked at after everything that happens here."""
        async with asyncio.timeout(LIMIT_S):
            while not reached():
                self._changed.clear()
                await self._changed.wait()

    def _page(self, path: str) -> tuple[int, object]:
        status, page = self.requests
        if status != 200:
            return status, page
        rows = [row for row in page["data"] if f"state={row['state']}&" in path]
        return 200, {"data": rows, "has_more": False}

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, path, _ = head.split(" ", 2)
            self.asked.append(f"{method} {path}")
            self.headers.append(head)
            if path == "/events" and self.refusal is None:
                writer.write(
                    f"HTTP/1.1 200 OK\r\ncontent-type: {self.content_type}\r\n\r\n".encode()
                )
                writer.write(frame("hello", self.hello) + frame("snapshot", self.snapshot))
                self._followers.add(writer)
                self._changed.set()
                await reader.read()  # until the client leaves
                return
            status, value = (self.refusal or (404, {})) if path == "/events" else self.admin_answer
            if path.startswith("/v1/queue/requests?"):
                status, value = self._page(path)
            content = json.dumps(value).encode()
            head = f"HTTP/1.1 {status} Said\r\ncontent-length: {len(content)}\r\n"
            writer.write(
                f"{head}content-type: application/json\r\nconnection: close\r\n\r\n".encode()
            )
            writer.write(content)
            self._changed.set()
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._followers.discard(writer)
            self._changed.set()
            writer.close()
