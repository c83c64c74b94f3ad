"""The sink that is a client connection: writes an answer as HTTP/1.1."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from forebay.relay.call import Sink
from forebay.wire.heads import header_block, status_line
from forebay.wire.server import Responder

if TYPE_CHECKING:
    from forebay.gateway.errors.rendering import ErrorRenderer
    from forebay.gateway.hot.callers import Caller
    from forebay.relay.exchange import Exchange
    from forebay.relay.problem import Problem
    from forebay.wire.budget import Charge
    from forebay.wire.connection import ServerConnection
    from forebay.wire.heads import AnswerHead, RequestHead


OURS = (b"x-forebay-", b"x-queue-", b"x-estimated-", b"access-control-")
"""Headers that we write ourselves: what a node says of them is not for our clients."""


class WrittenHead:
    """The part of an answer's head that is the same for all who get it, written out."""

    __slots__ = ("block", "content_type")

    def __init__(self, head: AnswerHead) -> None:
        kept = [
            pair
            for pair in head.headers
            if not pair[0].startswith(OURS) and pair[0] != b"x-request-id"
        ]
        self.block = status_line(head.status) + header_block(kept)
        self.content_type = head.content_type


class ClientSink(Sink, Responder):
    """One answer to one request of one connection."""

    __slots__ = (
        "_asked", "_begun", "_chunked", "_connection", "_exchange", "_extra", "_family", "_head",
        "_is_http_11", "_keep_alive", "_language", "_problems", "_stream",
    )  # fmt: skip

    def __init__(
        self,
        connection: ServerConnection,
        head: RequestHead,
        caller: Caller,
        problems: ErrorRenderer,
    ) -> None:
        self._connection = connection
        self._family = caller.family
        self._asked = caller.model
        self._problems = problems
        self._language = caller.language
        self._keep_alive = head.keep_alive
        self._is_http_11 = head.is_http_11
        self._chunked = head.is_http_11  # whether the client understands chunks
        self._extra = caller.answer_block
        self._head = b""  # held until there is something to send with it
        self._begun = False
        self._stream = False  # of the kind that may end in an error of its own
        self._exchange: Exchange | None = None

    @property
    def charge(self) -> Charge:
        """What the body of the request takes of the memory that bodies may take."""
        return self._connection.charge

    def carries(self, exchange: Exchange) -> None:
        """Know whom to tell when the client leaves."""
        self._exchange = exchange

    # -- from the relay

    def head(self, head: AnswerHead, length: bytes | None, exchange: Exchange) -> None:
        """Write the head, together with the first piece of the body."""
        self._begun = True
        written = head.memory
        if type(written) is not WrittenHead:
            written = head.memory = WrittenHead(head)
        self._stream = written.content_type.startswith(self._family.stream_type)
        if length is not None and not self._stream:  # a stream may have to end before its length
            self._chunked = False
            framing = b"content-length: %b\r\n" % length
        elif self._chunked:
            framing = b"transfer-encoding: chunked\r\n"
        else:  # HTTP/1.0: the end of the connection is the end of the answer
            self._keep_alive = False
            framing = b""
        self._head = b"%b%b%b%b%b\r\n" % (
            written.block, relayed_headers(exchange), self._extra, framing,
            self._connection_header(),
        )  # fmt: skip

    def chunk(self, data: bytes) -> None:
        """Write a piece of the body."""
        head, self._head = self._head, b""
        if self._chunked:
            self._connection.write(b"%b%x\r\n%b\r\n" % (head, len(data), data))
        else:
            self._connection.write(head + data if head else data)

    def end(self) -> None:
        """Finish the answer and the request."""
        if self._head or self._chunked:
            self._connection.write(self._head + (b"0\r\n\r\n" if self._chunked else b""))
        self._exchange = None  # neither needs the other now, and a cycle would wait for the gc
        self._connection.done(keep_alive=self._keep_alive)

    def failed(self, problem: Problem, exchange: Exchange) -> None:
        """Say what went wrong: as an answer, as the last event of a stream, or by breaking off."""
        if not self._begun:
            self.refuse(problem, exchange)
        elif self._stream:
            self.chunk(self._problems.render_in_stream(problem, self._family, self._language))
            self.end()
        else:  # part of an answer of known length: only its absence can tell
            self._exchange = None
            self._connection.abort()

    def refuse(self, problem: Problem, exchange: Exchange) -> None:
        """Answer with an error."""
        if problem.code == "model_not_found":
            call = exchange.call
            asked = self._asked or call.asked_model or call.arrival.model
            problem = self._problems.about_the_model(problem, asked, call.arrival.key, self._family)
        ids = relayed_headers(exchange)
        if exchange.queued and not exchange.node:  # it waited, and was never relayed
            ids += _waited(exchange)
        self._write_error(problem, ids)

    def refuse_early(self, problem: Problem, request_id: str) -> None:
        """Answer a request that never became an exchange with an error."""
        self._write_error(problem, b"x-request-id: %b\r\n" % request_id.encode())

    def _write_error(self, problem: Problem, ids: bytes) -> None:
        rendered = self._problems.render(problem, self._family, self._language)
        self._connection.write(
            b"".join(
                (
                    status_line(rendered.status), header_block(rendered.headers), ids, self._extra,
                    b"content-length: %d\r\n" % len(rendered.body), self._connection_header(),
                    b"\r\n", rendered.body,
                )
            )
        )  # fmt: skip
        self._exchange = None
        self._connection.done(keep_alive=self._keep_alive)

    # -- from the connection

    def client_left(self) -> None:
        """Give the request up."""
        if self._exchange is not None:
            self._exchange.cancel()

    def client_is_slow(self) -> None:
        """Hold the node back."""
        if self._exchange is not None:
            self._exchange.pause()

    def client_keeps_up(self) -> None:
        """Let the node go on."""
        if self._exchange is not None:
            self._exchange.resume()

    def _connection_header(self) -> bytes:
        if not self._keep_alive or self._connection.is_closing:
            return b"connection: close\r\n"
        return b"" if self._is_http_11 else b"connection: keep-alive\r\n"


