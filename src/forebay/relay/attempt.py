"""One try of a request on one node: the way there, what comes back, and what that means.

It ends when its answer is whole, when the node turns out to be of no use for the request (it has
failed, is busy or loading, or has not what is asked for), or with the request. What becomes of the
request then is for the exchange to decide.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from forebay.core import Finished
from forebay.errors import BackendFailed
from forebay.nodes.adapters.report import says_loading
from forebay.nodes.health import TIMEOUTS
from forebay.relay.answer import (
    BUFFER_BYTES,
    HOLD_BYTES,
    PASSED_BYTES,
    Answer,
    route_missing,
    what_is_absent,
)
from forebay.relay.problem import Problem, node_failed
from forebay.relay.retries import AFTER_ANSWER
from forebay.wire.client import AnswerListener

if TYPE_CHECKING:
    from forebay.core.events import WhyFailed
    from forebay.nodes.backend import Backend
    from forebay.relay.exchange import Exchange
    from forebay.relay.relay import Relay
    from forebay.wire.client import NodeConnection
    from forebay.wire.heads import AnswerHead
    from forebay.wire.pool import PendingConnect

logger = logging.getLogger("forebay.relay")


class Attempt(AnswerListener):
    """An exchange on its node; a slot there is leased for it."""

    __slots__ = (
        "_opening", "_relay", "backend", "connection", "exchange", "first_byte_s", "heard_s",
        "started_s", "stream_limits", "strike", "why",
    )  # fmt: skip

    def __init__(
        self, exchange: Exchange, relay: Relay, backend: Backend | None, started_s: float
    ) -> None:
        self.exchange = exchange
        self._relay = relay
        self.backend = backend
        """None where the node has been removed since it was chosen."""
        self.started_s = started_s
        self.first_byte_s = 0.0
        """Of a stream, or when the first byte of another answer went to the sink; 0 before."""
        self.heard_s = 0.0
        """When the last piece of a stream came; 0 where none did."""
        self.stream_limits = exchange.call.arrival.stream
        """Whether limits may be set beside that on the whole run."""
        self.strike = False
        """Whether it has failed, and has itself to blame."""
        self.why: WhyFailed = ""
        """How it has failed."""
        self.connection: NodeConnection | None = None
        self._opening: PendingConnect | None = None

    # -- for the exchange

    def start(self) -> None:
        """Send the request, on a connection that idles or a new one."""
        relay, backend = self._relay, self.backend
        relay.runs.add(self, self.started_s)
        if self.stream_limits:
            relay.first_bytes.add(self)
        if backend is None:
            self._fail("removed", "the node has been removed")
            return
        connection = backend.pool.take()
        if connection is None:
            self._opening = backend.pool.open(self._opened)
        else:
            self._send(connection)

    def pause(self) -> None:
        """Read no more for now: a node that is held back does not go silent."""
        if self.connection is not None:
            self._relay.gaps.discard(self)
            self.connection.pause()

    def resume(self) -> None:
        if self.connection is not None:
            if self.stream_limits:
                self._relay.gaps.add(self)
            self.connection.resume()

    def close(self, *, ends: bool = False) -> None:
        """Close the way to the node at once, which frees what it holds there; stop all clocks."""
        if self.connection is not None or self._opening is not None:
            self._drop_connection(ends=ends)
        relay = self._relay
        relay.runs.discard(self)
        if self.stream_limits:
            relay.gaps.discard(self)
            relay.first_bytes.discard(self)

    def note_first_byte(self, answer: Answer) -> None:
        """Know that an answer has begun to reach the sink; its node has not lost the request."""
        if not self.first_byte_s:
            self.first_byte_s = self._relay.now_s()
        backend = self.backend
        if backend is not None:
            if answer.head.status < 500:
                backend.health.answered_s = self.first_byte_s
            if answer.is_stream:
                backend.began(self.exchange.model)

    def finished(self, *, ok: bool) -> Finished:
        """Return what gives the slot back, with the times that are known."""
        exchange = self.exchange
        answer = exchange.answer
        first_byte_s: float | None = None
        ran_s: float | None = None
        if self.first_byte_s:
            first_byte_s = self.first_byte_s - self.started_s
            ran_s = self.heard_s - self.started_s if self.heard_s else first_byte_s
        is_stream = answer is not None and answer.is_stream  # a whole answer has no first byte
        return Finished(
            exchange.id, ok, exchange.prompt_tokens, exchange.output_tokens, self.strike,
            first_byte_s if is_stream else None, ran_s, self.why,
        )  # fmt: skip

    def is_alive(self) -> bool:
        """Say whether something will call it: its connect, or its connection to the node."""
        if self._opening is not None:
            return self.backend is not None and self._opening in self.backend.pool.openings
        return self.connection is not None and self.connection.carries(self)

    def time_out(self, code: str, message: str) -> None:
        """End the request because a limit of this attempt is over."""
        self._blame(code)
        exchange = self.exchange
        exchange.fail(Problem(code, message, details={"node": exchange.node}))

    # -- from the connection to the node

    def _opened(self, result: NodeConnection | BackendFailed) -> None:
        self._opening = None
        try:
            if isinstance(result, BackendFailed):
                self._fail("connect", str(result))
            else:
                self._send(result)
        except Exception:
            logger.exception("sending a request failed")
            self.answer_is_lost()

    def _send(self, connection: NodeConnection) -> None:
        backend, exchange, self.connection = self.backend, self.exchange, connection
        assert backend is not None
        call = exchange.call
        body = call.body if exchange.model == call.asked_model else call.body_for(exchange.model)
        size = len(body) if isinstance(body, bytes) else sum(map(len, body))
        head = backend.request(call.target, call.header_block, call.credentials, size, call.arrival)
        connection.send(head, body, self)
        if exchange.paused:
            connection.pause()

    def answer_begins(self, head: AnswerHead, length: bytes | None) -> None:
        """Look at the head; nothing is passed on before the first byte of the body."""
        exchange, is_stream = self.exchange, False
        if head.status == 200:  # asked for or not, the answer says whether it is a stream
            call, kind = exchange.call, head.content_type
            is_stream = kind.startswith(call.family.stream_type) or (
                call.arrival.stream and b"json" not in kind
            )
        exchange.answer = Answer(head, length, exchange.node, is_stream)
        if head.status >= 300:
            self._take_refusal(head, length)

    def _take_refusal(self, head: AnswerHead, length: bytes | None) -> None:
        status, retry_after = head.status, head.get(b"retry-after")
        if status == 503 and retry_after is None and length not in (None, b"0"):
            self.stream_limits = True
            self._relay.gaps.add(self)  # it may be loading: its words are on their way
        elif status in (429, 503):
            self._node_is_unavailable(retry_after)
        elif status in (401, 403):
            self._fail_now("refused", f"the node refused our credentials ({status})")
        elif status < 400:
            self._fail_now("refused", f"the node answered with a redirect ({status})")
        elif (guards_word := head.get(b"x-forebay-guard")) is not None:
            cause = "the node's guard has lost the server behind it"
            if guards_word == b"backend_closed":
                self._drop_connection()
                self.exchange.answer = None
                self._send_again(cause)
            else:
                self._fail("lost", cause)

    def answer_goes_on(self, data: bytes, framed: bytes = b"") -> None:
        """Pass a piece on, or hold it while the request could still run elsewhere."""
        exchange, relay = self.exchange, self._relay
        answer = exchange.answer
        assert answer is not None
        answer.size_bytes = size = answer.size_bytes + len(data)
        answer.pieces.append(data)
        if size > relay.answer_bytes_max:
            self._break("too_large", "the answer is larger than queue.answer_max_bytes")
            return
        if answer.is_stream:
            self.heard_s = relay.now_s()
        if not exchange.flowing:
            self._hold(answer, data)
            return
        if size > answer.forgotten_bytes + PASSED_BYTES:
            answer.forget_passed(exchange.call.family.event_mark)
        exchange.sink.chunk(data, framed)

    def _hold(self, answer: Answer, data: bytes) -> None:
        """Keep what has come for now, unless nothing can go wrong any more that matters."""
        exchange, relay = self.exchange, self._relay
        if answer.is_stream and len(answer.pieces) == 1:
            self.stream_limits = True
            relay.gaps.add(self)
            relay.first_bytes.discard(self)
            self.first_byte_s = self.heard_s
            if not exchange.call.family.may_begin_with(data):
                self._fail("garbage", "the node's answer is not a stream of events")
                return
        elif self.stream_limits:
            relay.first_bytes.discard(self)
        if answer.head.status == 503:
            self._node_is_unavailable(None)
        elif (
            answer.size_bytes > (BUFFER_BYTES if relay.buffers_streams else 0)
            if answer.is_stream
            else answer.size_bytes > HOLD_BYTES or answer.head.is_media
        ):
            exchange.call.drop_body()
            exchange.flow(answer)

    def answer_ends(self) -> None:
        """Judge the whole answer: it ends the request, unless another may do better."""
        connection, self.connection = self.connection, None
        exchange, backend = self.exchange, self.backend
        answer = exchange.answer
        assert answer is not None
        status = answer.head.status
        if answer.is_stream and not answer.head.framed and not answer.ends_a_line():
            self._break("lost", "the connection was lost")  # that ends such a stream, in mid-event
        elif not (exchange.flowing or status >= 300 or answer.makes_sense(exchange.call)):
            if connection is not None:
                connection.spoil()
            self._fail("garbage", "the node's answer is empty or not JSON")
        elif (
            status >= 404 or (backend is not None and backend.hides_absences)
        ) and self._is_absent(answer):
            pass
        elif status < 500 or not self._try_once_more(answer):
            exchange.conclude(answer)

    def _is_absent(self, answer: Answer) -> bool:
        """Deal with a node that has not what is asked for; False where its answer says it best."""
        exchange, relay = self.exchange, self._relay
        if exchange.flowing:
            return False
        call, node = exchange.call, exchange.node
        status, body = answer.head.status, b"".join(answer.pieces)
        is_rare = call.route in call.family.unary_routes
        absent = what_is_absent(status, body, exchange.model, is_rare=is_rare)
        if not absent:
            return False
        exchange.missing += (node,)
        if absent == "model":
            relay.nodes.refresh(node)
            if not relay.others_have(exchange, exchange.missing):
                return False
            self._fail("missing", "the node does not have the model")
            return True
        relay.nodes.learn_absence(node, call.route, exchange.model)
        if relay.others_have(exchange, exchange.missing):  # no failure: it costs no attempt
            self._leave("does not have the route")
            exchange.go_back(exclude=True)
        else:
            exchange.fail(route_missing(call.route, node, status, body))
        return True

    def _try_once_more(self, answer: Answer) -> bool:
        """Go back with a whole 5xx, once: elsewhere if possible, else to the same node."""
        exchange, relay = self.exchange, self._relay
        if answer.head.status == 501:  # a plain refusal
            return False
        self._blame("status")
        exchange.note(f"{exchange.node} answered {answer.head.status}", relay.now_s())
        failures = exchange.failures + 1
        if (
            exchange.kept
            or exchange.flowing
            or not relay.retries.may_retry(failures, relay.now_s(), AFTER_ANSWER)
        ):
            return False
        self.close()
        exchange.failures = failures
        exchange.kept = answer
        exchange.go_back(exclude=relay.others_have(exchange, (exchange.node,)))
        return True

    def answer_breaks(self, cause: str, *, stale: bool) -> None:
        """Lose the node in the middle: try again where that goes unseen, else say so."""
        self.connection = None
        if stale:
            self._send_again(cause)
        else:
            self._break("lost", cause)

    def _send_again(self, cause: str) -> None:
        """Use another connection to the same node, where it closed one that had been kept.

        It may have read the request before: that is an attempt, but no failure (RFC 9112, 9.3.1).
        """
        exchange, relay, backend = self.exchange, self._relay, self.backend
        assert backend is not None
        exchange.failures += 1
        if relay.retries.may_send_again(exchange.failures, relay.now_s()):
            exchange.note(f"{exchange.node} closed its connection; sent again", relay.now_s())
            self._opening = backend.pool.open(self._opened)
        else:
            relay.nodes.refresh(exchange.node)  # it may be gone for good, and nobody says so
            exchange.give_up(cause)

    def answer_is_lost(self) -> None:
        """End the request after a bug of ours, whatever its state. Never raises."""
        self.exchange.is_lost()

    # -- what goes wrong

    def _node_is_unavailable(self, retry_after: bytes | None) -> None:
        """Keep the place in the queue: a node that is full, or loads its model, has not failed."""
        exchange, relay, backend = self.exchange, self._relay, self.backend
        answer = exchange.answer
        assert backend is not None
        assert answer is not None
        if says_loading(b"".join(answer.pieces)):
            self._leave("is loading")
            if relay.nodes.get(exchange.node) is backend:
                backend.loads()
        else:
            self._leave("was busy")
            relay.rest_node(backend, exchange.model, retry_after)
        self.why = "refused"
        exchange.go_back(exclude=False)

    def _break(self, kind: str, cause: str) -> None:
        (self._fail_now if self.exchange.flowing else self._fail)(kind, cause)

    def _fail(self, kind: str, cause: str) -> None:
        """Leave a node that has failed; the request may run elsewhere."""
        exchange = self.exchange
        if not exchange.ended:
            self._leave(f"failed: {cause}")
            self._blame(kind)
            exchange.retry(self.backend, cause)

    def _fail_now(self, kind: str, cause: str) -> None:
        """End the request: to try it elsewhere would not help, be wrong, or be seen."""
        exchange = self.exchange
        self._blame(kind)
        exchange.fail(node_failed(cause, exchange.node, exchange.failures + 1))

    def _blame(self, kind: str) -> None:
        self.why = "timed_out" if kind in TIMEOUTS else "failed"
        if self.backend is not None:
            exchange = self.exchange
            user = exchange.call.arrival.user
            self.strike = self.backend.failed(kind, exchange.model, user, self.started_s)

    def _leave(self, why: str) -> None:
        self.close()
        exchange = self.exchange
        exchange.note(f"{exchange.node} {why}", self._relay.now_s())

    def _drop_connection(self, *, ends: bool = False) -> None:
        connection, self.connection = self.connection, None
        opening, self._opening = self._opening, None
        if connection is not None:
            connection.abort()
            if ends and self.backend is not None:
                self.backend.broken_off()
        if opening is not None:
            opening.cancel()
