"""The sink that is a client connection: writes an answer as HTTP/1.1."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from forebay.relay.call import Sink
from forebay.wire.heads import header_block, status_line
from forebay.wire.server import Responder

if TYPE_CHECKING:
    from forebay.core import RateStatus
    from forebay.gateway.errors.rendering import ErrorRenderer
    from forebay.gateway.hot.callers import Caller
    from forebay.relay.exchange import Exchange
    from forebay.relay.problem import Problem
    from forebay.wire.connection import ServerConnection
    from forebay.wire.heads import AnswerHead


OURS = (b"x-forebay-", b"x-queue-", b"x-estimated-", b"access-control-", b"x-ratelimit-")
"""Headers that we write ourselves: what a node says of them is not for our clients."""


class ClientSink(Sink, Responder):
    """Writes the answers to the requests of one connection, one at a time."""

    __slots__ = (
        "_begun", "_chunked", "_errors", "_head", "_keep_alive", "_stream", "caller", "connection",
        "exchange",
    )  # fmt: skip

    def __init__(self, connection: ServerConnection, caller: Caller, errors: ErrorRenderer) -> None:
        self.connection = connection
        self._errors = errors
        self.begin(caller)

    def begin(self, caller: Caller) -> None:
        """Be ready for the answer to one more request."""
        self.caller = caller
        self._keep_alive = caller.keep_alive
        self._chunked = caller.is_http_11  # whether the client understands chunks
        self._head = b""  # held until there is something to send with it
        self._begun = False
        self._stream = False  # of the kind that may end in an error of its own
        self.exchange: Exchange | None = None
        """Whom to tell when the client leaves."""

    # -- from the relay

    def head(self, head: AnswerHead, length: bytes | None, exchange: Exchange) -> None:
        """Write the head, together with the first piece of the body."""
        self._begun = True
        caller, connection = self.caller, self.connection
        self._stream = head.content_type.startswith(caller.family.stream_type)
        if length is not None and not self._stream:  # a stream may have to end before its length
            self._chunked = False
            framing = b"content-length: %b\r\n" % length
        elif self._chunked:
            framing = b"transfer-encoding: chunked\r\n"
        else:  # HTTP/1.0: the end of the connection is the end of the answer
            self._keep_alive = False
            framing = b""
        is_usual = self._keep_alive and caller.is_http_11 and not connection.is_closing
        self._head = b"%b%b%b%b%b\r\n" % (
            head.written or _write_out(head), relayed_headers(exchange), caller.answer_block,
            framing, b"" if is_usual else self._connection_header(),
        )  # fmt: skip

    def chunk(self, data: bytes, framed: bytes = b"") -> None:
        """Write a piece of the body."""
        head = self._head
        if head:
            self._head = b""
        if not self._chunked:
            self.connection.write(head + data if head else data)
        elif framed and not head:
            self.connection.write(framed)
        else:
            self.connection.write(b"%b%x\r\n%b\r\n" % (head, len(data), data))

    def end(self) -> None:
        """Finish the answer and the request."""
        if self._head or self._chunked:
            self.connection.write(self._head + (b"0\r\n\r\n" if self._chunked else b""))
        self.exchange = None  # neither needs the other now, and a cycle would wait for the gc
        self.connection.done(keep_alive=self._keep_alive)

    def failed(self, problem: Problem, exchange: Exchange) -> None:
        """Say what went wrong: as an answer, as the last event of a stream, or by breaking off."""
        if not self._begun:
            self.refuse(problem, exchange)
        elif self._stream:
            caller = self.caller
            self.chunk(self._errors.render_in_stream(problem, caller.family, caller.language))
            self.end()
        else:  # part of an answer of known length: only its absence can tell
            self.exchange = None
            self.connection.abort()

    def refuse(self, problem: Problem, exchange: Exchange) -> None:
        """Answer with an error."""
        if problem.code == "model_not_found":
            caller, call = self.caller, exchange.call
            asked = caller.model or call.asked_model or call.arrival.model
            problem = self._errors.about_the_model(problem, asked, call.arrival.key, caller.family)
        ids = relayed_headers(exchange)
        if exchange.queued and not exchange.node:  # it waited, and was never relayed
            ids += _waited(exchange)
        self._write_error(problem, ids)

    def refuse_early(self, problem: Problem, request_id: str) -> None:
        """Answer a request that never became an exchange with an error."""
        self._write_error(problem, b"x-request-id: %b\r\n" % request_id.encode())

    def _write_error(self, problem: Problem, ids: bytes) -> None:
        caller = self.caller
        rendered = self._errors.render(problem, caller.family, caller.language)
        self.connection.write(
            b"".join(
                (
                    status_line(rendered.status), header_block(rendered.headers), ids,
                    caller.answer_block,
                    b"content-length: %d\r\n" % len(rendered.body), self._connection_header(),
                    b"\r\n", rendered.body,
                )
            )
        )  # fmt: skip
        self.exchange = None
        self.connection.done(keep_alive=self._keep_alive)

    # -- from the connection

    def client_left(self) -> None:
        """Give the request up."""
        if self.exchange is not None:
            self.exchange.cancel()

    def client_is_slow(self) -> None:
        """Hold the node back."""
        if self.exchange is not None:
            self.exchange.pause()

    def client_keeps_up(self) -> None:
        """Let the node go on."""
        if self.exchange is not None:
            self.exchange.resume()

    def _connection_header(self) -> bytes:
        if not self._keep_alive or self.connection.is_closing:
            return b"connection: close\r\n"
        return b"" if self.caller.is_http_11 else b"connection: keep-alive\r\n"


def _write_out(head: AnswerHead) -> bytes:
    """Return the part of an answer's head that is the same for all who get it, and keep it."""
    kept = [
        pair for pair in head.headers if not pair[0].startswith(OURS) and pair[0] != b"x-request-id"
    ]
    head.written = status_line(head.status) + header_block(kept)
    return head.written


