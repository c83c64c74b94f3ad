"""One request on its way: waiting, running, answered; and every way that this can go wrong.

Whatever happens, an exchange ends exactly once (`_end`), and only then is its ticket given up: by
`Finished`, by `Cancelled`, or because the core ended it itself. Who calls one from a callback calls
`answer_is_lost` where that raises. So every lease comes back on every path, bugs included.

Until the first byte of an answer reaches the sink, a failed attempt is retried. Small unary answers
and, with `retry.stream = "buffer"`, streams are held back until they are whole. A whole 5xx may be
the request's own fault: it is tried once more, and kept in case that nothing better comes.
"""

from __future__ import annotations

import logging
from math import ceil
from typing import TYPE_CHECKING

from forebay.core import Cancelled, Returned
from forebay.errors import BackendFailed
from forebay.nodes.adapters.report import says_loading
from forebay.nodes.health import TIMEOUTS
from forebay.relay.answer import (
    BUFFER_BYTES,
    HOLD_BYTES,
    PASSED_BYTES,
    STREAM_TAIL_BYTES,
    count_tokens,
    is_json,
    not_a_stream,
    route_missing,
    what_is_absent,
)
from forebay.relay.problem import WORDS, Problem, node_failed
from forebay.relay.retries import AFTER_ANSWER
from forebay.relay.service_times import finished, note_answer, note_first_byte
from forebay.wire.client import AnswerListener

if TYPE_CHECKING:
    from typing import TypeAlias

    from forebay.core import Describe, RateStatus, Route, Wait
    from forebay.core.events import WhyFailed
    from forebay.nodes.backend import Backend
    from forebay.relay.call import InferenceCall, Sink
    from forebay.relay.relay import Relay
    from forebay.wire.client import NodeConnection
    from forebay.wire.heads import AnswerHead
    from forebay.wire.pool import PendingConnect

    KeptAnswer: TypeAlias = tuple[AnswerHead, bytes | None, list[bytes], str]  # the last: its node

logger = logging.getLogger("forebay.relay")


