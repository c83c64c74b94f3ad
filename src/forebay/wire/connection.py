"""One client connection: an httptools protocol that hands over whole requests.

It answers one request at a time. Reading goes on while a request is answered, because a vanished
client is seen only by reading; what arrives then (pipelining) is kept as raw bytes, up to a
bound, and parsed when its turn comes.

A request that is not for us to answer is handed to another protocol with its raw bytes
(`Site.takes` says so when the head is complete). So that these are at hand, the bytes of a head
are kept until it is whole.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import httptools

from forebay.wire.body import LARGE_BYTES, RequestBody
from forebay.wire.heads import HeadMemory, make_request_head
from forebay.wire.refusals import Refusal, body_too_large, find_fault, from_parser
from forebay.wire.sockets import watch_for_dead_peer

if TYPE_CHECKING:
    from forebay.wire.answering import Answering
    from forebay.wire.heads import RequestHead
    from forebay.wire.server import Server

logger = logging.getLogger("forebay.wire")

HEAD_BYTES_MAX: Final = 65_536
"""What a request head may weigh: room for long keys, cookies and traces, and no more."""
HEADERS_MAX: Final = 128
EARLY_BYTES_MAX: Final = 65_536
"""Pipelined bytes kept while a request is answered."""
BODIES_BYTES_MAX: Final = 1_073_741_824
"""What all large bodies that are arriving may weigh together."""


class ServerConnection(asyncio.Protocol):
    """The protocol; `Site` sees it as the way to answer."""

    __slots__ = (
        "_answering", "_away", "_body", "_broken", "_closing", "_early",
        "_fed_bytes", "_head", "_head_bytes", "_heads", "_overrun", "_parser", "_raw", "_server",
        "_slow", "_whole", "peer", "transport",
    )  # fmt: skip

    transport: asyncio.Transport

    def __init__(self, server: Server) -> None:
        self._server = server
        self.peer = ""
        self._answering: Answering | None = None
        self._away = False  # another protocol is answering
        self._closing = False
        self._slow = False  # more has been written than the client takes
        self._early = b""
        self._heads = HeadMemory(make_request_head)
        self._parser = httptools.HttpRequestParser(self)
        self._body = RequestBody()
        self._broken: Refusal | None = None
        self._head: RequestHead | None = None
        self._reset()

    def _reset(self) -> None:
        """Be ready for the next request."""
        self._head = None
        self._raw = b""  # what has come of the head
        self._head_bytes = 0
        self._fed_bytes = 0  # of this request, before the piece being parsed
        self._whole = self._overrun = False

    # -- for the one who answers

    @property
    def head(self) -> RequestHead | None:
        """The head of the request that is being read, once it is whole."""
        return self._head

    @property
    def target(self) -> bytes:
        """What the request that is being read asks for, as far as that has come."""
        if self._head is not None:
            return self._head.target
        words = self._raw.split(b" ", 2)
        return words[1] if len(words) == 3 else b""

    @property
    def is_closing(self) -> bool:
        """Whether the connection ends with the present answer."""
        return self._closing

    def answered_by(self, answering: Answering) -> None:
        """Know who must hear it when the client leaves or lags behind."""
        self._answering = answering

    def write(self, data: bytes) -> None:
        """Send bytes of an answer."""
        self.transport.write(data)

    def done(self, *, keep_alive: bool) -> None:
        """End an answer: take the next request, or close."""
        self._answering = None
        if not keep_alive or self._closing:
            self.close()
        elif self._early:
            asyncio.get_running_loop().call_soon(self._go_on)
        elif not self._slow:
            self._server.idle.add(self)

    def close(self) -> None:
        """Close after what has been written is sent; a client that does not take it is cut off."""
        self._closing = True
        if not self.transport.is_closing():
            self._server.writes.add(self)
            self.transport.close()

    def close_when_idle(self) -> None:
        """Close now, or after the present answer."""
        self._closing = True
        if self._answering is None and not self._away:
            self.close()

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        self.transport.abort()

    def linger(self) -> None:
        """Close, but let the client read the answer first although it may still be sending."""
        self._closing = True
        self._answering = None
        self._server.lingering.add(self)
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()

    def head_is_late(self) -> None:
        """Refuse a request whose head did not come in time."""
        if not self._raw.strip():  # an empty line after the last request: nothing was asked
            self.close()
            return
        self._refuse(Refusal("request_timeout", "the request head took too long to arrive"))

    def body_is_late(self) -> None:
        """Refuse a request whose body did not come in time."""
        self._refuse(Refusal("request_timeout", "the request body took too long to arrive"))

    # -- from the event loop

    def connection_made(
        self,
        transport: asyncio.Transport,  # type: ignore[override] # sockets have no other kind
    ) -> None:
        """Join the others, if there is room."""
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else ""
        server = self._server
        watch_for_dead_peer(transport.get_extra_info("socket"), server.limits.write_seconds)
        if server.make_room():
            server.connections.add(self)
            server.idle.add(self)
        elif len(server.lingering) >= server.limits.connections_max:
            self.abort()  # those who are told so must not become too many themselves
        else:
            self._refuse(
                Refusal("too_many_connections", "the gateway has as many connections as it may")
            )

    def connection_lost(self, error: Exception | None) -> None:
        """Leave, and tell whoever answers."""
        self._server.body_bytes -= self._body.large_bytes
        self._body.clear()
        self._server.forget(self)
        answering, self._answering = self._answering, None
        if answering is not None:
            answering.client_left()

    def pause_writing(self) -> None:
        """Give the client `write_seconds` to take what has been written."""
        self._slow = True
        self._server.writes.add(self)
        if self._answering is not None:
            self._answering.client_is_slow()

    def resume_writing(self) -> None:
        """Go on: the client has taken it."""
        self._slow = False
        if not self.transport.is_closing():
            self._server.writes.discard(self)
        if self._answering is not None:
            self._answering.client_keeps_up()
        elif not self._away and not self._closing:
            self.done(keep_alive=True)

    def data_received(self, data: bytes) -> None:
        """Parse a request, or keep what came too early."""
        if self._answering is not None or self._early or self._slow:
            self.keep_early(data)
        elif not self._closing:
            self._server.idle.discard(self)
            if self._raw or self._head is not None or not self._is_familiar(data):
                self._feed(data)

    def keep_early(self, data: bytes) -> None:
        """Keep what came while a request is being answered, here or by another.

        A client that sends on and on without waiting is cut off: we must go on reading to see
        whether it is still there, and cannot keep what we read.
        """
        self._early += data
        if len(self._early) > EARLY_BYTES_MAX:
            self.abort()

    def _go_on(self) -> None:
        """Take what came while the last request was answered, once the client has taken that."""
        if self._answering is None and not self._slow and not self._closing and not self._away:
            early, self._early = self._early, b""
            if early:
                self._feed(early)

    def _is_familiar(self, data: bytes) -> bool:
        """Answer a whole request whose head has come before, unparsed; False if it is another."""
        heads, server = self._heads, self._server
        at = heads.body_at(data)
        if not at or not 0 <= len(data) - at <= min(LARGE_BYTES, server.body_bytes_max):
            return False
        self._ask(heads.last, data[at:])
        return True

    def _feed(self, data: bytes) -> None:
        head = self._head
        if head is None:
            self._raw = self._raw + data if self._raw else data
        fault = self._parse(data)
        if self._broken is not None:
            self._refuse(self._broken)
        elif head is None and self._head is not None and not self._head.is_ours:
            self._hand_over(self._head)
        elif self._whole:
            if fault or self._overrun:
                self._keep_the_rest(data)
            self._answer()
        elif fault:
            self._refuse(from_parser(fault, self._raw))
        else:
            self._wait_for_more(data)

    def _parse(self, data: bytes) -> str:
        """Feed the parser; return what it does not like, "" for nothing."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._overrun = True  # an offer that we do not take; its parser is spent
        except httptools.HttpParserCallbackError:
            logger.exception("reading a request failed")
            return "it could not be read"
        except httptools.HttpParserError as error:
            return str(error) or "unreadable"
        return ""

    def _wait_for_more(self, data: bytes) -> None:
        """Bound what is unfinished in size and time."""
        server = self._server
        first = not self._fed_bytes
        self._fed_bytes += len(data)
        if self._head is None:
            if self._fed_bytes > HEAD_BYTES_MAX:
                self._refuse(Refusal("headers_too_large", "the request head is too large"))
            elif first:
                server.heads.add(self)
        elif self._raw:
            self._raw = b""
            server.heads.discard(self)
            server.bodies.add(self)

    def _hand_over(self, head: RequestHead) -> None:
        """Give the connection away for one request; what follows it in these bytes stays here."""
        raw = self._raw
        if head.get(b"transfer-encoding") is None:
            end = self._head_bytes + int(self._heads.length or 0)
            raw, self._early = raw[:end], raw[end:]
        server = self._server
        server.heads.discard(self)
        self._parser = httptools.HttpRequestParser(self)  # the present one is in the middle
        self._reset()
        self._away = True
        server.site.hand_over(self, raw)

    def come_back(self) -> None:
        """Take the connection back after the request that was handed over."""
        self._away = False
        self.transport.set_protocol(self)
        self.done(keep_alive=True)

    def _keep_the_rest(self, data: bytes) -> None:
        """Keep what follows a whole request in the same bytes; the parser has run into it."""
        self._parser = httptools.HttpRequestParser(self)
        head = self._head
        assert head is not None
        if head.get(b"transfer-encoding") is not None:
            self._closing = True  # where it ended is not known; closing is always allowed
            return
        end = self._head_bytes + int(self._heads.length or 0) - self._fed_bytes
        self._early = data[end:]

    def _answer(self) -> None:
        head, server = self._head, self._server
        assert head is not None
        server.body_bytes -= self._body.large_bytes
        body = self._body.take()
        if self._fed_bytes:
            server.heads.discard(self)
            server.bodies.discard(self)
        self._reset()
        self._ask(head, body)

    def _ask(self, head: RequestHead, body: bytes) -> None:
        try:
            self._server.site.answer(self, head, body)
        except Exception:  # a bug of ours: the client must not wait for ever
            logger.exception("answering a request failed")
            self.abort()

    def _refuse(self, refusal: Refusal) -> None:
        server = self._server
        server.heads.discard(self)
        server.bodies.discard(self)
        self._closing = True
        server.site.refuse(self, refusal)
        self.linger()

    # -- from the parser

    def on_message_begin(self) -> None:
        """Start a request; one that begins while another is at hand has to wait."""
        if self._whole:
            self._overrun = True

    def on_headers_complete(self) -> None:
        """Decide who answers, and refuse what nobody may."""
        if self._overrun:
            return
        raw, heads = self._raw, self._heads
        start = 0 if raw[0] > 32 else len(raw) - len(raw.lstrip(b"\r\n"))
        end = raw.find(b"\r\n\r\n", start)
        self._head_bytes = end + 4
        lines = raw[start:end].split(b"\r\n")
        if len(lines) > HEADERS_MAX or end > HEAD_BYTES_MAX:
            self._broken = Refusal("headers_too_large", "the request head is too large")
            return
        head, is_known = heads.read(lines)
        self._head = head
        if not is_known:
            head.keep_alive = self._parser.should_keep_alive()
            self._broken = find_fault(head)
            head.is_ours = self._broken is None and self._server.site.takes(head)
        elif head.is_ours and head.keep_alive and not (start or head.expects or head.upgrades):
            heads.learn(raw[: end + 4])
        if self._broken is None and head.is_ours:
            self._expect_body(head, -1 if heads.length is None else int(heads.length))

    def _expect_body(self, head: RequestHead, length: int) -> None:
        """Refuse a body that is too large, or that nobody would read; else let it come."""
        server = self._server
        if length > server.body_bytes_max:
            self._broken = body_too_large(server.body_bytes_max)
        elif head.expects or not 0 <= length <= LARGE_BYTES:
            self._broken = server.site.refusal(head, self.peer)
            if head.expects and self._broken is None:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        """Collect the body, up to its bound."""
        head = self._head
        if self._overrun or self._broken is not None or head is None or not head.is_ours:
            return
        server, body = self._server, self._body
        before = body.large_bytes
        if not body.add(data, server.body_bytes_max):
            self._broken = body_too_large(server.body_bytes_max)
        server.body_bytes += body.large_bytes - before
        if server.body_bytes > BODIES_BYTES_MAX:
            self._broken = Refusal("too_many_connections", "too many large requests are arriving")
        if self._broken is not None:
            server.body_bytes -= body.large_bytes
            body.clear()

    def on_message_complete(self) -> None:
        """Know that the request is whole."""
        if not self._overrun:
            self._whole = True
