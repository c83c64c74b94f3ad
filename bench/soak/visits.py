"""Clients of the inference routes: patient, impatient, slow, wrong, pipelining."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from bench.soak import bodies
from bench.soak.stage import HOST, KEY, OTHER_KEY, PATIENCE_S
from forebay.testing.raw_client import RawClient

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator

    from bench.soak.tally import Tally
    from forebay.testing.raw_client import Reply

SMALL_BUFFER_BYTES = 4096
CANCEL_WITHIN_S = 0.4
PIECE_BYTES = 65_536


class Visitor:
    """One client with a connection of its own, and chances of its own."""

    def __init__(self, port: int, draw: random.Random, number: int, tally: Tally) -> None:
        self.port = port
        self.draw = draw
        self.tally = tally
        self.key = draw.choice([KEY, KEY, KEY, OTHER_KEY])
        self._ids = (f"soak-{number}-{count}" for count in range(1_000_000))

    @asynccontextmanager
    async def connected(self, rcvbuf: int | None = None) -> AsyncIterator[RawClient]:
        async with await RawClient.connect(HOST, self.port, rcvbuf=rcvbuf) as client:
            client.timeout_s = PATIENCE_S
            yield client

    def headers(self) -> dict[str, str]:
        return bodies.headers(self.draw, next(self._ids), self.key)

    def any_body(self, is_stream: bool) -> tuple[str, dict[str, Any]]:
        families = bodies.TALKING if is_stream else bodies.TALKING + bodies.OTHERS
        return bodies.body(self.draw, self.draw.choice(families), is_stream)

    async def asked(
        self, client: RawClient, kind: str, method: str, path: str, body: object = b""
    ) -> Reply:
        """Send one request and read its answer."""
        headers = self.headers()
        await client.request(method, path, body, headers)
        reply = await client.reply()
        self.tally.answered(kind, headers["x-request-id"], reply)
        return reply


async def whole(visitor: Visitor) -> None:
    """One request, read to its end: whole or as a stream."""
    is_stream = visitor.draw.random() < 0.5
    path, body = visitor.any_body(is_stream)
    async with visitor.connected() as client:
        await visitor.asked(client, "stream" if is_stream else "unary", "POST", path, body)


async def several(visitor: Visitor) -> None:
    """A few requests on one connection, one after the other."""
    async with visitor.connected() as client:
        for _ in range(visitor.draw.randint(2, 4)):
            path, body = visitor.any_body(visitor.draw.random() < 0.5)
            await visitor.asked(client, "kept connection", "POST", path, body)


async def leaving_early(visitor: Visitor) -> None:
    """Go away a moment after asking: while it waits, or just as it starts."""
    path, body = visitor.any_body(visitor.draw.random() < 0.5)
    async with visitor.connected() as client:
        await client.post(path, body, visitor.headers())
        await asyncio.sleep(visitor.draw.uniform(0, CANCEL_WITHIN_S))
        _hang_up(visitor, client)
    visitor.tally.left("cancel", "hung up")


async def cancelled_by_id(visitor: Visitor) -> None:
    """Cancel through another connection, by the request's id."""
    path, body = visitor.any_body(visitor.draw.random() < 0.5)
    headers = visitor.headers()
    async with visitor.connected() as client, visitor.connected() as second:
        await client.post(path, body, headers)
        await asyncio.sleep(visitor.draw.uniform(0, CANCEL_WITHIN_S))
        target = f"/v1/queue/{headers['x-request-id']}"
        await visitor.asked(second, "cancel by id", "DELETE", target)
        visitor.tally.answered("cancelled", headers["x-request-id"], await client.reply())


async def leaving_a_stream(visitor: Visitor) -> None:
    """Read some pieces of a stream and go away."""
    path, body = visitor.any_body(is_stream=True)
    async with visitor.connected() as client:
        await client.post(path, body, visitor.headers())
        await client.head()
        for _ in range(visitor.draw.randint(0, 10)):
            if await client.chunk() is None:
                break
        _hang_up(visitor, client)
    visitor.tally.left("stream", "hung up")


async def slow_reader(visitor: Visitor) -> None:
    """Stop reading a long stream for seconds; then read on, or go away."""
    path, body = visitor.any_body(is_stream=True)
    body |= {"max_tokens": 200, "max_output_tokens": 200, "ignore_eos": True}
    async with visitor.connected(rcvbuf=SMALL_BUFFER_BYTES) as client:
        headers = visitor.headers()
        await client.post(path, body, headers)
        reply = await client.head()
        client.stop_reading()
        await asyncio.sleep(visitor.draw.uniform(1, 12))  # now and then over write_seconds
        if visitor.draw.random() < 0.5:
            _hang_up(visitor, client)
            visitor.tally.left("slow reader", "hung up")
            return
        client.resume_reading()
        try:
            while await client.chunk() is not None:
                pass
        except (EOFError, ConnectionError):  # it was too slow
            visitor.tally.left("slow reader", "was cut off")
            return
    visitor.tally.answered("slow reader", headers["x-request-id"], reply)


async def large_body(visitor: Visitor) -> None:
    """Send 1 to 8 MiB; one in three goes away before all of it is sent."""
    path, body = bodies.large(visitor.draw)
    if visitor.draw.random() < 0.66:
        async with visitor.connected() as client:
            await visitor.asked(client, "large body", "POST", path, body)
        return
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: {HOST}\r\ncontent-length: {len(content)}\r\n"
    lines = "".join(f"{name}: {value}\r\n" for name, value in visitor.headers().items())
    async with visitor.connected() as client:
        await client.send(f"{head}{lines}\r\n".encode())
        for start in range(0, visitor.draw.randrange(len(content)), PIECE_BYTES):
            await client.send(content[start : start + PIECE_BYTES])
        _hang_up(visitor, client)
    visitor.tally.left("large body", "abandoned")


async def wrong(visitor: Visitor) -> None:
    """Send what must be refused, as JSON or as HTTP."""
    async with visitor.connected() as client:
        if visitor.draw.random() < 0.3:
            await client.send(visitor.draw.choice(bodies.MALFORMED))
            reply = await client.reply()
            visitor.tally.answered("malformed", reply.headers.get("x-request-id", ""), reply)
            return
        method, path, body, key = bodies.wrong(visitor.draw)
        headers = visitor.headers()
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        await client.request(method, path, body, headers)
        reply = await client.reply()
        visitor.tally.answered("wrong", headers["x-request-id"], reply)
        if reply.status < 400:
            visitor.tally.fault(f"{method} {path} {body[:60]!r} was answered {reply.status}")


async def pipelined(visitor: Visitor) -> None:
    """Send two to four requests at once; read all answers, or reset after the first."""
    asked = []
    is_reset = visitor.draw.random() < 0.3
    async with visitor.connected() as client:
        for _ in range(visitor.draw.randint(2, 4)):
            path, body = visitor.any_body(is_stream=False)
            headers = visitor.headers()
            await client.post(path, body, headers)
            asked.append(headers["x-request-id"])
        for request_id in asked:
            visitor.tally.answered("pipelined", request_id, await client.reply())
            if is_reset:
                client.abort()
                visitor.tally.left("pipelined", "reset")
                return


def _hang_up(visitor: Visitor, client: RawClient) -> None:
    if visitor.draw.random() < 0.5:
        client.abort()
    else:
        client.close()
