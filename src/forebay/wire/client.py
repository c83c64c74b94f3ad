"""The client side: a connection to one server, kept alive (`wire/pool.py`), driven by callbacks.

A connection carries one exchange at a time. Whoever sends becomes its `AnswerListener` and hears of
the answer as it comes: llhttp (httptools) reads heads, `wire/body.py` delimits bodies. There is no
task per request, only one per *new* connection. A listener that loses interest calls `abort`: the
connection is closed at once, because HTTP/1.1 has no other way to say so, and the server can free
what it holds.

What could leak here is a connection that nobody owns: a connect that ends after its caller has
gone (`PendingConnect` closes the socket if it is too late to cancel), and an answer that ends after
its listener has gone (`_listener` is None then, and the connection was aborted).

What must not happen is that an answer reaches somebody else. A server that sends more than it was
asked for would answer the next request on that connection. So a connection goes back to the pool
only after its listener has heard of the end (a request that starts in that same callback takes
another), and right before it is used again its socket is polled: where anything can be read, it is
passed over (`ConnectionPool.take`). Any byte that belongs to no answer closes it, and a server that
was caught once gets a connection per request.
"""

from __future__ import annotations

import asyncio
import logging
import select
from typing import TYPE_CHECKING, Final, Protocol

from forebay.wire.body import BadFraming, BodyFraming
from forebay.wire.incoming_head import BadHead, HeadTooLarge, IncomingHead
from forebay.wire.io_batch import BatchedConnection
from forebay.wire.sockets import watch_for_dead_peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.wire.heads import AnswerHead
    from forebay.wire.pool import ConnectionPool

logger = logging.getLogger("forebay.wire")

HEAD_BYTES_MAX: Final = 131_072
"""What the head of an answer may weigh; engines send a few hundred bytes."""
HEADERS_MAX: Final = 256
CHUNKS_MAX: Final = 1 << 40
"""Of an answer: their bytes have a bound, and a stream of days may have any number."""
TOO_LARGE: Final = "the answer's head is too large"
EXCESS: Final = "it sent more than it was asked for"
SENT_BYTES: Final = 65_536
"""Of a large body, sent in one turn of the event loop."""
STREAMS_CLOSED_MAX: Final = 3
"""Connections in a row that were closed after a stream, until none is used again after one:
llama.cpp closes them all, although it says that it keeps them."""


class AnswerListener(Protocol):
    """Who has asked and hears the answer. Every call comes from the event loop."""

    __slots__ = ()

    def answer_begins(self, head: AnswerHead, length: bytes | None) -> None:
        """Take the head, and the length of the body where the answer tells it."""
        ...

    def answer_goes_on(self, data: bytes, framed: bytes = b"") -> None:
        """Take a piece of the body; `framed` is the same as the one chunk that it came as."""
        ...

    def answer_ends(self) -> None:
        """Know that the answer is whole; the connection goes back to the pool after this call."""
        ...

    def answer_breaks(self, cause: str, *, stale: bool) -> None:
        """Know that no more will come.

        `stale` says that a connection that had been idle closed before a byte of the answer came:
        the server may simply have tired of it, and the request may go out again on a fresh one.
        """
        ...

    def answer_is_lost(self) -> None:
        """Give back all that is held, whatever its state: one of the calls above has raised."""
        ...


