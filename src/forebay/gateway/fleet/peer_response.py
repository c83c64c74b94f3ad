"""The response of another gateway, streamed to a client of this one with backpressure.

What comes faster than the client reads is held back at the peer's socket, so that little is
buffered. Whoever has a response must `stop` it: the peer then sees that nobody reads any more.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.responses import StreamingResponse

from forebay.errors import BackendFailed
from forebay.gateway.hot.asgi_bridge import CUT

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from starlette.types import Receive, Scope, Send

    from forebay.wire.client import NodeConnection
    from forebay.wire.heads import AnswerHead, Headers

HELD_BYTES_MAX: Final = 262_144
"""What is buffered for a client that reads slowly, before the peer is paused."""
GAP_S: Final = 60.0
"""How long a response may be silent: event streams have a heartbeat four times as often."""
LEFT_OUT: Final = (b"access-control-", b"vary")
"""CORS headers, which this gateway writes itself; browsers reject them twice."""


class Stale(BackendFailed):
    """The peer closed an idle connection before the first byte of the response."""


class PeerResponse:
    """One response: an `AnswerListener` for the connection, an iterator for the reader."""

    def __init__(self, connection: NodeConnection) -> None:
        self._connection: NodeConnection | None = connection
        self.begun: asyncio.Future[AnswerHead] = asyncio.get_running_loop().create_future()
        """The head of the response, or why there is none."""
        self.length: bytes | None = None
        self.broken = ""
        """Why the response is incomplete; empty while it may still become complete."""
        self._pieces: list[bytes] = []
        self._held = 0
        self._over = False
        self._news = asyncio.Event()

    def send(self, head: bytes, body: bytes) -> None:
        assert self._connection is not None
        self._connection.send(head, body, self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Return what has arrived; raises BackendFailed where it is incomplete."""
        while not self._pieces:
            if self.broken:
                raise BackendFailed(self.broken)
            if self._over:
                raise StopAsyncIteration
            self._news.clear()
            try:
                async with asyncio.timeout(GAP_S):
                    await self._news.wait()
            except TimeoutError:
                raise BackendFailed(f"nothing came for {GAP_S:g} s") from None
        data, self._held = b"".join(self._pieces), 0
        self._pieces.clear()
        if self._connection is not None and self._connection.paused:
            self._connection.resume()
        return data

    def stop(self, cause: str = "") -> None:
        """Abort it; a concurrent reader gets the cause. May be called twice."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
        if cause and not self._over:
            self.answer_breaks(cause, stale=False)
        if self.begun.done() and not self.begun.cancelled():
            self.begun.exception()  # retrieved, even where nobody waits any more

    # -- from the connection

    def answer_begins(self, head: AnswerHead, length: bytes | None) -> None:
        self.length = length
        if not self.begun.done():
            self.begun.set_result(head)

    def answer_goes_on(self, data: bytes) -> None:
        """Buffer a piece; pause the peer where that is too much."""
        self._pieces.append(data)
        self._held += len(data)
        self._news.set()
        if self._held > HELD_BYTES_MAX and self._connection is not None:
            self._connection.pause()

    def answer_ends(self) -> None:
        """The response is complete; the pool has the connection back."""
        self._connection = None
        self._over = True
        self._news.set()

    def answer_breaks(self, cause: str, *, stale: bool) -> None:
        self._connection = None
        self._over, self.broken = True, cause
        self._news.set()
        if not self.begun.done():
            self.begun.set_exception(Stale(cause) if stale else BackendFailed(cause))

    def answer_is_lost(self) -> None:
        self.answer_breaks("an internal error", stale=False)


class ForwardedResponse(StreamingResponse):
    """Streams a peer's response to the client unchanged.

    Where it breaks off, the client's connection is aborted, as the peer itself would have done:
    nothing else says that a response is incomplete.
    """

    def __init__(
        self, peer: PeerResponse, on_end: Callable[[PeerResponse], None], *, is_head: bool
    ) -> None:
        head = peer.begun.result()
        super().__init__(() if is_head else peer, head.status)
        self.raw_headers = _kept(head.headers, peer.length)
        self._peer = peer
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until it ends or breaks off, or the client disconnects."""
        try:
            await super().__call__(scope, receive, send)
        except BackendFailed:
            scope["extensions"][CUT]["abort"]()
            await self.listen_for_disconnect(receive)
        finally:
            self._peer.stop()
            self._on_end(self._peer)


def _kept(headers: Headers, length: bytes | None) -> Headers:
    kept = [pair for pair in headers if not pair[0].startswith(LEFT_OUT)]
    return kept if length is None else [*kept, (b"content-length", length)]
