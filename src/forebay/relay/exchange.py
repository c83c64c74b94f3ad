"""One request on its way: waiting, running, answered; and every way that this can go wrong.

Whatever happens, an exchange ends exactly once (`_end`), and only then is its ticket given up: by
`Finished`, by `Cancelled`, or because the core ended it itself. Whoever calls one from a callback
(the connection to the node, a deadline, the relay) calls `answer_is_lost` where that raises. So
every lease comes back, on every path, bugs included.

Until the first byte of an answer reaches the sink, a node that dies costs an attempt, not the
request. Small unary answers and, with `retry.stream = "buffer"`, streams are held until whole.
A whole 5xx may be the request's own fault: it is tried once more, and kept in case that nothing
better comes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from forebay.core import Cancelled, Finished, Returned
from forebay.errors import BackendFailed
from forebay.relay.absence import route_missing, what_is_absent
from forebay.relay.answer import BUFFER_BYTES, HOLD_BYTES, Answer, rest_s
from forebay.relay.passage import Passage, place_of
from forebay.relay.problem import WORDS, Problem, node_failed
from forebay.relay.retries import AFTER_ANSWER
from forebay.wire.client import Listener

if TYPE_CHECKING:
    from forebay.core import Describe, Route, Wait
    from forebay.nodes.backend import Backend
    from forebay.relay.call import Call
    from forebay.relay.relay import Relay
    from forebay.relay.sink import Sink
    from forebay.wire.client import NodeConnection, Opening
    from forebay.wire.heads import AnswerHead

logger = logging.getLogger("forebay.relay")


class Exchange(Passage, Listener):
    """A request and its sink."""

    __slots__ = (
        "_answer", "_backend", "_connection", "_failures", "_missing", "_opening",
        "_paused", "_refusal", "_relay", "_sink", "committed", "ended", "flowing", "revoked",
    )  # fmt: skip

    def __init__(self, call: Call, sink: Sink, relay: Relay, now_s: float) -> None:
        super().__init__(call, now_s)
        self._sink = sink
        self._relay = relay
        self.committed = False  # the sink has been told 200, before any answer
        self.flowing = False  # answer bytes have reached the sink
        self.ended = False
        self.revoked = ""  # why it must not start again
        self._backend: Backend | None = None
        self._connection: NodeConnection | None = None
        self._opening: Opening | None = None
        self._answer: Answer | None = None
        self._failures = 0  # attempts that failed; a node that was merely busy is none
        self._missing: tuple[str, ...] = ()  # nodes that turned out not to have the model
        self._refusal: Answer | None = None  # a whole 5xx, while it is tried once more
        self._paused = False  # the sink cannot keep up

    @property
    def answer_bytes(self) -> int:
        """How much has been answered."""
        return self._answer.size_bytes if self._answer is not None else 0

    # -- for the sink

    def pause(self) -> None:
        """Stop reading from the node: the sink cannot keep up."""
        self._paused = True
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        """Go on reading."""
        self._paused = False
        if self._connection is not None:
            if self.call.stream:
                self._relay.gaps.add(self)
            self._connection.resume()

    def cancel(self) -> None:
        """Give it up: nobody wants the answer any more. Never waits; may be called twice."""
        if not self.ended:
            try:
                self._count_tokens()
                self._end("cancelled")
            finally:
                self._relay.post(Cancelled(self.call.id, self.prompt_tokens, self.output_tokens))

    # -- for the relay: what the core decided

    def wait(self, action: Wait) -> None:
        """Stand in line."""
        self.stand(action, self._relay.now_s())
        self._sink.waits(self)
        if self.call.stream and self.call.family.comments:
            self._relay.keepalive.add(self)

    def run(self, action: Route) -> None:
        """Ask the node that the core chose."""
        relay = self._relay
        self.start(action)
        if self.queued or self.attempt > 1:
            self.started_s = relay.now_s()  # else it starts as it comes, and no clock is asked
            self.note(f"started on {action.node}", self.started_s)
            self._sink.starts(self)
            if self.ended:  # it was given up in this instant
                return
            if self.committed:
                self._comment(f": started node={self.node} waited_ms={int(self.waited_s * 1000)}")
        relay.runs.add_at(self, self.started_s)
        if self.call.stream:
            relay.first_bytes.add(self)
        self._backend = backend = relay.nodes.get(action.node)
        if backend is None:
            self._attempt_failed("removed", "the node has been removed")
            return
        connection = backend.pool.take()
        if connection is None:
            self._opening = backend.pool.open(self._opened)
        else:
            self._send(connection)

    def refuse(self, problem: Problem, *, comes_again: bool = False) -> None:
        """End without an answer: the core has given up the ticket already."""
        if self.ended:
            return
        if self._refusal is not None and not comes_again and problem.code not in WORDS:
            self._conclude(self._refusal)  # better than that there was no time to try it again
        else:
            self._end("" if comes_again else problem.code)
            self.node = self.last_node  # of one that came back: it was relayed before
            self._sink.failed(problem, self)

    def abort(self, problem: Problem) -> None:
        """Stop it while it runs, because someone else wants it gone, and say why."""
        if not self.ended:
            try:
                self._stop(problem)
            finally:
                self._relay.post(Cancelled(self.call.id, self.prompt_tokens, self.output_tokens))

    def describe(self, action: Describe) -> None:
        """Tell a waiting stream where it stands; its first comment commits the answer to 200."""
        if self.ended or self.flowing:
            return
        if action.position is not None:
            self._comment(place_of(action))
        elif self.committed:  # it runs, and the way to the client must not fall asleep
            self._comment(": running")

    # -- from the connection to the node

    def _opened(self, result: NodeConnection | BackendFailed) -> None:
        self._opening = None
        try:
            if isinstance(result, BackendFailed):
                self._attempt_failed("connect", str(result))
            else:
                self._send(result)
        except Exception:
            logger.exception("sending a request failed")
            self.answer_is_lost()

    def _send(self, connection: NodeConnection) -> None:
        backend, call, self._connection = self._backend, self.call, connection
        assert backend is not None
        body = self._relay.body_for(self)
        size = len(body) if isinstance(body, bytes) else sum(map(len, body))
        head = backend.request(call.target, call.header_block, call.credentials, size)
        connection.send(head, body, self)
        if self._paused:
            connection.pause()

    def answer_begins(self, head: AnswerHead, length: bytes | None) -> None:
        """Look at the head; nothing is passed on before the first byte of the body."""
        self._answer = Answer(head, length, self.call.family, asked=self.call.stream)
        if head.status >= 300:
            self._take_refusal(head)

    def _take_refusal(self, head: AnswerHead) -> None:
        relay, status = self._relay, head.status
        if status == 503 and self._has_words(head):
            relay.gaps.add(self)  # it may be loading: its words are on their way, or ought to be
        elif status in (429, 503):
            self._node_is_busy(head.get(b"retry-after"))
        elif status in (401, 403):
            self._fail_now("refused", f"the node refused our credentials ({status})")
        elif status < 400:
            self._fail_now("refused", f"the node answered with a redirect ({status})")
        elif (guard := head.get(b"x-forebay-guard")) is not None:  # not the words of its server
            self._take_guards_word(guard)

    def _take_guards_word(self, code: bytes) -> None:
        cause = "the node's guard has lost the server behind it"
        if code == b"backend_closed":
            self._drop_connection()
            self._answer = None
            self._send_again(cause)
        else:
            self._attempt_failed("lost", cause)

    def answer_goes_on(self, data: bytes) -> None:
        """Pass a piece on, or hold it while the request could still run elsewhere."""
        answer, relay = self._answer, self._relay
        assert answer is not None
        answer.size_bytes += len(data)
        if answer.size_bytes > relay.answer_bytes_max:
            self._break("too_large", "the answer is larger than queue.answer_max_bytes")
        elif answer.is_stream:
            self._take_stream(answer, data)
        elif self.flowing:
            answer.look_at(data)
            self._sink.chunk(data)
        else:
            relay.first_bytes.discard(self)
            answer.hold(data)
            if answer.status == 503:
                self._node_is_unavailable(answer)
            elif answer.held_bytes > HOLD_BYTES or answer.head.is_media:
                self._flow(answer)

    def _take_stream(self, answer: Answer, data: bytes) -> None:
        relay = self._relay
        relay.gaps.add(self)
        answer.look_at(data)
        if self.flowing:
            self._sink.chunk(data)
            return
        if not answer.held_bytes:
            relay.first_bytes.discard(self)
            self.first_byte_s = relay.now_s()
            if not answer.begins_as_a_stream(data):
                self._attempt_failed("garbage", "the node's answer is not a stream of events")
                return
        answer.hold(data)
        if not relay.buffers_streams or answer.held_bytes > BUFFER_BYTES:
            self._flow(answer)

    def answer_ends(self) -> None:
        """Finish: the answer is whole."""
        connection, self._connection = self._connection, None
        answer = self._answer
        assert answer is not None
        if answer.is_cut_off():
            self._break("lost", "the connection was lost")
            return
        if not self.flowing and answer.is_garbage() and not self._may_be_anything():
            if connection is not None:
                connection.spoil()
            self._attempt_failed("garbage", "the node's answer is empty or not JSON")
        elif (answer.status >= 404 or self._hides_absences()) and self._is_absent(answer):
            pass
        elif not answer.is_server_error() or not self._try_once_more(answer):
            self._conclude(answer)

    def _hides_absences(self) -> bool:
        return self._backend is not None and self._backend.hides_absences

    def _is_absent(self, answer: Answer) -> bool:
        """Deal with a node that has not what is asked for; False where its answer says it best."""
        call, relay = self.call, self._relay
        if self.flowing:
            return False
        body = b"".join(answer.held)
        is_rare = call.route in call.family.unary_routes
        absent = what_is_absent(answer.status, body, self.model, is_rare=is_rare)
        if not absent:
            return False
        self._missing += (self.node,)
        if absent == "model":
            relay.nodes.refresh(self.node)
            if not relay.others_have(self, self._missing):
                return False
            self._attempt_failed("missing", "the node does not have the model")
            return True
        relay.nodes.learn_absence(self.node, call.route, self.model)
        if relay.others_have(self, self._missing):  # no failure: it costs no attempt
            relay.stop_clocks(self)
            self.note(f"{self.node} does not have the route", relay.now_s())
            self._go_back(exclude=True)
        else:
            self._fail(route_missing(call.route, self.node, answer.status, body))
        return True

    def _may_be_anything(self) -> bool:
        """Say whether an answer need not be JSON: a transcript may be plain text, or empty."""
        return self.call.route in self.call.family.media_routes

    def _try_once_more(self, answer: Answer) -> bool:
        """Go back with a whole 5xx, once: elsewhere if possible, else to the same node."""
        relay = self._relay
        self._blame("status")
        self.note(f"{self.node} answered {answer.status}", relay.now_s())
        again = self._refusal is not None or self.flowing
        if again or not relay.may_retry(self._failures + 1, AFTER_ANSWER):
            return False
        relay.stop_clocks(self)
        self._failures += 1
        self._refusal, answer.node = answer, self.node
        self._go_back(exclude=relay.others_have(self, (self.node,)))
        return True

    def _conclude(self, answer: Answer) -> None:
        """End with a whole answer, whatever it says; the slot comes back."""
        self._answer, self.node = answer, answer.node or self.node
        if not self.flowing:
            self._flow(answer)
            if self.ended:
                return
        ok = answer.status < 400
        try:
            self._count_tokens()
            self._end("served" if ok else "passed_through")
            if self._backend is not None and not answer.is_server_error():
                self._backend.answered(self.model, ok=ok)
            self._sink.end()
        finally:  # whatever fails on our side, the slot comes back
            self._relay.post(Finished(self.call.id, ok, self.prompt_tokens, self.output_tokens))

    def answer_breaks(self, cause: str, *, stale: bool) -> None:
        """Lose the node in the middle: try again where that goes unseen, else say so."""
        self._connection = None
        if stale:
            self._send_again(cause)
        else:
            self._break("lost", cause)

    def _send_again(self, cause: str) -> None:
        """Use another connection to the same node, where it closed one that had been kept.

        It may have read the request before it did: that is an attempt. It has not failed: servers
        may close what they keep at any time (RFC 9112, 9.3.1).
        """
        relay, backend = self._relay, self._backend
        assert backend is not None
        self._failures += 1
        if relay.may_send_again(self._failures):
            self.note(f"{self.node} closed its connection; sent again", relay.now_s())
            self._opening = backend.pool.open(self._opened)
        else:
            relay.nodes.refresh(self.node)  # it may be gone for good, and nobody says so
            self._give_up(cause)

    def answer_is_lost(self) -> None:
        """End after a bug of ours, whatever the state: the slot comes back. Never raises."""
        try:
            self.abort(Problem("internal_error", "an internal error; the log has the details"))
        except Exception:
            logger.exception("ending a request failed")

    # -- what becomes of it

    def is_held_back(self) -> bool:
        """Say whether it is we who do not listen to the node."""
        return self._connection is not None and self._connection.paused

    def time_out(self, code: str, message: str) -> None:
        """Give up on a node that takes too long."""
        self._blame(code)
        self._fail(Problem(code, message, details={"node": self.node}))

    def _blame(self, kind: str) -> None:
        if self._backend is not None:
            self._backend.failed(kind, self.model, self.call.user)

    def _node_is_busy(self, retry_after: bytes | None) -> None:
        """Keep the place in line: a node that says it is full has not failed."""
        relay = self._relay
        self._drop_connection()
        relay.stop_clocks(self)
        self.note(f"{self.node} was busy", relay.now_s())
        relay.rest_node(self.node, self._backend, rest_s(retry_after))
        self._go_back(exclude=False)

    def _has_words(self, head: AnswerHead) -> bool:
        """Say whether a 503 may say more than that the node is busy: those say for how long."""
        length = self._answer.length if self._answer is not None else None
        return head.get(b"retry-after") is None and length not in (None, b"0")

    def _node_is_unavailable(self, answer: Answer) -> None:
        """Keep the place in line, for a node that is busy or loads its model."""
        if not answer.says_loading():
            self._node_is_busy(None)
            return
        relay, backend = self._relay, self._backend
        self._drop_connection()
        relay.stop_clocks(self)
        self.note(f"{self.node} is loading", relay.now_s())
        if backend is not None and relay.nodes.get(self.node) is backend:
            backend.loads()
        self._go_back(exclude=False)

    def _attempt_failed(self, kind: str, cause: str) -> None:
        """Try again elsewhere, at the old place, as far as attempts and the budget allow."""
        if self.ended:
            return
        relay = self._relay
        self._drop_connection()
        self._blame(kind)
        relay.stop_clocks(self)
        self.note(f"{self.node} failed: {cause}", self._relay.now_s())
        self._failures += 1
        if relay.may_wait_for(self, self._backend, self._failures) or relay.may_retry(
            self._failures
        ):
            self._go_back(exclude=True)
        else:
            self._give_up(cause)

    def _give_up(self, cause: str) -> None:
        """End after the last attempt: with what a node has answered, if one has, else without."""
        if self._refusal is not None:
            self._conclude(self._refusal)
        else:
            self._fail(node_failed(cause, self.node, self._failures))

    def _go_back(self, *, exclude: bool) -> None:
        """Return to the old place in line, unless it must not run any more."""
        if self.revoked:
            self._fail(Problem(self.revoked, WORDS.get(self.revoked, self.revoked)))
            return
        self.node, self.last_node = "", self.node
        self._answer, self.first_byte_s = None, 0.0
        self.stands_since_s = self._relay.now_s()
        self._relay.post(Returned(self.call.id, exclude=exclude))
        if self.ended:
            return
        if not self.node and not self.queued:  # else it runs already, or was told its place before
            self.queued = True
            self._relay.inspect(self.call.id, self._stand_again)
        if self.call.stream and self.call.family.comments:
            self._relay.keepalive.add(self)

    def _stand_again(self, action: Describe) -> None:
        """Take note of the place of one that had started without a wait, and came back."""
        if action.position is not None and self.position is None and not self.ended:
            self.position, self.estimate_s = action.position, action.estimate_s
            self._sink.waits(self)

    def _fail_now(self, kind: str, cause: str) -> None:
        """Give up without trying elsewhere: it would not help, be wrong, or be seen."""
        self._blame(kind)
        self._fail(node_failed(cause, self.node, self._failures + 1))

    def _fail(self, problem: Problem) -> None:
        """End because of the node; the slot comes back."""
        if not self.ended:
            try:
                self._stop(problem)
            finally:
                self._relay.post(
                    Finished(self.call.id, False, self.prompt_tokens, self.output_tokens)
                )

    def _stop(self, problem: Problem) -> None:
        self._count_tokens()
        self._end(problem.code)
        self._sink.failed(problem, self)

    def _break(self, kind: str, cause: str) -> None:
        if self.flowing:
            self._fail_now(kind, cause)
        else:
            self._attempt_failed(kind, cause)

    def _flow(self, answer: Answer) -> None:
        """Let the answer reach the sink, from its head on."""
        relay = self._relay
        self.flowing = True
        self.call.drop_body()
        self.status = answer.status
        if not self.first_byte_s:
            self.first_byte_s = relay.now_s()
        if self.call.stream:
            relay.keepalive.discard(self)
        if answer.is_stream and self._backend is not None:
            self._backend.began(self.model)
        held = answer.release()
        if not self.committed:
            self._sink.head(answer.head, answer.length, self)
        elif not answer.is_stream:
            self._fail(node_failed(answer.cause(held), self.node, self.attempt))
            return
        for data in held:
            self._sink.chunk(data)

    def _comment(self, text: str) -> None:
        if not self.committed:
            self.committed = True
            self.status = 200
            self._sink.head(self.call.family.stream_head, None, self)
        if not self.ended:
            self._sink.chunk(text.encode() + b"\n\n")

    def _count_tokens(self) -> None:
        """Learn the real cost."""
        if self._answer is None:
            return
        try:
            self.prompt_tokens, self.output_tokens = self._answer.tokens()
        except Exception:  # nothing may keep a request from its end
            logger.exception("counting tokens failed")

    def _drop_connection(self) -> None:
        """Close the way to the node at once: that frees what it holds there."""
        connection, self._connection = self._connection, None
        opening, self._opening = self._opening, None
        if connection is not None:
            connection.abort()
        if opening is not None:
            opening.cancel()

    def _end(self, outcome: str) -> None:
        self.ended = True
        try:
            self._drop_connection()
        finally:
            self._relay.forget(self, outcome)