def relayed_headers(exchange: Exchange) -> bytes:
    """Return the headers that say what became of a request on its way."""
    request_id = exchange.id.encode()
    rate = b"" if exchange.rate is None else _limits(exchange.rate)
    if not exchange.node:  # it waits, and a stream has to be kept informed: the rest comes later
        status = b"x-queue-status: queued\r\n" + _promised(exchange) if exchange.queued else b""
        return b"x-request-id: %b\r\n%b%b" % (request_id, status, rate)
    node, model = exchange.node.encode(), b""
    if exchange.model != exchange.call.asked_model:  # a fallback or alias ran instead
        name = exchange.model.encode("ascii", "backslashreplace")
        model = b"x-forebay-model: %b\r\n" % name
    if not exchange.queued:
        return (
            b"x-request-id: %b\r\nx-forebay-node: %b\r\nx-queue-status: direct\r\n"
            b"x-queue-wait-ms: 0\r\n%b%b" % (request_id, node, model, rate)
        )
    return b"x-request-id: %b\r\nx-forebay-node: %b\r\nx-queue-status: queued\r\n%b%b%b%b" % (
        request_id, node, _waited(exchange), _promised(exchange), model, rate
    )  # fmt: skip


def _limits(rate: RateStatus) -> bytes:
    """Return how its key stands against its limits, as OpenAI's clients read it."""
    block = b""
    if rate.limit_requests:
        block = (
            b"x-ratelimit-limit-requests: %d\r\nx-ratelimit-remaining-requests: %d\r\n"
            b"x-ratelimit-reset-requests: %b\r\n"
            % (rate.limit_requests, rate.remaining_requests, _duration(rate.reset_requests_s))
        )
    if rate.limit_tokens:
        block += (
            b"x-ratelimit-limit-tokens: %d\r\nx-ratelimit-remaining-tokens: %d\r\n"
            b"x-ratelimit-reset-tokens: %b\r\n"
            % (rate.limit_tokens, rate.remaining_tokens, _duration(rate.reset_tokens_s))
        )
    return block


def _duration(seconds: float) -> bytes:
    """Write a time as OpenAI does.

    >>> _duration(0.2), _duration(61.0), _duration(7200.0)
    (b'1s', b'1m1s', b'2h0m0s')
    """
    minutes, rest = divmod(ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return b"%dh%dm%ds" % (hours, minutes, rest)
    return b"%dm%ds" % (minutes, rest) if minutes else b"%ds" % rest


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
