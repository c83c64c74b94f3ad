"""HTTP/1.1 connections to one server; idle ones are used again, as real clients do.

Written on the parser that the gateway has rather than on a general client: each answer's time is
taken where its bytes arrive, and one core can load a server with thousands of requests a second.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import httptools

from forebay.load.samples import CONNECT_FAILED, CONNECTION_LOST

if TYPE_CHECKING:
    from forebay.clock import Clock
    from forebay.load.answers import MeasuredAnswer

HEADERS_MAX = 200
HEAD_BYTES_MAX = 256 * 1024
"""Between two pieces of a body, and before the first: the parser keeps a header until it ends."""
BAD_ANSWER = "bad_answer"
IDLE_S_MAX = 4.0
"""Below the 5 s after which common servers close: a request must not meet its connection's end."""


class LoadConnection(asyncio.Protocol):
    """Carries one exchange at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._answer: MeasuredAnswer | None = None
        self._done: asyncio.Future[None] | None = None
        self._headers: dict[str, str] = {}
        self._now_s = 0.0
        self._silent_bytes = 0
        """Taken since a piece of the body came."""
        self._has_length = False
        self.is_open = False
        self.idle_since_s = 0.0

    async def exchange(self, request: bytes, answer: MeasuredAnswer) -> None:
        """Send a request and feed its answer until it ends, well or broken.

        Cancelled, it hangs up: the server then knows that nobody waits any more.
        """
        assert self._transport is not None
        if not self.is_open:  # gone since it was made
            answer.broken(CONNECTION_LOST, self._clock.monotonic_s())
            return
        self._answer, self._parser = answer, httptools.HttpResponseParser(self)
        self._silent_bytes = 0
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            await self._done
        finally:
            if self._answer is not None:
                self._answer = None
                self.close()
            self._done = None

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    # -- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.close()  # it speaks without being asked
            return
        self._now_s = self._clock.monotonic_s()
        try:
            self._parser.feed_data(data)
        except Exception:  # whatever a server sends must not end the run
            self._give_up(BAD_ANSWER)
            return
        if self._answer is not None:
            self._silent_bytes += len(data)
            if self._answer.is_hopeless or self._silent_bytes > HEAD_BYTES_MAX + len(data):
                self._give_up(BAD_ANSWER)

    def connection_lost(self, exc: Exception | None) -> None:
        """End what is under way: well, if the answer was to last until the connection's end."""
        self.is_open = False
        self._now_s = self._clock.monotonic_s()
        is_until_close = bool(self._headers) and not self._has_length and exc is None
        self._finish(broken="" if is_until_close else CONNECTION_LOST)

    # -- what the parser calls

    def on_message_begin(self) -> None:
        self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; a server that sends no end of them is cut short."""
        if len(self._headers) < HEADERS_MAX:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Hand the head on, unless it is only a notice."""
        status = self._parser.get_status_code()
        self._has_length = not {"content-length", "transfer-encoding"}.isdisjoint(self._headers)
        if status >= 200 and self._answer is not None:
            self._answer.head(status, self._headers)

    def on_body(self, data: bytes) -> None:
        self._silent_bytes = 0
        if self._answer is not None:
            self._answer.body(data, self._now_s)

    def on_message_complete(self) -> None:
        """End the exchange; the connection is kept if both sides want it."""
        if self._parser.get_status_code() < 200:
            return
        if not self._parser.should_keep_alive():
            self.is_open = False
        self.idle_since_s = self._now_s
        self._finish()

    def _give_up(self, code: str) -> None:
        """End the exchange with nothing more to be read, and hang up."""
        self._finish(broken=code)
        self.close()

    def _finish(self, broken: str = "") -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            return
        try:
            if not broken:
                answer.end(self._now_s)
        except Exception:  # as above
            broken = BAD_ANSWER
        if broken:
            answer.broken(broken, self._now_s)
        self._headers = {}
        if self._done is not None and not self._done.done():
            self._done.set_result(None)


class LoadPool:
    """Sends requests to one address; proxies in the environment are ignored."""

    def __init__(self, url: str, key: str | None, clock: Clock) -> None:
        parts = urlsplit(url)
        self._clock = clock
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._tls else 80)
        self._prefix = parts.path.rstrip("/")
        self._idle: list[LoadConnection] = []
        self._open: set[LoadConnection] = set()
        self._lines = f"host: {parts.netloc.rpartition('@')[2]}\r\naccept: */*\r\n"
        if key:
            self._lines += f"authorization: Bearer {key}\r\n"

    async def send(
        self, method: str, path: str, headers: dict[str, str], body: bytes, answer: MeasuredAnswer
    ) -> None:
        """Send a request and wait until its answer has ended; it says how."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\n{self._lines}{lines}"
        if body:
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        connection = await self._connection(answer)
        if connection is None:
            return
        try:
            await connection.exchange(f"{head}\r\n".encode("latin-1") + body, answer)
        finally:
            if connection.is_open:
                self._idle.append(connection)
            else:
                connection.close()
                self._open.discard(connection)

    async def close(self) -> None:
        for connection in self._open:
            connection.close()
        self._open.clear()
        self._idle.clear()
        await asyncio.sleep(0)  # the transports are told in the next turn of the loop

    async def _connection(self, answer: MeasuredAnswer) -> LoadConnection | None:
        """Return an idle connection, the one used last first, or a new one; None if none comes."""
        now_s = self._clock.monotonic_s()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and now_s - connection.idle_since_s <= IDLE_S_MAX:
                return connection
            connection.close()
            self._open.discard(connection)
        loop = asyncio.get_running_loop()
        try:
            _, made = await loop.create_connection(
                lambda: LoadConnection(self._clock), self._host, self._port, ssl=self._tls
            )
        except (OSError, ssl.SSLError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            answer.message = reason
            answer.broken(CONNECT_FAILED, self._clock.monotonic_s())
            return None
        self._open.add(made)
        return made
