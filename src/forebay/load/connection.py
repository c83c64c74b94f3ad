"""One HTTP/1.1 connection: a request goes out, its answer is handed on as the bytes come.

Written on the parser that the gateway has rather than on a general client: each answer's time is
taken where its bytes arrive, and one core can load a server with thousands of requests a second.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import httptools

from forebay.load.samples import CONNECTION_LOST

if TYPE_CHECKING:
    from forebay.clock import Clock
    from forebay.load.answers import Answer

HEADERS_MAX = 200
HEAD_BYTES_MAX = 256 * 1024
"""Between two pieces of a body, and before the first: the parser keeps a header until it ends."""
BAD_ANSWER = "bad_answer"


class Connection(asyncio.Protocol):
    """Carries one exchange at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._answer: Answer | None = None
        self._done: asyncio.Future[None] | None = None
        self._headers: dict[str, str] = {}
        self._now_s = 0.0
        self._silent_bytes = 0
        """Taken since a piece of the body came."""
        self._has_length = False
        self.is_open = False
        self.idle_since_s = 0.0

    async def exchange(self, request: bytes, answer: Answer) -> None:
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
        """Hang up."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    # -- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        """Parse what came, and note when."""
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
        """Begin a head."""
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
        """Hand a piece of the body on."""
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
