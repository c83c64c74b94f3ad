"""The guard as a proxy: takes a slot for a request and forwards it, or rejects it at once.

A request holds its lease until the backend has sent the last byte, or nobody wants the rest: the
client left, the backend died, the time is over. Backpressure goes both ways, so nothing is buffered
here but what the sockets hold. Callbacks throughout, as in the gateway: no task and no log call per
request.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import msgspec

from forebay.errors import BackendFailed
from forebay.guard.requests import GuardRequest
from forebay.guard.slots import Slots
from forebay.wire.deadlines import Deadlines
from forebay.wire.heads import header_block, make_request_head, status_line
from forebay.wire.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from forebay.clock import Timers
    from forebay.guard.requests import RequestClassifier
    from forebay.guard.slots import SlotLease
    from forebay.wire.client import NodeConnection
    from forebay.wire.connection import ServerConnection
    from forebay.wire.heads import AnswerHead, RequestHead
    from forebay.wire.pool import ConnectionPool, PendingConnect
    from forebay.wire.server import Delegate

logger = logging.getLogger("forebay.guard")

BODYLESS = (204, 304)
"""Answers that end with their head."""
PROBES_MAX: Final = 32
"""Requests without a slot that may be open at once; gateways have one each at a time."""
PROBE_S: Final = 10.0
"""How long one of them may take; engines answer these from memory."""
BUSY: Final = Refusal("node_busy", "every slot of this node is in use, and a guard does not queue")
STOPPING: Final = Refusal("shutting_down", "this node is stopping; use another")
CROWDED: Final = Refusal("too_many_probes", f"{PROBES_MAX} probes are already in progress")
RETRY_AFTER_S: Final = 1
"""A gateway keeps the request in its queue and tries again soon."""
STATUS: Final[Mapping[str, int]] = {
    "node_busy": 429,
    "queue_full": 429,
    "shutting_down": 503,
    "too_many_probes": 503,
    "too_many_connections": 503,
    "backend_failed": 502,
    "backend_closed": 502,
    "run_timeout": 504,
    "unauthorized": 401,
    "forbidden_host": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "invalid_request": 400,
    "unsupported": 400,
    "body_too_large": 413,
    "headers_too_large": 431,
    "request_timeout": 408,
}
"""Every code there is, and its status."""


def error_response(refusal: Refusal, connection: bytes = b"") -> bytes:
    """Return a whole error response; `connection` is a header line for the end of the head."""
    status = refusal.status or STATUS[refusal.code]
    error = {
        "message": refusal.message,
        "type": refusal.code,
        "code": refusal.code,
        "param": refusal.param,
    }
    body = msgspec.json.encode({"error": error})
    later = b""
    if status in (429, 503):
        later = b"retry-after: %d\r\nx-should-retry: true\r\n" % RETRY_AFTER_S
    elif status == 401:
        later = b"www-authenticate: Bearer\r\n"
    elif status >= 500:  # so that a gateway does not take it for an answer of the server
        later = b"x-forebay-guard: %b\r\n" % refusal.code.encode()
    return b"%bcontent-type: application/json\r\n%bcontent-length: %d\r\n%b\r\n%b" % (
        status_line(status), later, len(body), connection, body
    )  # fmt: skip


class ProxiedRequest:
    """One request on its way through the guard, driven by callbacks from both sides.

    An `AnswerListener` and a `Responder` by its shape, as the proxy is a `Site`.
    """

    __slots__ = (
        "_begun", "_body", "_chunked", "_client", "_ended", "_head", "_is_http_11", "_keep_alive",
        "_lease", "_opening", "_paused", "_proxy", "_request", "_upstream",
    )  # fmt: skip

    def __init__(
        self, proxy: GuardProxy, client: ServerConnection, head: RequestHead, lease: SlotLease
    ) -> None:
        self._proxy = proxy
        self._client = client
        self._lease = lease
        self._keep_alive = head.keep_alive
        self._is_http_11 = head.is_http_11
        self._request = self._body = b""
        self._head = b""  # buffered where a body of known length follows at once
        self._chunked = False
        self._begun = False
        self._ended = False
        self._paused = False
        self._opening: PendingConnect | None = None
        self._upstream: NodeConnection | None = None

    def begin(self, request: bytes, body: bytes) -> None:
        self._request, self._body = request, body
        upstream = self._proxy.pool.take()
        if upstream is None:
            self._opening = self._proxy.pool.open(self._opened)
        else:
            self._send(upstream)

    def give_up(self, refusal: Refusal) -> None:
        """Reject it, or cut its answer short; may be called twice."""
        if not self._ended:
            self._end()
            self._tell(refusal)

    def too_late(self) -> None:
        self.give_up(Refusal("run_timeout", "the backend did not finish its answer in time"))

    # -- from the backend

    def answer_begins(self, head: AnswerHead, length: bytes | None) -> None:
        """Forward the head; where the body's length is known, with its first piece."""
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

    def answer_goes_on(self, data: bytes, framed: bytes = b"") -> None:
        head, self._head = self._head, b""
        if self._chunked:
            self._client.write(framed or b"%x\r\n%b\r\n" % (len(data), data))
        else:
            self._client.write(head + data if head else data)

    def answer_ends(self) -> None:
        self._upstream = None
        try:
            self._flush()
            if self._chunked:
                self._client.write(b"0\r\n\r\n")
        finally:
            self._end()
        self._client.done(keep_alive=self._keep_alive)

    def answer_breaks(self, cause: str, *, stale: bool) -> None:
        """Report a lost backend; retrying is up to the gateway."""
        self._upstream = None
        if stale:
            words = "the backend closed a kept-alive connection"
            self.give_up(Refusal("backend_closed", words))
            return
        self._proxy.backend_failed("lost")
        self.give_up(Refusal("backend_failed", f"the backend failed: {cause}"))

    def answer_is_lost(self) -> None:
        """Free the slot after a bug of ours, which must cost its own request only."""
        self._end()
        self._client.abort()

    def _opened(self, result: NodeConnection | BackendFailed) -> None:
        self._opening = None
        try:
            if isinstance(result, BackendFailed):
                self._proxy.backend_failed("connect")
                self.give_up(Refusal("backend_failed", f"the backend does not answer: {result}"))
            else:
                self._send(result)
        except Exception:
            logger.exception("sending a request failed")
            self.answer_is_lost()

    def _send(self, upstream: NodeConnection) -> None:
        self._upstream = upstream
        upstream.send(self._request, self._body, self)
        if self._paused:
            upstream.pause()

    # -- from the client

    def client_left(self) -> None:
        self._end()

    def client_is_slow(self) -> None:
        self._paused = True
        if self._upstream is not None:
            self._upstream.pause()

    def client_keeps_up(self) -> None:
        self._paused = False
        if self._upstream is not None:
            self._upstream.resume()

    # -- inside

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._client.write(head)

    def _tell(self, refusal: Refusal) -> None:
        if self._begun and not self._head:  # part of the answer is sent: it can only be cut off
            self._client.abort()
            return
        self._client.write(error_response(refusal, self._connection_header()))
        self._client.done(keep_alive=self._keep_alive)

    def _end(self) -> None:
        """Close what is open to the backend, and free the slot."""
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
            self._proxy.forget(self, self._lease)

    def _connection_header(self) -> bytes:
        return _connection_header(self._client, self._keep_alive, self._is_http_11)


