"""One request on its way through the guard: from its last byte to the last byte of its answer.

It holds its lease until the backend has sent the last byte, or nobody wants the rest: the client
left, the backend died, the time is over. Whatever is faster than the other side is held back, so
nothing is kept here but what the sockets hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.errors import BackendFailed
from forebay.guard.refusing import answer
from forebay.wire.heads import header_block, status_line
from forebay.wire.refusals import Refusal

if TYPE_CHECKING:
    from forebay.guard.front import Front
    from forebay.guard.slots import Lease
    from forebay.wire.client import NodeConnection, PendingConnect
    from forebay.wire.connection import ServerConnection
    from forebay.wire.heads import AnswerHead, RequestHead

BODYLESS = (204, 304)
"""Answers that end with their head."""


class Passing:
    """The way of one request, driven by callbacks from both sides.

    A `AnswerListener` and an `Responder` by its shape, as the front is a `Site`.
    """

    __slots__ = (
        "_begun", "_body", "_chunked", "_client", "_ended", "_front", "_head",
        "_is_http_11", "_keep_alive", "_lease", "_opening", "_paused", "_request", "_upstream",
    )  # fmt: skip

    def __init__(
        self, front: Front, client: ServerConnection, head: RequestHead, lease: Lease
    ) -> None:
        self._front = front
        self._client = client
        self._lease = lease
        self._keep_alive = head.keep_alive
        self._is_http_11 = head.is_http_11
        self._request = self._body = b""
        self._head = b""  # held where a body of known length follows at once
        self._chunked = False
        self._begun = False
        self._ended = False
        self._paused = False
        self._opening: PendingConnect | None = None
        self._upstream: NodeConnection | None = None

    def begin(self, request: bytes, body: bytes) -> None:
        """Send it to the backend."""
        self._request, self._body = request, body
        upstream = self._front.pool.take()
        if upstream is None:
            self._opening = self._front.pool.open(self._opened)
        else:
            self._send(upstream)

    def give_up(self, refusal: Refusal) -> None:
        """End it here, and say why; may be called twice."""
        if not self._ended:
            self._end()
            self._tell(refusal)

    def too_late(self) -> None:
        """End it because it has taken too long."""
        self.give_up(Refusal("run_timeout", "the backend did not finish its answer in time"))

    # -- from the backend

    def answer_begins(self, head: AnswerHead, length: bytes | None) -> None:
        """Pass the head on: with the first of the body where that follows, at once in a stream."""
        self._begun = True
        self._request = self._body = b""
        block = head.written
        if not block:
            block = head.written = status_line(head.status) + header_block(head.headers)
        if head.status in BODYLESS:
            framing = b""
        elif length is not None:
            framing = b"content-length: %b\r\n" % length
        elif self._is_http_11:
            self._chunked = True
            framing = b"transfer-encoding: chunked\r\n"
        else:  # HTTP/1.0: the end of the connection is the end of the answer
            self._keep_alive = False
            framing = b""
        self._head = b"%b%b%b\r\n" % (block, framing, self._connection_header())
        if length is None:
            self._flush()

    def answer_goes_on(self, data: bytes) -> None:
        """Pass a piece on as it comes."""
        head, self._head = self._head, b""
        if self._chunked:
            self._client.write(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            self._client.write(head + data if head else data)

    def answer_ends(self) -> None:
        """Give the slot back with the last byte."""
        self._upstream = None
        try:
            self._flush()
            if self._chunked:
                self._client.write(b"0\r\n\r\n")
        finally:
            self._end()
        self._client.done(keep_alive=self._keep_alive)

    def answer_breaks(self, cause: str, *, stale: bool) -> None:
        """Lose the backend, and say so: how often it is asked is for the gateway to decide."""
        self._upstream = None
        if stale:
            words = "the backend closed a connection that it had kept"
            self.give_up(Refusal("backend_closed", words))
            return
        self._front.backend_failed("lost")
        self.give_up(Refusal("backend_failed", f"the backend failed: {cause}"))

    def answer_is_lost(self) -> None:
        """Give the slot back: a bug of ours costs its own request only."""
        self._end()
        self._client.abort()

    def _opened(self, result: NodeConnection | BackendFailed) -> None:
        self._opening = None
        if isinstance(result, BackendFailed):
            self._front.backend_failed("connect")
            self.give_up(Refusal("backend_failed", f"the backend does not answer: {result}"))
        else:
            self._send(result)

    def _send(self, upstream: NodeConnection) -> None:
        self._upstream = upstream
        upstream.send(self._request, self._body, self)
        if self._paused:
            upstream.pause()

    # -- from the client

    def client_left(self) -> None:
        """Abort: the backend stops at once, and the slot is free."""
        self._end()

    def client_is_slow(self) -> None:
        """Hold the backend back."""
        self._paused = True
        if self._upstream is not None:
            self._upstream.pause()

    def client_keeps_up(self) -> None:
        """Let the backend go on."""
        self._paused = False
        if self._upstream is not None:
            self._upstream.resume()

    # -- inside

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._client.write(head)

    def _tell(self, refusal: Refusal) -> None:
        if self._begun and not self._head:  # part of an answer is out: only its absence can tell
            self._client.abort()
            return
        self._client.write(answer(refusal, self._connection_header()))
        self._client.done(keep_alive=self._keep_alive)

    def _end(self) -> None:
        """Be done with the backend: what is open there is closed, the slot is free."""
        if self._ended:
            return
        self._ended = True
        upstream, self._upstream = self._upstream, None
        opening, self._opening = self._opening, None
        try:
            if upstream is not None:
                upstream.abort()
            if opening is not None:
                opening.cancel()
        finally:
            self._front.forget(self, self._lease)

    def _connection_header(self) -> bytes:
        if not self._keep_alive or self._client.is_closing:
            return b"connection: close\r\n"
        return b"" if self._is_http_11 else b"connection: keep-alive\r\n"
