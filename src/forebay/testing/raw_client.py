"""A client that sends exactly the bytes it is given and shows exactly the bytes that come back."""

import asyncio
import json
import re
import socket
import ssl as tls
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from forebay.testing.fake_node_http import body_bytes, head_bytes, linger_zero

DEADLINE_S = 10.0  # long beside any loopback exchange, short beside a CI job
STATUS_LINE = re.compile(r"HTTP/1\.[01] ([0-9]{3}) ?(.*)")


@dataclass
class Reply:
    """One answer; `head()` gives it without a body, `reply()` with."""

    status: int
    reason: str
    raw_headers: list[tuple[str, str]]
    """In the order and case sent."""

    raw_head: bytes
    """Status line and headers as sent, with the blank line that ends them."""

    body: bytes = b""
    """Without transfer coding."""

    @property
    def headers(self) -> dict[str, str]:
        """By lower-case name; several of one name are joined with commas (RFC 9110, 5.3)."""
        joined: dict[str, str] = {}
        for name, value in self.raw_headers:
            known = joined.get(name.lower())
            joined[name.lower()] = value if known is None else f"{known}, {value}"
        return joined

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


class Incoming(asyncio.Protocol):
    """Keeps every byte that arrived, also those before an RST, which streams would throw away."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.finished = False
        """Nothing more will come."""
        self.reset = False
        self.lost = False
        self._changed = asyncio.Event()
        self._writable = True

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self._changed.set()

    def eof_received(self) -> None:
        self.finished = True
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.finished = self.lost = self._writable = True
        self.reset = isinstance(exc, ConnectionError)
        self._changed.set()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._changed.set()

    async def change(self) -> None:
        """Wait for anything new."""
        self._changed.clear()
        await self._changed.wait()

    async def drain(self) -> None:
        while not self._writable:
            await self.change()


class RawClient:
    """A client for tests in which every byte and every hang-up counts.

    Real HTTP clients tidy up what they send, retry, pool and hide how an answer was framed. This
    one does none of that: slow headers, half a body, chunk boundaries, RST and a reader that stops
    reading are all one call. Reading past the end raises `EOFError` after a FIN and
    `ConnectionResetError` after an RST; waiting longer than `timeout_s` fails the test.
    """

    def __init__(self, transport: asyncio.Transport, incoming: Incoming, host: str) -> None:
        self.timeout_s = DEADLINE_S
        self._transport = transport
        self._incoming = incoming
        self._host = host
        self._left: int | None = 0
        """Bytes of a body of known length still to come; None for one that ends with the line."""
        self._chunked = False

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        ssl: tls.SSLContext | None = None,
        rcvbuf: int | None = None,
    ) -> Self:
        """Open a connection; a small `rcvbuf` in bytes makes `stop_reading()` felt soon."""
        loop = asyncio.get_running_loop()
        plain = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            if rcvbuf is not None:  # before connecting: the window is agreed on then
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
            plain.setblocking(False)
            async with asyncio.timeout(DEADLINE_S):
                await loop.sock_connect(plain, (host, port))
                transport, incoming = await loop.create_connection(
                    Incoming, sock=plain, ssl=ssl, server_hostname=host if ssl else None
                )
        except BaseException:
            plain.close()
            raise
        return cls(transport, incoming, f"{host}:{port}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._incoming.lost:  # asyncio cannot abort what ended while its buffer drained
            self._transport.abort()
        while not self._incoming.lost:
            await self._incoming.change()

    @property
    def was_reset(self) -> bool:
        """The connection ended with an RST."""
        return self._incoming.reset

    async def send(self, data: bytes) -> None:
        """Send these bytes; waits while the server does not read."""
        if self._incoming.lost:
            raise ConnectionResetError("the connection is gone")
        self._transport.write(data)
        await self._wait(self._incoming.drain(), "the server does not read")

    async def request(
        self, method: str, path: str, body: object = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a request, bytes as they are and anything else as JSON; does not wait."""
        content = body_bytes(body)
        defaults = {"host": self._host}
        if content or method == "POST":
            defaults |= {"content-type": "application/json", "content-length": str(len(content))}
        await self.send(head_bytes(f"{method} {path} HTTP/1.1", defaults, headers or {}) + content)

    async def post(self, path: str, body: object, headers: Mapping[str, str] | None = None) -> None:
        """Send a POST; does not wait for the answer."""
        await self.request("POST", path, body, headers)

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> None:
        """Send a GET; does not wait for the answer."""
        await self.request("GET", path, headers=headers)

    async def reply(self) -> Reply:
        """Read the next final answer whole; interim ones (1xx) are passed over."""
        reply = await self.head()
        while 100 <= reply.status < 200:
            reply = await self.head()
        pieces = []
        while (piece := await self.chunk()) is not None:
            pieces.append(piece)
        reply.body = b"".join(pieces)
        return reply

    async def head(self) -> Reply:
        """Read the next head only, 1xx too; `chunk()` then reads the body."""
        raw_head = await self._until(b"\r\n\r\n")
        first, *lines = raw_head[:-4].decode("latin-1").split("\r\n")
        match = STATUS_LINE.fullmatch(first)
        assert match is not None, f"no status line: {first!r}"
        pairs = [
            (name, value.strip()) for name, _, value in (line.partition(":") for line in lines)
        ]
        reply = Reply(int(match[1]), match[2], pairs, raw_head)
        self._expect_body(reply)
        return reply

    async def chunk(self) -> bytes | None:
        """Read the next piece of the body as the server framed it; None at its end.

        A piece is one chunk, or a whole body of stated length, or whatever has arrived of a body
        that lasts until the connection closes.
        """
        if self._chunked:
            return await self._next_chunk()
        if self._left is None:
            return await self._some()
        length, self._left = self._left, 0
        return await self._take(length) if length else None

    async def closed(self) -> bytes:
        """Wait until the server ended the connection; returns what came before and was unread."""
        while not self._incoming.finished:
            await self._more()
        rest = bytes(self._incoming.buffer)
        self._incoming.buffer.clear()
        return rest

    def close(self) -> None:
        """Close in good order (FIN)."""
        self._transport.close()

    def abort(self) -> None:
        """Abort (RST)."""
        if not self._incoming.lost:
            linger_zero(self._transport)
            self._transport.abort()

    def stop_reading(self) -> None:
        """Take nothing more from the socket, so that the server's writes stall."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again after `stop_reading`."""
        self._transport.resume_reading()

    def _expect_body(self, reply: Reply) -> None:
        headers = reply.headers
        bodiless = reply.status < 200 or reply.status in (204, 304)
        self._chunked = not bodiless and headers.get("transfer-encoding", "").lower() == "chunked"
        length = headers.get("content-length")
        self._left = 0 if bodiless else None if length is None else int(length)

    async def _next_chunk(self) -> bytes | None:
        line = (await self._until(b"\r\n"))[:-2]
        size = int(line.split(b";")[0], 16)
        if size:
            data = await self._take(size)
            assert await self._take(2) == b"\r\n", "a chunk longer than its size"
            return data
        while await self._until(b"\r\n") != b"\r\n":
            pass  # trailers
        self._chunked, self._left = False, 0
        return None

    async def _some(self) -> bytes | None:
        while not self._incoming.buffer and not self._incoming.finished:
            await self._more()
        if self._incoming.buffer:
            return await self._take(len(self._incoming.buffer))
        if self._incoming.reset:
            raise ConnectionResetError("the server reset the connection")
        return None

    async def _until(self, mark: bytes) -> bytes:
        while (end := self._incoming.buffer.find(mark)) < 0:
            await self._more()
        return await self._take(end + len(mark))

    async def _take(self, count: int) -> bytes:
        while len(self._incoming.buffer) < count:
            await self._more()
        taken = bytes(self._incoming.buffer[:count])
        del self._incoming.buffer[:count]
        return taken

    async def _more(self) -> None:
        if self._incoming.reset:
            raise ConnectionResetError("the server reset the connection")
        if self._incoming.finished:
            raise EOFError("the server closed the connection")
        await self._wait(self._incoming.change(), "nothing came from the server")

    async def _wait(self, change: Any, complaint: str) -> None:
        try:
            async with asyncio.timeout(self.timeout_s):
                await change
        except TimeoutError:
            raise AssertionError(complaint) from None
