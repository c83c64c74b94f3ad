"""One client connection: a protocol that hands over whole requests, one at a time.

`wire/incoming_head.py` reads heads, `wire/body.py` delimits bodies. Reading goes on while a request
is answered, because a vanished client is seen only by reading; what arrives then (pipelining) is
kept as raw bytes, up to a bound, and parsed when its turn comes.

A connection is in one of a few modes, which say who gets what is read; `MOVES` lists how they
follow each other. What does not depend on them stands beside: whether the socket is read at all,
and why not (`holds`), whether the client takes what is written, whether the present answer is the
last.

A request that is not for us to answer goes to a `Delegate` (`Site.takes` says so when the head is
complete), which is fed its head and body and nothing else.

Nothing starts for a connection that is lost, and a write to one never raises: whoever answers may
be in the middle of giving back a slot.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from forebay.wire.budget import NOTHING, SMALL_BYTES
from forebay.wire.heads import HeadCache, without_upgrade
from forebay.wire.incoming_head import BadHead, HeadTooLarge, IncomingHead
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
from forebay.wire.upload import FOR_EARLY, Upload

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

HEAD: Final = 0  # a head is awaited, or comes: its parser gets what is read
BODY: Final = 1  # a body comes that is ours to answer: its upload gets it
ANSWER: Final = 2  # the site answers: what is read comes early
DELEGATE: Final = 3  # a delegate answers: it gets the body, the rest comes early
END: Final = 4  # nothing more is read; what was written may still be on its way
LOST: Final = 5  # there is no connection any more

MOVES: Final = {
    HEAD: (BODY, ANSWER, DELEGATE, END, LOST),
    BODY: (ANSWER, END, LOST),
    ANSWER: (HEAD, END, LOST),
    DELEGATE: (HEAD, END, LOST),
    END: (END, LOST),
    LOST: (),
}
"""Which mode may follow which."""


class ServerConnection(BatchedConnection):
    """The protocol; `Site` sees it as the way to answer."""

    __slots__ = (
        "_coming", "_heads", "_mode", "_mute", "_server", "_slow", "_transport_write", "_upload",
        "charge", "delegate", "early", "head", "holds", "is_closing", "kept", "peer", "responder",
        "transport",
    )  # fmt: skip

    transport: asyncio.Transport
    _transport_write: Callable[[bytes], None]

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self._mode = HEAD
        self.peer = ""
        self.responder: Responder | None = None
        """Who answers the present request: set by the site, and told when the client leaves."""
        self.kept: object = None
        """Whatever the site keeps from one request of this connection to the next."""
        self.is_closing = False
        """Whether the connection ends with the present answer."""
        self.holds = 0
        """Why the socket is not read, one bit each."""
        self._mute = False  # nothing can be sent any more
        self._slow = False  # more has been written than the client takes
        # the request that is being read
        self._heads = HeadCache(server.site.read_head)
        self._coming: IncomingHead | None = None  # while its head is coming
        self.head: RequestHead | None = None
        """Of the request that is being read, once it is whole."""
        self._upload: Upload | None = None  # while its body is coming
        self.delegate: Delegate | None = None
        """Who answers in our place."""
        self.charge: Charge = NOTHING
        """What the body of the present request takes of the budget."""
        self.early = b""
        """What has come and cannot be taken yet."""

    # -- for the one who answers

    @property
    def target(self) -> bytes:
        """What the request that is being read asks for, as far as that has come."""
        if self.head is not None:
            return self.head.target
        words = [] if self._coming is None else self._coming.raw.split(b" ", 2)
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
            return
        self._enter(HEAD)
        if self.early:
            asyncio.get_running_loop().call_soon(self.take_early)
        elif not self._slow:
            self._server.idle.add(self)

    def close(self) -> None:
        """Close after what has been written is sent; a client that does not take it is cut off."""
        self.is_closing = True
        if self._mode != LOST:
            self._enter(END)
            if not self.transport.is_closing():
                self.batch.flush()
                self._server.writes.add(self)
                self.transport.close()

    def close_when_idle(self) -> None:
        """Close now, or after the present answer."""
        if self.unread:
            self.read_now()
        self.is_closing = True
        if self._mode == BODY:
            self.refuse(STOPPING)
        elif self._mode == HEAD:
            self.close()

    def abort(self) -> None:
        """Close at once, after what has been written so far."""
        self.is_closing = True
        if self._mode != LOST:
            self._enter(END)
            self.batch.flush()
            self.transport.abort()

    def refuse(self, refusal: Refusal) -> None:
        """Answer the request that is being read with an error, whoever was to; then close."""
        self.is_closing = True
        delegate, self.delegate = self.delegate, None
        if delegate is not None:
            has_begun = delegate.has_begun()
            delegate.client_left(None)
            if has_begun:  # two answers to one request would be worse than half of one
                self.abort()
                return
        self._server.site.refuse(self, refusal)
        self._linger()

    def _linger(self) -> None:
        """Close, but let the client read the answer first although it may still be sending."""
        self.is_closing = True
        self.responder = self.delegate = None
        self.early = b""
        self._stop_reading()
        if self._mode == LOST:
            return
        self._enter(END)
        self.batch.flush()
        self._server.lingering.add(self)
        self.resume_reading(self.holds)
        if not self.transport.is_closing() and self.transport.can_write_eof():
            self.transport.write_eof()
        self._mute = True

    def _enter(self, mode: int) -> None:
        assert mode in MOVES[self._mode], f"a connection moves from mode {self._mode} to {mode}"
        self._mode = mode

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
            self.refuse(CROWDED)

    def connection_lost(self, error: Exception | None) -> None:
        """Leave, and tell whoever answers."""
        self._enter(LOST)
        self._mute = self.is_closing = True
        self.unread = self.early = b""
        self.kept = None  # most likely it refers to this connection, and a cycle waits for the gc
        self._stop_reading()
        self._server.forget(self)
        responder, self.responder = self.responder, None
        delegate, self.delegate = self.delegate, None
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
        elif self.delegate is not None:
            self.delegate.client_is_slow()

    def resume_writing(self) -> None:
        """Go on: the client has taken it."""
        self._slow = False
        if not self.transport.is_closing():
            self._server.writes.discard(self)
        if self.responder is not None:
            self.responder.client_keeps_up()
        elif self.delegate is not None:
            self.delegate.client_keeps_up()
        if self.early:
            asyncio.get_running_loop().call_soon(self.take_early)
        elif self._mode == HEAD:
            self._server.idle.add(self)

    def take(self, data: bytes) -> None:
        """Read a request, or keep what came too early."""
        mode = self._mode
        if mode >= END:
            return
        if mode == ANSWER or self.early or self._slow or self.holds:
            self._keep_early(data)
        elif self._upload is not None:
            self._upload.take(data)
        elif mode == DELEGATE:
            self._keep_early(data)
        else:  # perhaps a whole request whose head has come before: that one is not parsed
            at = 0 if self._coming is not None else self._heads.body_at(data)
            if at and len(data) - at <= self._server.body_bytes_max:
                self._server.idle.discard(self)
                self._take_whole(self._heads.last, data[at:])
            else:
                self._take_head(data)

    def _keep_early(self, data: bytes) -> None:
        """Keep what came while a request is being answered, here or by another.

        A client that sends on and on without waiting is cut off: we must go on reading to see
        whether it is still there, and cannot keep what we read. Only a body may wait to be read.
        """
        self.early += data
        if len(self.early) > EARLY_BYTES_MAX:
            if self._upload is None:
                self.abort()
            else:
                self.pause_reading(FOR_EARLY)

    def pause_reading(self, why: int) -> None:
        """Read no more for a reason, until `resume_reading` is called for the same."""
        if not self.holds and self._mode != LOST and not self.transport.is_closing():
            self.transport.pause_reading()
        self.holds |= why

    def resume_reading(self, why: int) -> None:
        """Let a reason go; with the last one, what has come is taken, and reading goes on."""
        held, self.holds = self.holds, self.holds & ~why
        if not held or self._mode == LOST or self.transport.is_closing():
            return
        if not self.holds:
            self.transport.resume_reading()
        if self.early and self._upload is not None and not self.holds & ~FOR_EARLY:
            asyncio.get_running_loop().call_soon(self.take_early)

    def take_early(self) -> None:
        """Take what came too early, once its turn has come."""
        mode = self._mode
        if mode == ANSWER or mode >= END or self._slow or self.holds & ~FOR_EARLY:
            return
        early, self.early = self.early, b""
        if early and self._upload is not None:
            self._upload.take(early)
        elif early and mode == HEAD:
            self._take_head(early)
        else:
            self.early = early
        self.resume_reading(FOR_EARLY)

    # -- the head

    def _take_head(self, data: bytes) -> None:
        """Read what has come of a head, up to its end and no further."""
        coming = self._coming
        is_new = coming is None
        if coming is None:
            data = data.lstrip(b"\r\n")  # blank lines before a request (RFC 9112, 2.2)
            if not data:
                return  # nothing was asked: it stays idle
            self._server.idle.discard(self)
            coming = self._coming = IncomingHead(HEAD_BYTES_MAX, is_answer=False)
        try:
            end = coming.take(data)
        except BadHead as error:
            self.refuse(from_parser(str(error), coming.raw))
        except HeadTooLarge:
            self.refuse(Refusal("headers_too_large", "the request head is too large"))
        else:
            if end:
                self._begin(coming, end)
            elif is_new:
                self._server.heads.add(self)

    def _begin(self, coming: IncomingHead, end: int) -> None:
        """Decide who answers, and refuse what nobody may."""
        server, heads, raw = self._server, self._heads, coming.raw
        server.heads.discard(self)
        lines = raw[: end - 4].split(b"\r\n")
        if len(lines) > HEADERS_MAX:
            self.refuse(Refusal("headers_too_large", "the request has too many headers"))
            return
        head, is_known = heads.read(lines)
        self.head = head
        if not is_known:
            head.keep_alive = coming.keeps_alive
            fault = find_fault(head)
            if fault is not None:
                self.refuse(fault)
                return
            head.is_ours = server.site.takes(head)
        elif head.is_ours and head.keep_alive and not (head.expects or head.upgrades):
            heads.learn(raw[:end])
        self._coming = None
        length = -1 if head.is_chunked else int(heads.length or 0)
        if not head.is_ours:
            self._hand_over(head, raw[:end], length, raw[end:])
        elif length > server.body_bytes_max:
            self.refuse(body_too_large(server.body_bytes_max))
        elif 0 <= length <= len(raw) - end:
            self.early = raw[end + length :]
            self._take_whole(head, raw[end : end + length])
        else:
            self._expect_body(head, length, raw[end:])

    def _take_whole(self, head: RequestHead, body: bytes) -> None:
        """Answer a request that has come in one piece."""
        if len(body) > SMALL_BYTES:
            server = self._server
            charge = server.budget.take_whole(server.site.owner(head, self.peer), len(body))
            if charge is None:
                self.head = head
                self.refuse(server.site.refusal(head, self.peer) or BUSY)
                return
            self.charge = charge
        self._ask(head, body)

    def _expect_body(self, head: RequestHead, length: int, data: bytes) -> None:
        """Refuse a body that nobody would read; else let it come, once there is room for it."""
        server = self._server
        refusal = server.site.refusal(head, self.peer)
        if refusal is not None:
            self.refuse(refusal)
            return
        self._enter(BODY)
        self.early = data
        self._upload = upload = Upload(self, server, head, length)
        upload.begin(length)

    def body_is_whole(self, body: bytes | None) -> None:
        """Answer the request whose body has come; None: its delegate has it."""
        head, upload, self._upload = self.head, self._upload, None
        if body is None or head is None or upload is None:
            return
        upload.close()
        self.charge.shrink(len(body))
        self._ask(head, body)

    def _ask(self, head: RequestHead, body: bytes) -> None:
        self.head = None
        self._enter(ANSWER)
        try:
            self._server.site.answer(self, head, body)
        except Exception:  # a bug of ours: the client must not wait for ever
            logger.exception("answering a request failed")
            self.abort()

    def _stop_reading(self) -> None:
        """Forget the request that is being read: what has come of it, its room, its deadlines."""
        self._server.heads.discard(self)
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.close()
        self._coming = self.head = None
        self.charge.release()

    # -- requests that another answers

    def _hand_over(self, head: RequestHead, raw: bytes, length: int, data: bytes) -> None:
        """Have a delegate answer one request; it gets the head without offers of an upgrade."""
        self._enter(DELEGATE)
        delegate = self.delegate = self._server.site.delegate(self)
        self._upload = upload = Upload(self, self._server, head, length, delegate)
        self.early = data
        delegate.take(without_upgrade(raw) if head.upgrades else raw)
        if self._upload is not upload:
            return  # it was answered by the head alone
        if upload.is_whole:
            self._upload = None
        else:
            self.take_early()

    def delegate_is_done(self, *, keep_alive: bool) -> None:
        """Take the connection back after the answer of a delegate."""
        self.delegate = None
        if self._upload is not None and not self._upload.is_whole:
            self._linger()  # it was answered before it had been read
        else:
            self._upload = None
            self.head = None
            self.resume_reading(self.holds)
            self.done(keep_alive=keep_alive)