def relayed_headers(exchange: Exchange) -> bytes:
    """Return the headers that say what became of a request on its way."""
    request_id = exchange.id.encode()
    if not exchange.node:  # it waits, and a stream has to be kept informed: the rest comes later
        status = b"x-queue-status: queued\r\n" + _promised(exchange) if exchange.queued else b""
        return b"x-request-id: %b\r\n%b" % (request_id, status)
    node = exchange.node.encode()
    if not exchange.queued:
        return (
            b"x-request-id: %b\r\nx-forebay-node: %b\r\nx-queue-status: direct\r\n"
            b"x-queue-wait-ms: 0\r\n%b" % (request_id, node, _model(exchange))
        )
    return b"x-request-id: %b\r\nx-forebay-node: %b\r\nx-queue-status: queued\r\n%b%b%b" % (
        request_id, node, _waited(exchange), _promised(exchange), _model(exchange)
    )  # fmt: skip


def _waited(exchange: Exchange) -> bytes:
    """Return how long it waited, over all its attempts."""
    return b"x-queue-wait-ms: %d\r\n" % int(exchange.waited_s * 1000)


def _promised(exchange: Exchange) -> bytes:
    """Return what was said on arrival about its place and its wait."""
    block = b""
    if exchange.position is not None:
        block += b"x-queue-position: %d\r\n" % exchange.position
    if exchange.estimate_s is not None:
        block += b"x-estimated-wait: %d\r\n" % ceil(exchange.estimate_s)
    return block


def _model(exchange: Exchange) -> bytes:
    """Return the header that says which model a fallback or alias ran instead."""
    if exchange.model == exchange.call.asked_model:
        return b""
    return b"x-forebay-model: %b\r\n" % exchange.model.encode("ascii", "backslashreplace")
