"""One client connection: a protocol that hands over whole requests, one at a time.

llhttp (httptools) reads heads; `wire/body.py` delimits bodies. Reading goes on while a request is
answered, because a vanished client is seen only by reading; what arrives then (pipelining) is kept
as raw bytes, up to a bound, and parsed when its turn comes.

A request that is not for us to answer goes to a `Delegate` (`Site.takes` says so when the head is
complete), which is fed its head and body and nothing else.

Nothing starts for a connection that is lost, and a write to one never raises: whoever answers may
be in the middle of giving back a slot.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import httptools

from forebay.wire.body import BadFraming, BodyFraming, RequestBody, TooManyChunks
from forebay.wire.budget import NOTHING, READ_BYTES, SMALL_BYTES
from forebay.wire.heads import HeadCache, without_upgrade
from forebay.wire.io_batch import BatchedConnection
from forebay.wire.refusals import (
    BUSY,
    CROWDED,
    STOPPING,
    Refusal,
    body_too_large,
    find_fault,
    from_parser,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.wire.budget import Charge
    from forebay.wire.heads import RequestHead
    from forebay.wire.server import Delegate, Responder, Server

logger = logging.getLogger("forebay.wire")

HEAD_BYTES_MAX: Final = 65_536
"""What a request head may weigh: room for long keys, cookies and traces, and no more."""
HEADERS_MAX: Final = 128
EARLY_BYTES_MAX: Final = 65_536
"""Pipelined bytes kept while a request is answered."""
MUCH_BYTES: Final = 65_536
"""Of a body; libuv would read on, 32 times as much, before others have their turn."""
FOR_ROOM: Final = 1
FOR_OTHERS: Final = 2
FOR_DELEGATE: Final = 4
FOR_EARLY: Final = 8
"""Why a socket is not read: there is no memory for the body, other connections come first, the
delegate has enough for now, or what has come is more than may be kept."""


class ServerConnection(BatchedConnection):
    """The protocol; `Site` sees it as the way to answer."""

    __slots__ = (
        "_body", "_delegate", "_early", "_framing", "_head", "_heads", "_holds",
        "_is_head_whole", "_keeps_alive", "_lost", "_marked_bytes", "_mute", "_parser", "_raw",
        "_server", "_slow", "_transport_write",
        "charge", "is_closing", "kept", "peer", "responder", "transport",
    )  # fmt: skip

    transport: asyncio.Transport
    _transport_write: Callable[[bytes], None]

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self.peer = ""
        self.responder: Responder | None = None
        """Who answers the present request: set by the site, and told when the client leaves."""
        self.kept: object = None
        """Whatever the site keeps from one request of this connection to the next."""
        self.is_closing = False
        """Whether the connection ends with the present answer."""
        self._delegate: Delegate | None = None  # answers in our place
        self._lost = False
        self._mute = False  # nothing can be sent any more
        self._slow = False  # more has been written than the client takes
        self._early = b""
        self._heads = HeadCache(server.site.read_head)
        self._parser: httptools.HttpRequestParser | None = None  # of the head that is coming
        self._is_head_whole = self._keeps_alive = False  # as the parser says
        self._raw = b""  # what has come of the head
        self._head: RequestHead | None = None  # of the request that is being read
        self._framing: BodyFraming | None = None  # while a body is coming
        self._body = RequestBody()
        self._marked_bytes = 0  # of the body, when its pace was looked at
        self._holds = 0  # why the socket is not read, one bit each
        self.charge: Charge = NOTHING
        """What the body of the present request takes of the budget."""

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

    def write(self, data: bytes) -> None:
        """Send bytes of an answer, soon; nothing happens where the client is gone. Never raises."""
        if not self._mute:
            self.batch.write(self, data)

    def write_now(self, data: bytes) -> None:
        """Send what was to be written in this turn of the event loop."""
        if self._mute:
            return
        try:
            self._transport_write(data)
        except Exception:
            logger.exception("writing to a client failed")
            self.abort()

    def done(self, *, keep_alive: bool) -> None:
        """End an answer: take the next request, or close."""
        self.responder = None
        if self.charge.budget is not None:
            self.charge.release()
        if not keep_alive or self.is_closing:
            self.close()
        elif self._early:
            asyncio.get_running_loop().call_soon(self._take_early)
        elif not self._slow:
            self._server.idle.add(self)

    def close(self) -> None:
        """Close after what has been written is sent; a client that does not take it is cut off."""
        self.is_closing = True
        if not self._lost and not self.transport.is_closing():
            self.batch.flush()
            self._server.writes.add(self)
            self.transport.close()

    def close_when_idle(self) -> None:
        """Close now, or after the present answer."""
        if self.unread:
            self.read_now()
        self.is_closing = True
        if self._framing is not None and self._delegate is None:
            self._refuse(STOPPING)
        elif self.responder is None and self._delegate is None:
            self.close()

    def abort(self) -> None:
        """Close at once, after what has been written so far."""
        self.is_closing = True
        if not self._lost:
            self.batch.flush()
            self.transport.abort()

    def linger(self) -> None:
        """Close, but let the client read the answer first although it may still be sending."""
        self.is_closing = True
        self.responder = self._delegate = None
        self._early = b""
        self._stop_reading()
        if self._lost:
            return
        self.batch.flush()
        self._server.lingering.add(self)
        self.resume_reading(self._holds)
        if not self.transport.is_closing() and self.transport.can_write_eof():
            self.transport.write_eof()
        self._mute = True

    def head_is_late(self) -> None:
        """Refuse a request whose head did not come in time."""
        self._refuse(Refusal("request_timeout", "the request head took too long to arrive"))

    def body_is_late(self) -> None:
        """Refuse a request whose body did not come in time, or found no room in all that time."""
        if self._holds & FOR_ROOM:
            self._refuse(BUSY)
        else:
            self._refuse(Refusal("request_timeout", "the request body took too long to arrive"))

    def pace_is_due(self) -> None:
        """Look how a body is coming on: one that is too slow does not keep others out for long."""
        if self._framing is None or self._holds & FOR_ROOM:
            return
        before, self._marked_bytes = self._marked_bytes, self._body.size_bytes
        if self._server.is_too_slow(self.charge, self._marked_bytes - before):
            self.body_is_late()
        else:
            self._server.paces.add(self)

    # -- from the event loop

    def connection_made(
        self,
        transport: asyncio.Transport,  # type: ignore[override] # sockets have no other kind
    ) -> None:
        """Join the others, if there is room."""
        self.transport = transport
        self._transport_write = transport.write
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else ""
        server = self._server
        if server.make_room():
            server.connections.add(self)
            server.idle.add(self)
        elif len(server.lingering) >= server.limits.connections_max:
            self.abort()  # those who are told so must not become too many themselves
        else:
            self._refuse(CROWDED)

    def connection_lost(self, error: Exception | None) -> None:
        """Leave, and tell whoever answers."""
        self._lost = self._mute = self.is_closing = True
        self.unread = self._early = b""
        self.kept = None  # most likely it refers to this connection, and a cycle waits for the gc
        self._stop_reading()
        self._server.forget(self)
        responder, self.responder = self.responder, None
        delegate, self._delegate = self._delegate, None
        try:
            if responder is not None:
                responder.client_left()
        finally:
            if delegate is not None:
                delegate.client_left(error)

    def pause_writing(self) -> None:
        """Give the client `write_seconds` to take what has been written."""
        self._slow = True
        self._server.writes.add(self)
        if self.responder is not None:
            self.responder.client_is_slow()
        elif self._delegate is not None:
            self._delegate.client_is_slow()

    def resume_writing(self) -> None:
        """Go on: the client has taken it."""
        self._slow = False
        if not self.transport.is_closing():
            self._server.writes.discard(self)
        if self.responder is not None:
            self.responder.client_keeps_up()
        elif self._delegate is not None:
            self._delegate.client_keeps_up()
        elif not self.is_closing and self._framing is None:
            self.done(keep_alive=True)
        if self._framing is not None and self._early:
            asyncio.get_running_loop().call_soon(self._take_early)

    def take(self, data: bytes) -> None:
        """Read a request, or keep what came too early."""
        if self.is_closing and self.responder is None and self._delegate is None:
            return
        if self.responder is not None or self._early or self._slow or self._holds:
            self._keep_early(data)
        elif self._framing is not None:
            self._take_body(data)
        elif self._delegate is not None:
            self._keep_early(data)
        elif self._raw or not self._try_cached_head(data):
            self._take_head(data)

    def _keep_early(self, data: bytes) -> None:
        """Keep what came while a request is being answered, here or by another.

        A client that sends on and on without waiting is cut off: we must go on reading to see
        whether it is still there, and cannot keep what we read. Only a body may wait to be read.
        """
        self._early += data
        if len(self._early) > EARLY_BYTES_MAX:
            if self._framing is None:
                self.abort()
            else:
                self.pause_reading(FOR_EARLY)

    def pause_reading(self, why: int) -> None:
        """Read no more for a reason, until `resume_reading` is called for the same."""
        if not self._holds and not self._lost and not self.transport.is_closing():
            self.transport.pause_reading()
        self._holds |= why

    def resume_reading(self, why: int) -> None:
        """Let a reason go; with the last one, what has come is taken, and reading goes on."""
        held, self._holds = self._holds, self._holds & ~why
        if not held or self._lost or self.transport.is_closing():
            return
        if not self._holds:
            self.transport.resume_reading()
        if self._early and self._framing is not None and not self._holds & ~FOR_EARLY:
            asyncio.get_running_loop().call_soon(self._take_early)

    def _take_early(self) -> None:
        """Take what came too early, once its turn has come."""
        if self.responder is not None or self._slow or self._holds & ~FOR_EARLY:
            return
        if self._lost or (self.is_closing and self._delegate is None):
            return
        early, self._early = self._early, b""
        if early and self._framing is not None:
            self._take_body(early)
        elif early and self._delegate is None:
            self._take_head(early)
        else:
            self._early = early
        self.resume_reading(FOR_EARLY)

    # -- the head

    def _try_cached_head(self, data: bytes) -> bool:
        """Answer a whole request whose head has come before, unparsed; False if it is another."""
        heads, server = self._heads, self._server
        at = heads.body_at(data)
        if not at or len(data) - at > server.body_bytes_max:
            return False
        server.idle.discard(self)
        self._take_whole(heads.last, data[at:])
        return True

    def _take_head(self, data: bytes) -> None:
        """Parse what has come of a head, up to its end and no further."""
        seen = len(self._raw)
        if not seen:
            data = data.lstrip(b"\r\n")  # blank lines before a request (RFC 9112, 2.2)
            if not data:
                return  # nothing was asked: it stays idle
            self._server.idle.discard(self)
        self._raw = raw = self._raw + data if seen else data
        end = raw.find(b"\r\n\r\n", max(0, seen - 3)) + 4
        whole = end >= 4
        fault = self._parse(raw[seen:end] if whole else data)
        if fault or (whole and not self._is_head_whole):
            self._refuse(from_parser(fault or "its head does not end", raw))
        elif end > HEAD_BYTES_MAX or (not whole and len(raw) > HEAD_BYTES_MAX):
            self._refuse(Refusal("headers_too_large", "the request head is too large"))
        elif whole:
            self._parser = None  # it expects the body now, which is not its affair
            self._begin(raw, end)
        elif not seen:
            self._server.heads.add(self)

    def _parse(self, data: bytes) -> str:
        """Feed the parser; return what it does not like, "" for nothing."""
        parser = self._parser
        if parser is None:
            parser = self._parser = httptools.HttpRequestParser(self)
            self._is_head_whole = False
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # after the whole head; an offer that we do not take
        except httptools.HttpParserError as error:
            return str(error) or "unreadable"
        return ""

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self._is_head_whole = True
        self._keeps_alive = self._parser.should_keep_alive()

    def _begin(self, raw: bytes, end: int) -> None:
        """Decide who answers, and refuse what nobody may."""
        server, heads = self._server, self._heads
        server.heads.discard(self)
        lines = raw[: end - 4].split(b"\r\n")
        if len(lines) > HEADERS_MAX:
            self._refuse(Refusal("headers_too_large", "the request has too many headers"))
            return
        head, is_known = heads.read(lines)
        self._head = head
        if not is_known:
            head.keep_alive = self._keeps_alive
            fault = find_fault(head)
            if fault is not None:
                self._refuse(fault)
                return
            head.is_ours = server.site.takes(head)
        elif head.is_ours and head.keep_alive and not (head.expects or head.upgrades):
            heads.learn(raw[:end])
        self._raw = b""
        length = -1 if head.is_chunked else int(heads.length or 0)
        if not head.is_ours:
            self._hand_over(head, raw[:end], length, raw[end:])
        elif length > server.body_bytes_max:
            self._refuse(body_too_large(server.body_bytes_max))
        elif 0 <= length <= len(raw) - end:
            self._early = raw[end + length :]
            self._take_whole(head, raw[end : end + length])
        else:
            self._expect_body(head, length, raw[end:])

    def _take_whole(self, head: RequestHead, body: bytes) -> None:
        """Answer a request that has come in one piece."""
        if len(body) > SMALL_BYTES:
            server = self._server
            charge = server.budget.take_whole(server.site.owner(head, self.peer), len(body))
            if charge is None:
                self._head = head
                self._refuse(server.site.refusal(head, self.peer) or BUSY)
                return
            self.charge = charge
        self._ask(head, body)

    # -- the body

    def _expect_body(self, head: RequestHead, length: int, data: bytes) -> None:
        """Refuse a body that nobody would read; else let it come, once there is room for it."""
        server = self._server
        refusal = server.site.refusal(head, self.peer)
        if refusal is not None:
            self._refuse(refusal)
            return
        self._framing = BodyFraming(length)
        self._early = data
        self._marked_bytes = 0
        server.bodies.add(self)
        self._ask_for_room(READ_BYTES if head.is_chunked else length)

    def _ask_for_room(self, size_bytes: int) -> None:
        """Take memory for a body, or wait for it.

        Most bodies that come in chunks are small: they ask for that first, and a larger one later
        for all that it may have.
        """
        server, head = self._server, self._head
        assert head is not None
        owner = server.site.owner(head, self.peer)
        charge = None
        if size_bytes <= READ_BYTES:
            charge = server.budget.take_whole(owner, size_bytes)
        charge = charge or server.budget.take(owner, size_bytes)
        if charge is not None:
            self.has_room(charge)
        elif server.budget.wait(self, owner, size_bytes, len(self._early)):
            self.pause_reading(FOR_ROOM)
        else:
            self._refuse(BUSY)

    def has_room(self, charge: Charge) -> None:
        is_first = not self.charge.held_bytes
        self.charge = charge if is_first else self.charge.joined(charge)
        self._server.paces.add(self)
        if is_first and self._head is not None and self._head.expects and not self._body.size_bytes:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self._holds & FOR_ROOM:
            self.resume_reading(FOR_ROOM)  # takes what is here in another turn
        else:
            self._take_early()

    def _take_body(self, data: bytes) -> None:
        """Take what has come of a body, and answer when it is whole."""
        framing = self._framing
        assert framing is not None
        pieces: list[bytes] = []
        try:
            at = framing.take(data, 0, pieces)
        except BadFraming as error:
            code = "body_too_large" if isinstance(error, TooManyChunks) else "invalid_request"
            self._refuse(Refusal(code, f"the body is not framed right: {error}"))
            return
        self._early = data[at:]
        if self._delegate is not None:
            self._pass_on(framing, pieces)
        elif not self._collect(pieces):
            return
        if framing.is_whole:
            if self._delegate is None:
                self._answer()
            else:
                self._framing = None
            return
        if self._early or len(data) >= MUCH_BYTES:  # or thousands of tiny chunks: others first
            self.pause_reading(FOR_OTHERS)
            asyncio.get_running_loop().call_soon(self._read_on)
        if self._body.size_bytes > self.charge.held_bytes and self._delegate is None:
            self._ask_for_room(self._server.body_bytes_max - self.charge.held_bytes)

    def _read_on(self) -> None:
        self.resume_reading(FOR_OTHERS)

    def _collect(self, pieces: list[bytes]) -> bool:
        """Keep pieces of the body; False if it is larger than it may be, and was refused."""
        body, bytes_max = self._body, self._server.body_bytes_max
        for piece in pieces:
            if not body.add(piece, bytes_max):
                self._refuse(body_too_large(bytes_max))
                return False
        return True

    def _answer(self) -> None:
        head = self._head
        assert head is not None
        body = self._body.take()
        charge = self.charge
        self._stop_reading(keeps_charge=True)
        charge.shrink(len(body))
        self._ask(head, body)

    def _ask(self, head: RequestHead, body: bytes) -> None:
        self._head = None
        try:
            self._server.site.answer(self, head, body)
        except Exception:  # a bug of ours: the client must not wait for ever
            logger.exception("answering a request failed")
            self.abort()

    def _refuse(self, refusal: Refusal) -> None:
        self.is_closing = True
        delegate, self._delegate = self._delegate, None
        if delegate is not None:
            has_begun = delegate.has_begun()
            delegate.client_left(None)
            if has_begun:  # two answers to one request would be worse than half of one
                self.abort()
                return
        self._server.site.refuse(self, refusal)
        self.linger()

    def _stop_reading(self, *, keeps_charge: bool = False) -> None:
        """Forget the request that is being read: what has come of it, its room, its deadlines."""
        server = self._server
        server.heads.discard(self)
        if self._framing is not None:
            server.bodies.discard(self)
            server.paces.discard(self)
            self._framing = None
        if self._holds & FOR_ROOM:
            server.budget.forget(self)
        self._raw = b""
        self._head = None
        self._parser = None
        self._body.clear()
        if not keeps_charge:
            self.charge.release()

    # -- requests that another answers

    def _hand_over(self, head: RequestHead, raw: bytes, length: int, data: bytes) -> None:
        """Have a delegate answer one request; it gets the head without offers of an upgrade."""
        self._framing = BodyFraming(length)
        self._early = data
        self._delegate = self._server.site.delegate(self)
        self._delegate.take(without_upgrade(raw) if head.upgrades else raw)
        self._pass_on_body()

    def _pass_on_body(self) -> None:
        """Feed the delegate what came with the head, unless it was answered by that alone."""
        if self._delegate is not None and self._framing is not None:
            if self._framing.is_whole:
                self._framing = None
            else:
                self._take_early()

    def _pass_on(self, framing: BodyFraming, pieces: list[bytes]) -> None:
        """Feed the delegate a part of the body, framed anew where it comes in chunks."""
        delegate = self._delegate
        assert delegate is not None
        if not framing.is_chunked:
            for piece in pieces:
                delegate.take(piece)
            return
        for piece in pieces:
            delegate.take(b"%x\r\n%b\r\n" % (len(piece), piece))
        if framing.is_whole:
            delegate.take(b"0\r\n\r\n")

    def hold(self, charge: Charge) -> None:
        """Give back with the end of the request what its delegate has taken of the budget."""
        if self._delegate is None:
            charge.release()
        else:
            self.charge.release()
            self.charge = charge

    def add(self, charge: Charge) -> None:
        """Give that back, too, with the end of the request: its body has grown."""
        self.charge = self.charge.joined(charge)

    def delegate_is_done(self, *, keep_alive: bool) -> None:
        """Take the connection back after the answer of a delegate."""
        self._delegate = None
        if self._framing is not None and not self._framing.is_whole:
            self.linger()  # it was answered before it had been read
        else:
            self._framing = None
            self._head = None
            self.resume_reading(self._holds)
            self.done(keep_alive=keep_alive)