class Exchange(AnswerListener):
    """A call, its sink, and what became of it so far."""

    __slots__ = (
        "_backend", "_connection", "_events", "_failures", "_forgotten_bytes", "_head", "_kept",
        "_length", "_missing", "_opening", "_paused", "_pieces", "_relay", "_sink", "answer_bytes",
        "arrived_s", "attempt", "call", "committed", "ended", "estimate_s", "first_byte_s",
        "flowing", "heard_s", "id", "is_stream", "last_node", "model", "node", "output_tokens",
        "position", "predicted_s", "prompt_tokens", "queued", "queued_since_s", "rate", "revoked",
        "started_s", "status", "stream_limits", "strike", "timeline", "waited_s", "waits_for",
        "why",
    )  # fmt: skip

    def __init__(self, call: InferenceCall, sink: Sink, relay: Relay, now_s: float) -> None:
        arrival = call.arrival
        self.call = call
        self.id = arrival.id
        self.model = arrival.model
        self._sink = sink
        self._relay = relay
        # what is told of it
        self.node = ""  # while it runs, and where it was answered
        self.last_node = ""  # where it ran before it went back to the queue
        self.attempt = 0
        self.queued = False
        self.waits_for = ""  # a `WaitReason`, if it was queued on arrival
        self.position: int | None = None
        self.estimate_s: float | None = None
        self.predicted_s: float | None = None
        self.rate: RateStatus | None = None  # of its key, where that has limits
        self.arrived_s = now_s
        self.waited_s = self.started_s = self.first_byte_s = 0.0
        self.queued_since_s = 0.0  # while it is
        self.status = 0  # of the answer that reached the sink
        self.prompt_tokens = self.output_tokens = -1
        self.timeline: list[tuple[float, str]] | None = None
        # its state
        self.committed = False  # the sink has been told 200, before any answer
        self.flowing = self.ended = False  # the first: answer bytes have reached the sink
        self.revoked = ""  # why it must not start again
        self.stream_limits = arrival.stream  # limits beside that on the whole run may be set
        self._paused = False  # the sink cannot keep up
        self._failures = 0  # attempts that failed; a node that was merely busy is none
        self._missing: tuple[str, ...] = ()  # nodes that turned out not to have the model
        self._kept: KeptAnswer | None = None  # a whole 5xx, while it is tried once more
        # the present attempt
        self._backend: Backend | None = None
        self.strike = False  # it has failed, and has itself to blame
        self.why: WhyFailed = ""  # how it has failed
        self._connection: NodeConnection | None = None
        self._opening: PendingConnect | None = None
        self._head: AnswerHead | None = None  # once the answer has begun
        self._length: bytes | None = None
        self.is_stream = False
        self._pieces: list[bytes] = []  # of the answer: all until it may reach the sink, then some
        self._events = self.answer_bytes = self._forgotten_bytes = 0
        self.heard_s = 0.0  # when the last piece of a stream came

    # -- for the sink

    def pause(self) -> None:
        """Stop reading from the node: the sink cannot keep up."""
        self._paused = True
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        self._paused = False
        if self._connection is not None:
            if self.call.arrival.stream:
                self._relay.gaps.add(self)
            self._connection.resume()

    def cancel(self) -> None:
        """Give it up: nobody wants the answer any more. Never waits; may be called twice."""
        if not self.ended:
            try:
                self._count_tokens()
                self._end("cancelled")
            finally:
                self._relay.post(Cancelled(self.id, self.prompt_tokens, self.output_tokens))

    # -- for the relay: what the core decided

    def wait(self, action: Wait) -> None:
        self.queued, self.waits_for, self.position = True, action.reason, action.position
        self.estimate_s, self.rate = action.estimate_s, action.rate
        self.queued_since_s = self._relay.now_s()
        self.note("queued", self.queued_since_s)
        self._sink.waits(self)
        if self.call.arrival.stream and self.call.family.comments:
            self._relay.keepalive.add(self)

    def run(self, action: Route) -> None:
        relay = self._relay
        self._backend = backend = relay.nodes.get(action.node)
        self.node = action.node if backend is None else backend.name
        self.attempt, self.waited_s = action.attempt, action.waited_s
        self.strike, self.why = False, ""
        self.queued = self.queued or self.waited_s > 0.0  # it may have had to return
        self.predicted_s, self.rate = action.predicted_s, action.rate
        if action.model:
            self.model = action.model
        if self.queued or self.attempt > 1:
            if not self._tell_start():
                return
        else:
            self.started_s = self.arrived_s  # without asking the clock again
        relay.runs.add(self, self.started_s)
        if self.call.arrival.stream:
            relay.first_bytes.add(self)
        if backend is None:
            self._attempt_failed("removed", "the node has been removed")
            return
        connection = backend.pool.take()
        if connection is None:
            self._opening = backend.pool.open(self._opened)
        else:
            self._send(connection)

    def _tell_start(self) -> bool:
        """Tell the sink that it has left the queue; False where it was given up in this instant."""
        self.started_s = self._relay.now_s()
        self.note(f"started on {self.node}", self.started_s)
        self._sink.starts(self)
        if self.committed and not self.ended:
            self._comment(f": started node={self.node} waited_ms={int(self.waited_s * 1000)}")
        return not self.ended

    def refuse(self, problem: Problem, *, comes_again: bool = False) -> None:
        """End without an answer: the core has given up the ticket already."""
        if self.ended:
            return
        if self._kept is not None and not comes_again and problem.code not in WORDS:
            self._conclude_with(self._kept)  # better than that there was no time to try it again
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
                self._relay.post(Cancelled(self.id, self.prompt_tokens, self.output_tokens))

    def describe(self, action: Describe) -> None:
        """Tell a waiting stream its place; its first comment commits the answer to 200."""
        if self.ended or self.flowing:
            return
        if action.position is not None:
            eta = "" if action.p50_s is None else f" eta={ceil(action.p50_s)}"
            self._comment(f": queued position={action.position}{eta}")
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
        body = call.body if self.model == call.asked_model else call.body_for(self.model)
        size = len(body) if isinstance(body, bytes) else sum(map(len, body))
        head = backend.request(call.target, call.header_block, call.credentials, size, call.arrival)
        connection.send(head, body, self)
        if self._paused:
            connection.pause()

    def answer_begins(self, head: AnswerHead, length: bytes | None) -> None:
        """Look at the head; nothing is passed on before the first byte of the body."""
        self._head, self._length = head, length
        if head.status == 200:  # asked for or not, the answer says whether it is a stream
            call, kind = self.call, head.content_type
            self.is_stream = kind.startswith(call.family.stream_type) or (
                call.arrival.stream and b"json" not in kind
            )
        elif head.status >= 300:
            self._take_refusal(head)

    def _take_refusal(self, head: AnswerHead) -> None:
        relay, status, retry_after = self._relay, head.status, head.get(b"retry-after")
        if status == 503 and retry_after is None and self._length not in (None, b"0"):
            self.stream_limits = True
            relay.gaps.add(self)  # it may be loading: its words are on their way, or ought to be
        elif status in (429, 503):
            self._node_is_unavailable(retry_after)
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
            self._drop_answer()
            self._send_again(cause)
        else:
            self._attempt_failed("lost", cause)

    def answer_goes_on(self, data: bytes, framed: bytes = b"") -> None:
        """Pass a piece on, or hold it while the request could still run elsewhere."""
        relay = self._relay
        self.answer_bytes += len(data)
        self._pieces.append(data)
        if self.answer_bytes > relay.answer_bytes_max:
            self._break("too_large", "the answer is larger than queue.answer_max_bytes")
            return
        if self.is_stream:
            self.heard_s = relay.now_s()
        if not self.flowing:
            self._hold(data)
            return
        if self.answer_bytes > self._forgotten_bytes + PASSED_BYTES:
            self._forget_passed()
        self._sink.chunk(data, framed)

    def _forget_passed(self) -> None:
        """Keep but the end of what has been passed on, and the number of events before it."""
        passed, mark = b"".join(self._pieces), self.call.family.event_mark
        cut = max(0, len(passed) - STREAM_TAIL_BYTES)
        self._events += passed.count(mark, 0, cut + len(mark) - 1)  # those that begin before it
        self._pieces = [passed[cut:]]
        self._forgotten_bytes += cut

    def _hold(self, data: bytes) -> None:
        """Keep what has come for now, unless nothing can go wrong any more that matters."""
        head, relay = self._head, self._relay
        assert head is not None
        if self.is_stream and len(self._pieces) == 1:
            self.stream_limits = True
            relay.gaps.add(self)
            relay.first_bytes.discard(self)
            self.first_byte_s = self.heard_s
            if not self.call.family.may_begin_with(data):
                self._attempt_failed("garbage", "the node's answer is not a stream of events")
                return
        elif self.stream_limits:
            relay.first_bytes.discard(self)
        if head.status == 503:
            self._node_is_unavailable(None)
        elif (
            self.answer_bytes > (BUFFER_BYTES if relay.buffers_streams else 0)
            if self.is_stream
            else self.answer_bytes > HOLD_BYTES or head.is_media
        ):
            self.call.drop_body()
            self._flow(head)

    def answer_ends(self) -> None:
        """Finish: the answer is whole."""
        connection, self._connection = self._connection, None
        head, backend, last = self._head, self._backend, b"".join(self._pieces[-1:])
        assert head is not None
        status = head.status
        if self.is_stream and not head.framed and not last.endswith(b"\n"):
            self._break("lost", "the connection was lost")  # that ends such a stream, in mid-event
        elif not (self.flowing or status >= 300 or self._makes_sense()):
            if connection is not None:
                connection.spoil()
            self._attempt_failed("garbage", "the node's answer is empty or not JSON")
        elif (
            status >= 404 or (backend is not None and backend.hides_absences)
        ) and self._is_absent(status):
            pass
        elif status < 500 or not self._try_once_more(head):
            self._conclude(head)

    def _makes_sense(self) -> bool:
        """Say whether a whole answer is neither empty nor, if it should be JSON, something else."""
        if self._pieces if self.is_stream else is_json(self._pieces):
            return True
        return self.call.route in self.call.family.media_routes  # a transcript may be plain text

    def _is_absent(self, status: int) -> bool:
        """Deal with a node that has not what is asked for; False where its answer says it best."""
        call, relay = self.call, self._relay
        if self.flowing:
            return False
        body = b"".join(self._pieces)
        is_rare = call.route in call.family.unary_routes
        absent = what_is_absent(status, body, self.model, is_rare=is_rare)
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
            self._leave_node("does not have the route")
            self._go_back(exclude=True)
        else:
            self._fail(route_missing(call.route, self.node, status, body))
        return True

    def _try_once_more(self, head: AnswerHead) -> bool:
        """Go back with a whole 5xx, once: elsewhere if possible, else to the same node."""
        relay = self._relay
        if head.status == 501:  # a plain refusal
            return False
        self._blame("status")
        self.note(f"{self.node} answered {head.status}", relay.now_s())
        if self._kept or self.flowing or not relay.may_retry(self._failures + 1, AFTER_ANSWER):
            return False
        relay.stop_clocks(self)
        self._failures += 1
        self._kept = (head, self._length, self._pieces, self.node)
        self._go_back(exclude=relay.others_have(self, (self.node,)))
        return True

    def _conclude_with(self, kept: KeptAnswer) -> None:
        """End with the answer of an earlier attempt."""
        self._drop_answer()
        head, self._length, self._pieces, self.node = kept
        self.answer_bytes = sum(map(len, self._pieces))
        self._conclude(head)

    def _conclude(self, head: AnswerHead) -> None:
        """End with a whole answer, whatever it says; the slot comes back."""
        if not self.flowing:
            self._flow(head)
            if self.ended:
                return
        ok = head.status < 400
        try:
            self._count_tokens(whole=True)
            self._end("served" if ok else "passed_through")
            note_answer(self, self._backend, head.status)
            self._sink.end()
        finally:  # whatever fails on our side, the slot comes back
            self._relay.post(finished(self, ok=ok))

    def answer_breaks(self, cause: str, *, stale: bool) -> None:
        """Lose the node in the middle: try again where that goes unseen, else say so."""
        self._connection = None
        if stale:
            self._send_again(cause)
        else:
            self._break("lost", cause)

    def _send_again(self, cause: str) -> None:
        """Use another connection to the same node, where it closed one that had been kept.

        It may have read the request before: that is an attempt, but no failure (RFC 9112, 9.3.1).
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
        return self._connection is not None and self._connection.paused

    def time_out(self, code: str, message: str) -> None:
        self._blame(code)
        self._fail(Problem(code, message, details={"node": self.node}))

    def note(self, what: str, now_s: float) -> None:
        """Remember when something happened, for whoever asks what became of this request."""
        if self.timeline is None:
            self.timeline = [(self.arrived_s, "arrived")]
        self.timeline.append((now_s, what))

    def _blame(self, kind: str) -> None:
        self.why = "timed_out" if kind in TIMEOUTS else "failed"
        if self._backend is not None:
            user = self.call.arrival.user
            self.strike = self._backend.failed(kind, self.model, user, self.started_s)

    def _leave_node(self, why: str) -> None:
        self._drop_connection()
        self._relay.stop_clocks(self)
        self.note(f"{self.node} {why}", self._relay.now_s())

    def _node_is_unavailable(self, retry_after: bytes | None) -> None:
        """Keep the place in the queue: a node that is full, or loads its model, has not failed."""
        relay, backend = self._relay, self._backend
        assert backend is not None
        if says_loading(b"".join(self._pieces)):
            self._leave_node("is loading")
            if relay.nodes.get(self.node) is backend:
                backend.loads()
        else:
            self._leave_node("was busy")
            relay.rest_node(backend, self.model, retry_after)
        self.why = "refused"
        self._go_back(exclude=False)

    def _attempt_failed(self, kind: str, cause: str) -> None:
        """Try again elsewhere, at the old place, as far as attempts and the budget allow."""
        if self.ended:
            return
        self._leave_node(f"failed: {cause}")
        self._blame(kind)
        self._failures += 1
        relay, failures = self._relay, self._failures
        if relay.may_wait_for(self, self._backend, failures) or relay.may_retry(failures):
            self._go_back(exclude=True)
        else:
            self._give_up(cause)

    def _give_up(self, cause: str) -> None:
        """End after the last attempt: with what a node has answered, if one has, else without."""
        if self._kept is not None:
            self._conclude_with(self._kept)
        else:
            self._fail(node_failed(cause, self.node, self._failures))

    def _go_back(self, *, exclude: bool) -> None:
        """Return to the old place in the queue, unless it must not run any more."""
        if self.revoked:
            self._fail(Problem(self.revoked, WORDS.get(self.revoked, self.revoked)))
            return
        self.node, self.last_node = "", self.node
        self._drop_answer()
        self.first_byte_s, self.heard_s, self.queued_since_s = 0.0, 0.0, self._relay.now_s()
        self._relay.post(Returned(self.id, exclude, self.strike, self.why))
        if self.ended:
            return
        if not self.node and not self.queued:  # else it runs already, or was told its place before
            self.queued = True
            self._relay.inspect(self.id, self._queued_again)
        if self.call.arrival.stream and self.call.family.comments:
            self._relay.keepalive.add(self)

    def _queued_again(self, action: Describe) -> None:
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
                self._relay.post(finished(self, ok=False))

    def _stop(self, problem: Problem) -> None:
        self._count_tokens()
        self._end(problem.code)
        self._sink.failed(problem, self)

    def _break(self, kind: str, cause: str) -> None:
        (self._fail_now if self.flowing else self._attempt_failed)(kind, cause)

    def _flow(self, head: AnswerHead) -> None:
        """Let the answer reach the sink, from its head on."""
        relay = self._relay
        self.flowing = True
        self.status = head.status
        if not self.first_byte_s:
            self.first_byte_s = relay.now_s()
        if self.stream_limits:
            relay.keepalive.discard(self)
        note_first_byte(self, self._backend)
        if not self.committed:
            self._sink.head(head, self._length, self)
        elif not self.is_stream:  # the sink has been told that it is
            cause = not_a_stream(head.status, b"".join(self._pieces))
            self._fail(node_failed(cause, self.node, self.attempt))
            return
        for data in self._pieces:
            self._sink.chunk(data)

    def _comment(self, text: str) -> None:
        if not self.committed:
            self.committed = True
            self.status = 200
            self._sink.head(self.call.family.stream_head, None, self)
        if not self.ended:
            self._sink.chunk(text.encode() + b"\n\n")

    def _count_tokens(self, *, whole: bool = False) -> None:
        try:
            pieces, call, events = self._pieces, self.call, 0
            if self.is_stream:
                events = self._events + b"".join(pieces).count(call.family.event_mark)
            size, bare = call.arrival.size_bytes, call.family.bare_counts
            counted = count_tokens(pieces, events, self.answer_bytes, size, bare=bare, whole=whole)
            self.prompt_tokens, self.output_tokens = counted
        except Exception:  # nothing may keep a request from its end
            logger.exception("counting tokens failed")

    def _drop_answer(self) -> None:
        self._head = self._length = None
        self.is_stream, self._pieces = False, []
        self._events = self.answer_bytes = self._forgotten_bytes = 0

    def _drop_connection(self, *, ends: bool = False) -> None:
        """Close the way to the node at once: that frees what it holds there."""
        connection, self._connection = self._connection, None
        opening, self._opening = self._opening, None
        if connection is not None:
            connection.abort()
            if ends and self._backend is not None:
                self._backend.broken_off()
        if opening is not None:
            opening.cancel()

    def _end(self, outcome: str) -> None:
        self.ended = True
        try:
            if self._connection is not None or self._opening is not None:
                self._drop_connection(ends=True)
        finally:
            self._relay.forget(self, outcome)