class GuardProxy:
    """Forwards or answers every request that reaches the guard.

    A `Site` by its shape: what is interpreted must not inherit from what may be compiled.
    """

    def __init__(
        self, classifier: RequestClassifier, slots: Slots, run_s: float, clock: Timers
    ) -> None:
        self._classifier = classifier
        self.slots = slots
        self.probes = Slots(PROBES_MAX)
        self.draining = False
        self.pool: ConnectionPool
        """Connections to the backend; set before anything is answered."""
        self.backend_failed: Callable[[str], None] = lambda kind: None
        """Called with the kind of failure when a request loses its backend."""
        self.request_ended: Callable[[], None] = lambda: None
        """Called when a request has ended, however it did."""
        self.status: Callable[[], Mapping[str, object]] = dict
        """What `/guard/status` shows."""
        self._run_deadlines = Deadlines(run_s, ProxiedRequest.too_late, clock)
        self._probe_deadlines = Deadlines(PROBE_S, ProxiedRequest.too_late, clock)
        self._requests: set[ProxiedRequest] = set()
        self._idle: asyncio.Event | None = None

    # -- for the server

    def read_head(self, lines: list[bytes]) -> RequestHead:
        return make_request_head(lines)

    def takes(self, head: RequestHead) -> bool:
        return True

    def refusal(self, head: RequestHead, peer: str) -> Refusal | None:
        """Say why a request is rejected before its body is read."""
        asked = self._classifier.classify(head)
        if asked.kind != "run":
            return asked.refusal
        if self.draining:
            return STOPPING
        if self.slots.is_full:
            self.slots.refused += 1
            return BUSY
        return None

    def owner(self, head: RequestHead, peer: str) -> str:
        """Return whom the bytes of a body are counted for: gateways differ by address."""
        return peer

    def delegate(self, connection: ServerConnection) -> Delegate:
        """Never asked for: `takes` takes everything."""
        raise AssertionError("a guard answers everything itself")

    def answer(self, connection: ServerConnection, head: RequestHead, body: bytes) -> None:
        asked = connection.kept
        if type(asked) is not GuardRequest or asked.head is not head:
            asked = connection.kept = self._classifier.classify(head)
        if asked.kind == "run" and self.draining:
            self._reject(connection, head, STOPPING)
        elif asked.kind == "run":
            self._forward(connection, asked, body, self.slots, self._run_deadlines)
        elif asked.kind == "probe":
            self._forward(connection, asked, body, self.probes, self._probe_deadlines)
        elif asked.kind == "status":
            self._show(connection, head)
        else:
            assert asked.refusal is not None
            self._reject(connection, head, asked.refusal)

    def refuse(self, connection: ServerConnection, refusal: Refusal) -> None:
        """Answer a request that could not be parsed; the connection closes after it."""
        connection.write(error_response(refusal, b"connection: close\r\n"))

    # -- for the guard

    def forget(self, proxied: ProxiedRequest, lease: SlotLease) -> None:
        """Free the slot of a request that has ended, however it did."""
        lease.give_back()
        self._run_deadlines.discard(proxied)
        self._probe_deadlines.discard(proxied)
        self._requests.discard(proxied)
        self.request_ended()
        if self._idle is not None and not self.slots.in_flight:
            self._idle.set()

    async def finished(self) -> None:
        """Wait until nothing runs."""
        self._idle = asyncio.Event()
        if self.slots.in_flight:
            await self._idle.wait()

    def stop(self) -> None:
        for proxied in list(self._requests):
            proxied.give_up(STOPPING)
        self._run_deadlines.clear()
        self._probe_deadlines.clear()

    # -- inside

    def _forward(
        self,
        connection: ServerConnection,
        asked: GuardRequest,
        body: bytes,
        slots: Slots,
        deadlines: Deadlines[ProxiedRequest],
    ) -> None:
        lease = slots.take()
        if lease is None:
            self._reject(connection, asked.head, BUSY if slots is self.slots else CROWDED)
            return
        proxied = ProxiedRequest(self, connection, asked.head, lease)
        self._requests.add(proxied)
        deadlines.add(proxied)
        connection.responder = proxied
        has_body = body or asked.kind == "run"
        length = b"content-length: %d\r\n" % len(body) if has_body else b""
        proxied.begin(b"%b%b\r\n" % (asked.forwarded, length), body)

    def _show(self, connection: ServerConnection, head: RequestHead) -> None:
        body = msgspec.json.encode(self.status())
        header = _connection_header(connection, head.keep_alive, head.is_http_11)
        connection.write(
            b"%bcontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n%b"
            % (status_line(200), len(body), header, body)
        )
        connection.done(keep_alive=head.keep_alive)

    def _reject(self, connection: ServerConnection, head: RequestHead, refusal: Refusal) -> None:
        header = _connection_header(connection, head.keep_alive, head.is_http_11)
        connection.write(error_response(refusal, header))
        connection.done(keep_alive=head.keep_alive)


def _connection_header(connection: ServerConnection, keep_alive: bool, is_http_11: bool) -> bytes:
    if not keep_alive or connection.is_closing:
        return b"connection: close\r\n"
    return b"" if is_http_11 else b"connection: keep-alive\r\n"
