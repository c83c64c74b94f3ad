"""A stand-in for a gateway's sessions that does what a test tells it to, right or wrong.

Not a gateway: what the real one answers is tested with the real one. This one loses answers, ends
streams, leaves gaps, writes what cannot be read, and ends turns before it has answered.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LIMIT_S = 10.0  # only turns a hang into a failure
SESSION = "s1"
QUEUE_FULL = {
    "code": "prompt_queue_full",
    "error": "the session's queue is full",
    "sessionId": SESSION,
    "limit": 5,
    "pendingCount": 5,
}


class Asked(NamedTuple):
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Exchange:
    """The means to answer one request."""

    def __init__(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        self.asked = asked
        self._writer = writer

    async def answer(
        self, value: object, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        lines = {"content-length": str(len(content)), "connection": "close", **(headers or {})}
        self._write_head(status, lines)
        self._writer.write(content)
        await self._writer.drain()

    def begin_stream(self) -> None:
        lines = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
        self._write_head(200, lines)
        self.send(b"retry: 1000\n\n")

    def send(self, data: bytes) -> None:
        self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end_stream(self) -> None:
        """End in good order."""
        self._writer.write(b"0\r\n\r\n")
        self._writer.close()

    def cut(self) -> None:
        """Break off."""
        self._writer.transport.abort()

    def _write_head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Said", *(f"{name}: {text}" for name, text in headers.items())]
        self._writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())


class ScriptedServer:
    """One session, `s1`, whose events and turns the test writes."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.events: list[bytes] = []
        """Every frame so far; the id of the first is 1."""
        self.held_from = 0
        """Frames before this one are no longer held."""
        self.turns: dict[str, dict[str, Any]] = {}
        """What `/turns/{id}` says; 404 for others."""
        self.epoch = "e1"
        self.streams: list[Exchange] = []
        """Who is listening."""
        self.on_prompt: Callable[[Exchange], Awaitable[object]] | None = None
        """Answers prompts instead of an ordinary 202."""
        self.answers: dict[tuple[str, str], list[tuple[object, int, dict[str, str]]]] = {}
        """Answers by method and path, each used once, before anything else is looked at."""
        self.url = ""
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._prompts = 0

    # -- what tests say

    def plan(
        self,
        method: str,
        path: str,
        value: object,
        status: int = 200,
        headers: dict[str, str] | None = None,
    ) -> None:
        """Answer the next request to a path so."""
        self.answers.setdefault((method, path), []).append((value, status, headers or {}))

    def emit(self, kind: str, prompt_id: str | None = None, **data: Any) -> None:
        """Publish an event."""
        self.emit_raw(kind, json.dumps({"type": kind, "promptId": prompt_id, **data}))

    def emit_raw(self, kind: str, text: str) -> None:
        number = len(self.events) + 1
        frame = f"id: {number}\nevent: {kind}\ndata: {text}\n\n".encode()
        self.events.append(frame)
        for stream in self.streams:
            stream.send(frame)

    def complete(self, prompt_id: str, text: str = "yes") -> None:
        usage = {"promptTokens": 3, "completionTokens": 2}
        self.emit(
            "turn_complete", prompt_id, text=text, finishReason="stop", usage=usage, model="m",
            node="n1", waitedMs=7,
        )  # fmt: skip

    def drop_streams(self, *, cut: bool = False) -> None:
        """End every subscription."""
        for stream in self.streams:
            stream.cut() if cut else stream.end_stream()
        self.streams.clear()

    async def until(self, reached: Callable[[], object]) -> None:
        """Wait until a condition holds; looked at after everything that happens here."""
        async with asyncio.timeout(LIMIT_S):
            while not reached():
                self._changed.clear()
                await self._changed.wait()

    def count(self, method: str, path: str) -> int:
        """Return how often something was asked."""
        return sum(asked[:2] == (method, path) for asked in self.asked)

    # -- the server

    async def start(self) -> None:
        port = int(self.url.rpartition(":")[2]) if self.url else 0
        self._server = await asyncio.start_server(self._begin, "127.0.0.1", port)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def go_away(self) -> None:
        """Hang up on everybody and refuse connections."""
        assert self._server is not None
        self._server.close()
        self.streams.clear()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        exchange = None
        try:
            exchange = Exchange(await _read(reader), writer)
            self.asked.append(exchange.asked)
            self._changed.set()
            await self._answer(exchange)
            if exchange in self.streams:
                await reader.read()  # until the client leaves
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            if exchange in self.streams:
                self.streams.remove(exchange)
            self._changed.set()
            writer.close()

    async def _answer(self, exchange: Exchange) -> None:
        method, path = exchange.asked[:2]
        planned = self.answers.get((method, path))
        if planned:
            value, status, headers = planned.pop(0)
            await exchange.answer(value, status, headers)
            return
        match method, path.split("/")[1:]:
            case "POST", ["session"]:
                await exchange.answer({"sessionId": SESSION}, 201)
            case "GET", ["session", _]:
                await exchange.answer(self._state())
            case "GET", ["session", _, "events"]:
                self._begin_stream(exchange)
            case "POST", ["session", _, "prompt"]:
                await (self.on_prompt or self.accept)(exchange)
            case "GET", ["session", _, "turns", prompt_id] if prompt_id in self.turns:
                await exchange.answer({"promptId": prompt_id, **self.turns[prompt_id]})
            case _:
                error = {"code": "not_found", "message": f"no {path}", "param": None}
                await exchange.answer({"error": error}, 404)

    async def accept(self, exchange: Exchange, last_event_id: int | None = None) -> str:
        """Answer a prompt with 202, and return its id: p1, p2, ..."""
        self._prompts += 1
        prompt_id = f"p{self._prompts}"
        known = len(self.events) if last_event_id is None else last_event_id
        body = {"promptId": prompt_id, "lastEventId": known, "eventEpoch": self.epoch}
        await exchange.answer(body, 202)
        return prompt_id

    def _state(self) -> dict[str, Any]:
        return {
            "sessionId": SESSION,
            "model": "m",
            "lastEventId": len(self.events),
            "eventEpoch": self.epoch,
        }

    def _begin_stream(self, exchange: Exchange) -> None:
        after = int(exchange.asked.headers.get("last-event-id", "0"))
        exchange.begin_stream()
        if after < self.held_from:
            gap = {"type": "gap", "promptId": None, "missedFrom": after + 1}
            gap |= {"missedTo": self.held_from, "eventEpoch": self.epoch}
            text = f"id: {self.held_from}\nevent: gap\ndata: {json.dumps(gap)}\n\n"
            exchange.send(text.encode())
        for frame in self.events[max(after, self.held_from) :]:
            exchange.send(frame)
        self.streams.append(exchange)
        self._changed.set()


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(method, path, headers, body)