class NodeConnection(BatchedConnection):
    """One connection to a server."""

    __slots__ = (
        "_blocked", "_close_after", "_completed", "_counted", "_framing", "_head",
        "_head_bytes", "_is_upload", "_listener", "_lost", "_on_room", "_poller", "_pool", "_rest",
         "_sent_much", "_status", "_streamed", "_transport", "_unsent", "_used",
        "paused",
    )  # fmt: skip

    def __init__(self, pool: ConnectionPool) -> None:
        super().__init__()
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._listener: AnswerListener | None = None
        self._head: IncomingHead | None = None
        self._status = 0
        self._head_bytes = 0
        self._framing: BodyFraming | None = None  # None while the answer ends with the connection
        self._rest = b""  # of what has come, to be taken in another turn of the loop
        self._close_after = False
        self._completed = False  # an answer has ended, and nobody has asked since
        self._used = False  # has carried an exchange before
        self._streamed = False  # the last answer came in chunks
        self._sent_much = False  # more than fits into a socket's buffer
        self._is_upload = False  # its body comes with `send_more`, and may not have come whole
        self._counted = False  # among the open ones of the pool
        self._lost = False
        self._unsent: list[bytes | memoryview] = []  # of a large body
        self._blocked = False  # the server does not take more for now
        self._on_room: Callable[[], None] | None = None  # called when it has taken all
        self._poller: select.poll | None = None  # of this socket alone
        self.paused = False  # its answer is not being read

    # -- for the one who asks

    def send(
        self, request: bytes, body: bytes | list[bytes | memoryview], listener: AnswerListener
    ) -> None:
        """Send a whole request, its body in one piece or several; the answer is the listener's."""
        transport = self._transport
        assert transport is not None
        self._listener = listener
        self._status = 0
        self._head_bytes = 0
        self._head = None
        self._completed = False
        self._sent_much = not isinstance(body, bytes) or len(body) >= SENT_BYTES
        self._is_upload = not body and not isinstance(body, bytes)
        if isinstance(body, bytes) and not self._sent_much:
            self.batch.write(self, request + body)
            return
        transport.write(request)
        self._unsent = [memoryview(body)] if isinstance(body, bytes) else body
        self._send_on()

    def write_now(self, data: bytes) -> None:
        """Send what was to be written in this turn of the event loop."""
        transport, listener = self._transport, self._listener
        if listener is None or self._lost or transport is None:
            return  # it was given up, or has heard so
        try:
            transport.write(data)
        except Exception:
            self._fail(listener)

    def send_more(self, data: bytes, on_room: Callable[[], None]) -> None:
        """Send more of a body; `on_room` is called when there is room again, unless it is lost."""
        self._unsent.append(data)
        self._on_room = on_room
        self._send_on()

    def _send_on(self) -> None:
        """Send one piece of a large body a turn: 30 MiB at once would hold the loop for 15 ms."""
        transport, unsent = self._transport, self._unsent
        if self._blocked or transport is None or self._lost:
            return
        if not unsent:
            on_room, self._on_room = self._on_room, None
            if on_room is not None:
                on_room()
            return
        piece = unsent[0]
        if len(piece) > SENT_BYTES:
            unsent[0] = piece[SENT_BYTES:]
        else:
            del unsent[0]
        transport.write(piece[:SENT_BYTES])
        if not self._blocked and (unsent or self._on_room is not None):
            asyncio.get_running_loop().call_soon(self._send_on)

    def pause(self) -> None:
        """Stop reading: whoever takes the answer cannot keep up."""
        self.paused = True
        self._hold_reading()

    def _hold_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        self.paused = False
        if self._rest:
            asyncio.get_running_loop().call_soon(self._read_on)
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once; the listener hears nothing more."""
        self._listener = None
        self._unsent = []
        self.unread = self._rest = b""
        self._pool.forget(self)
        if self._transport is not None and not self._lost:
            self._transport.abort()

    @property
    def is_open(self) -> bool:
        return not self._lost and self._transport is not None and not self._transport.is_closing()

    def is_quiet(self) -> bool:
        """Say whether it is open and there is nothing to read: neither its end nor excess bytes."""
        transport, poller = self._transport, self._poller
        if self._lost or self.unread or transport is None or transport.is_closing():
            return False
        return poller is None or not poller.poll(0)

    def carries(self, listener: AnswerListener) -> bool:
        return self._listener is listener

    def spoil(self) -> None:
        """Close it after an answer that is none: it may be what is left of an earlier one.

        Then the real one is still to come, and would be taken for the answer to the next request.
        """
        self._pool.distrust("what it answered makes no sense")
        self._close_after = True
        self.abort()

    def close(self) -> None:
        if self._transport is not None and not self._lost:
            self._transport.close()

    def opened(self) -> None:
        """Count as open from now on: there is someone to have it.

        Not in `connection_made`: uvloop calls no `connection_lost` for a connect that is cancelled
        just after it.
        """
        if not self._lost:
            self._counted = True
            self._pool.connections += 1

    # -- from the event loop

    def connection_made(
        self,
        transport: asyncio.Transport,  # type: ignore[override] # sockets have no other kind
    ) -> None:
        self._transport = transport
        sock = transport.get_extra_info("socket")
        if sock is not None:
            self._poller = select.poll()
            self._poller.register(sock.fileno(), select.POLLIN)
        watch_for_dead_peer(sock)

    def data_received(self, data: bytes) -> None:
        """Take what came: at once where an answer goes on, or where none is expected."""
        if self._status and not self.unread:
            self.take(data)
        else:
            super().data_received(data)

    def take(self, data: bytes) -> None:
        """Take a part of an answer; anything while nobody has asked is a fault of the server."""
        listener = self._listener
        if listener is None:
            self._is_excess()
            return
        try:
            if self._status:
                self._take_body(listener, data)
            elif self._head is not None or not self._take_cached(listener, data):
                self._take_head(listener, data)
        except Exception:
            self._fail(listener)

    def _take_cached(self, listener: AnswerListener, data: bytes) -> bool:
        """Take a whole answer whose head has come before, unparsed; False if it is another."""
        heads = self._pool.heads
        at = heads.body_at(data)
        if not at:
            return False
        head = heads.last
        self._head_bytes = at
        self._status = head.status
        self._close_after = False
        listener.answer_begins(head, heads.length)
        if at < len(data) and self._listener is not None:
            listener.answer_goes_on(data[at:])
        self._end()
        return True

    def _take_head(self, listener: AnswerListener, data: bytes) -> None:
        """Read what has come of a head, up to its end and no further, and what is behind it."""
        self._head_bytes += len(data)
        while data := data if self._head is not None else data.lstrip(b"\r\n"):  # blank lines first
            head = self._head
            if head is None:
                head = self._head = IncomingHead(HEAD_BYTES_MAX, is_answer=True)
            try:
                end = head.take(data)
            except BadHead as error:
                self._break(f"the answer is not HTTP/1.1: {error}")
                return
            except HeadTooLarge:
                self._break(TOO_LARGE)
                return
            if not end:
                return
            self._head, data = None, head.raw[end:]
            if 100 <= head.status < 200:  # an interim answer
                continue
            self._status, self._close_after = head.status, not head.keeps_alive
            self._begin(listener, head.raw[:end])
            if self._listener is listener and (data or self._is_whole()):
                self._take_body(listener, data)
            return

    def _begin(self, listener: AnswerListener, raw: bytes) -> None:
        """Hand a head over, and see how its body will end."""
        lines = raw[:-4].split(b"\r\n")
        if not 200 <= self._status <= 599:
            self._break(f"the answer has no HTTP status ({self._status:03d})")
            return
        if len(lines) > HEADERS_MAX:
            self._break(TOO_LARGE)
            return
        heads = self._pool.heads
        if self._streamed:  # and it was still good for this answer
            self._pool.streams_closed = 0
        head, is_known = heads.read(lines)
        self._streamed = heads.length is None
        has_no_body = head.status in (204, 304)
        if head.framed:
            length = -1 if head.is_chunked else 0 if has_no_body else int(heads.length or 0)
            self._framing = BodyFraming(length, CHUNKS_MAX)
        else:
            self._framing, self._close_after = None, True
        if is_known and not self._close_after and not has_no_body:
            heads.learn(raw)
        listener.answer_begins(head, heads.length)

    def _is_whole(self) -> bool:
        return self._framing is not None and self._framing.is_whole

    def _take_body(self, listener: AnswerListener, data: bytes) -> None:
        """Pass on what has come of a body, and end with it."""
        framing = self._framing
        if framing is None:  # it ends with the connection
            listener.answer_goes_on(data)
            return
        piece = framing.take_chunk(data)
        if piece:
            listener.answer_goes_on(piece, data)
        else:
            self._take_pieces(listener, framing, data)

    def _take_pieces(self, listener: AnswerListener, framing: BodyFraming, data: bytes) -> None:
        pieces: list[bytes] = []
        try:
            at = framing.take(data, 0, pieces)
        except BadFraming as error:
            self._break(f"the answer is not HTTP/1.1: {error}")
            return
        for piece in pieces:
            if self._listener is not listener:
                return  # it has had enough
            listener.answer_goes_on(piece)
        if self._listener is not listener:
            return
        if framing.is_whole:
            if at < len(data):
                self._close_after = True
                self._pool.distrust(EXCESS)
            self._end()
        elif at < len(data):  # thousands of tiny chunks: others first
            self._rest = data[at:]
            self._hold_reading()
            asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        if self.paused or self._listener is None:
            return
        rest, self._rest = self._rest, b""
        self.take(rest)
        if not self._rest and not self.paused:
            self.resume()

    def pause_writing(self) -> None:
        """Wait until the server has taken what was sent."""
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = False
        self._send_on()

    def eof_received(self) -> None:
        """Take the end of an answer that is framed by the end of the connection."""
        if self.unread:
            self.read_now()  # before the end
        listener = self._listener
        if listener is None:
            self._pool.forget(self)  # at once: it is lost only in the next turn
        elif self._status and self._framing is None:
            try:
                self._end()
            except Exception:
                self._fail(listener)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the listener, and leave the pool."""
        if self.unread:
            self.read_now()  # before the end
        self._lost = True
        self._unsent = []
        self._rest = b""
        if self._counted:
            self._pool.connections -= 1
        self._pool.forget(self)
        if self._listener is not None:
            cause = "the connection was lost" if error is None else f"connection lost: {error}"
            stale = self._used and not self._head_bytes
            if stale:
                self._pool.streams_closed += self._streamed
            if self._status:
                self._pool.distrust("an answer ended before it was whole")
            self._break(cause, stale=stale)

    # -- the end of an answer

    def _end(self) -> None:
        """Tell the listener, then be free for the next exchange."""
        listener = self._listener
        if listener is None:
            return
        self._listener = None
        self._used = self._completed = True
        if self.paused:  # by the last bytes of this answer; the next one must be heard
            self.resume()
        if (
            self._close_after
            or (self._streamed and self._pool.streams_closed >= STREAMS_CLOSED_MAX)
            or (self._sent_much and self._is_still_sending())
        ):
            self._close_after = True
            self.abort()
        listener.answer_ends()
        if not self._close_after:  # which the listener may have asked for
            self._pool.keep(self)

    def _is_still_sending(self) -> bool:
        """Say whether the answer came before the whole request was sent: the rest must not."""
        return (
            bool(self._unsent)
            or self._is_upload
            or (self._transport is not None and self._transport.get_write_buffer_size() > 0)
        )

    def _is_excess(self) -> None:
        """Close: the server has sent what nobody asked for, or what nobody waits for any more."""
        if self._completed:  # else it was aborted, and this was on its way
            self._pool.distrust(EXCESS)
        self.abort()

    def _break(self, cause: str, *, stale: bool = False) -> None:
        listener = self._listener
        self.abort()
        if listener is not None:
            try:
                listener.answer_breaks(cause, stale=stale)
            except Exception:
                self._fail(listener)

    def _fail(self, listener: AnswerListener) -> None:
        """Have the listener give back what it holds: a bug of ours costs its own request only."""
        logger.exception("handling a node's answer failed")
        self.abort()
        listener.answer_is_lost()
