"""One request on its way: waiting, running, answered; and every way that this can go wrong.

Three records have three lifetimes. An `Exchange` lasts from the arrival of a request to its end, an
`Attempt` (`attempt.py`) while it is on one node, an `Answer` (`answer.py`) from the head that a
node sends until another one takes its place; a whole 5xx may outlast its attempt.

Whatever happens, an exchange ends exactly once (`_end`), and only then is its ticket given up: by
`Finished`, by `Cancelled`, or because the core ended it itself. Who calls one from a callback calls
`is_lost` where that raises. So every lease comes back on every path, bugs included.

Until the first byte of an answer reaches the sink, a failed attempt is followed by another. Small
unary answers and, with `retry.stream = "buffer"`, streams are held back until they are whole. A
whole 5xx may be the request's own fault: it is tried once more, and kept in case that nothing
better comes.
"""

from __future__ import annotations

import logging
from math import ceil
from typing import TYPE_CHECKING, Final

from forebay.core import Cancelled, Returned
from forebay.relay.answer import count_tokens, not_a_stream
from forebay.relay.attempt import Attempt
from forebay.relay.problem import WORDS, Problem, node_failed

if TYPE_CHECKING:
    from forebay.core import Describe, RateStatus, Route, Wait
    from forebay.nodes.backend import Backend
    from forebay.relay.answer import Answer
    from forebay.relay.call import InferenceCall, Sink
    from forebay.relay.relay import Relay

logger = logging.getLogger("forebay.relay")

NODE_FAULTS: Final = frozenset(range(500, 600)) - {501}
"""Statuses that say nothing good of a node; 501 is a plain refusal."""


class Exchange:
    """A call, its sink, and what became of it so far."""

    __slots__ = (
        "_last_node", "_relay", "answer", "answer_bytes", "arrived_s", "attempt", "attempts",
        "call", "committed", "ended", "estimate_s", "failures", "flowing", "id", "kept", "missing",
        "model", "node", "output_tokens", "paused", "position", "predicted_s", "prompt_tokens",
        "queued", "queued_since_s", "rate", "revoked", "sink", "status", "timeline", "waited_s",
    )  # fmt: skip

    def __init__(self, call: InferenceCall, sink: Sink, relay: Relay, now_s: float) -> None:
        arrival = call.arrival
        self.call = call
        self.id = arrival.id
        self.model = arrival.model
        self.sink = sink
        self._relay = relay
        # in the queue
        self.arrived_s = now_s
        self.queued = False  # it has had to wait
        self.queued_since_s = 0.0  # while it does
        self.waited_s = 0.0
        self.position: int | None = None
        self.estimate_s: float | None = None
        self.predicted_s: float | None = None
        self.rate: RateStatus | None = None  # of its key, where that has limits
        # on its nodes
        self.node = ""  # while it runs, and where it was answered
        self._last_node = ""  # where it ran before it went back to the queue
        self.attempt: Attempt | None = None  # while it runs
        self.attempts = 0
        self.failures = 0  # attempts that failed; a node that was merely busy is none
        self.missing: tuple[str, ...] = ()  # nodes that turned out not to have the model
        self.kept: Answer | None = None  # a whole 5xx, while it is tried once more
        self.answer: Answer | None = None  # of the present attempt, once it has begun
        self.revoked = ""  # why it must not start again
        # at its sink
        self.committed = False  # the sink has been told 200, before any answer
        self.flowing = self.ended = False  # the first: answer bytes have reached the sink
        self.paused = False  # the sink cannot keep up
        self.status = 0  # of the answer that reached the sink
        # known at its end
        self.prompt_tokens = self.output_tokens = -1
        self.answer_bytes = 0
        self.timeline: list[tuple[float, str]] | None = None

    # -- for the sink

    def pause(self) -> None:
        """Stop reading from the node: the sink cannot keep up."""
        self.paused = True
        if self.attempt is not None:
            self.attempt.pause()

    def resume(self) -> None:
        self.paused = False
        if self.attempt is not None:
            self.attempt.resume()

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
        self.queued, self.position = True, action.position
        self.estimate_s, self.rate = action.estimate_s, action.rate
        self.queued_since_s = self._relay.now_s()
        self.note("queued", self.queued_since_s)
        self.sink.waits(self)
        self._keep_informed()

    def run(self, action: Route) -> None:
        """Try it on a node."""
        relay = self._relay
        backend = relay.nodes.get(action.node)
        self.node = action.node if backend is None else backend.name
        self.attempts, self.waited_s = action.attempt, action.waited_s
        self.queued = self.queued or self.waited_s > 0.0  # it may have had to return
        self.predicted_s, self.rate = action.predicted_s, action.rate
        if action.model:
            self.model = action.model
        has_waited = self.queued or self.attempts > 1
        started_s = relay.now_s() if has_waited else self.arrived_s
        self.attempt = attempt = Attempt(self, relay, backend, started_s)
        if has_waited:
            self._announce_start(started_s)
        if not self.ended:  # the sink may have given it up in this instant
            attempt.start()

    def _announce_start(self, now_s: float) -> None:
        self.note(f"started on {self.node}", now_s)
        self.sink.starts(self)
        if self.committed and not self.ended:
            self._comment(f": started node={self.node} waited_ms={int(self.waited_s * 1000)}")

    def refuse(self, problem: Problem, *, comes_again: bool = False) -> None:
        """End without an answer: the core has given up the ticket already."""
        if self.ended:
            return
        if self.kept is not None and not comes_again and problem.code not in WORDS:
            self._conclude_with(self.kept)  # better than that there was no time to try it again
        else:
            self._end("" if comes_again else problem.code)
            self.node = self._last_node  # of one that came back: it was relayed before
            self.sink.failed(problem, self)

    def abort(self, problem: Problem) -> None:
        """Stop it while it runs, because someone else wants it gone, and say why."""
        if not self.ended:
            try:
                self._stop(problem)
            finally:
                self._relay.post(Cancelled(self.id, self.prompt_tokens, self.output_tokens))

    def is_lost(self) -> None:
        """End after a bug of ours, whatever the state: the slot comes back. Never raises."""
        try:
            self.abort(Problem("internal_error", "an internal error; the log has the details"))
        except Exception:
            logger.exception("ending a request failed")

    def describe(self, action: Describe) -> None:
        """Tell a waiting stream its place; its first comment commits the answer to 200."""
        if self.ended or self.flowing:
            return
        if action.position is not None:
            eta = "" if action.p50_s is None else f" eta={ceil(action.p50_s)}"
            self._comment(f": queued position={action.position}{eta}")
        elif self.committed:  # it runs, and the way to the client must not fall asleep
            self._comment(": running")

    # -- for its attempts

    def note(self, what: str, now_s: float) -> None:
        """Remember when something happened, for whoever asks what became of this request."""
        if self.timeline is None:
            self.timeline = [(self.arrived_s, "arrived")]
        self.timeline.append((now_s, what))

    def retry(self, backend: Backend | None, cause: str) -> None:
        """Try again elsewhere, at the old place, as far as attempts and the budget allow."""
        self.failures += 1
        relay, failures = self._relay, self.failures
        if relay.may_wait_for(self, backend, failures) or relay.retries.may_retry(
            failures, relay.now_s()
        ):
            self.go_back(exclude=True)
        else:
            self.give_up(cause)

    def give_up(self, cause: str) -> None:
        """End after the last attempt: with what a node has answered, if one has, else without."""
        if self.kept is not None:
            self._conclude_with(self.kept)
        else:
            self.fail(node_failed(cause, self.node, self.failures))

    def go_back(self, *, exclude: bool) -> None:
        """Return to the old place in the queue, unless it must not run any more."""
        attempt = self.attempt
        assert attempt is not None
        if self.revoked:
            self.fail(Problem(self.revoked, WORDS.get(self.revoked, self.revoked)))
            return
        self.node, self._last_node = "", self.node
        self.attempt = self.answer = None
        self.queued_since_s = self._relay.now_s()
        self._relay.post(Returned(self.id, exclude, attempt.strike, attempt.why))
        if self.ended:
            return
        if not self.node and not self.queued:  # else it runs already, or was told its place before
            self.queued = True
            self._relay.inspect(self.id, self._queued_again)
        self._keep_informed()

    def _queued_again(self, action: Describe) -> None:
        """Take note of the place of one that had started without a wait, and came back."""
        if action.position is not None and self.position is None and not self.ended:
            self.position, self.estimate_s = action.position, action.estimate_s
            self.sink.waits(self)

    def fail(self, problem: Problem) -> None:
        """End because of the node; the slot comes back."""
        if not self.ended:
            attempt = self.attempt
            try:
                self._stop(problem)
            finally:
                if attempt is not None:
                    self._relay.post(attempt.finished(ok=False))

    def flow(self, answer: Answer) -> None:
        """Let the answer reach the sink, from its head on."""
        self.flowing = True
        self.status = answer.head.status
        if self.call.arrival.stream:
            self._relay.keepalive.discard(self)
        if self.attempt is not None:
            self.attempt.note_first_byte(answer)
        if not self.committed:
            self.sink.head(answer.head, answer.length, self)
        elif not answer.is_stream:  # the sink has been told that it is
            cause = not_a_stream(answer.head.status, b"".join(answer.pieces))
            self.fail(node_failed(cause, self.node, self.attempts))
            return
        for data in answer.pieces:
            self.sink.chunk(data)

    def conclude(self, answer: Answer) -> None:
        """End with a whole answer, whatever it says; the slot comes back."""
        if not self.flowing:
            self.flow(answer)
            if self.ended:
                return
        attempt, status = self.attempt, answer.head.status
        ok = status < 400
        try:
            self._count_tokens(whole=True)
            self._end("served" if ok else "passed_through")
            if attempt is not None and attempt.backend is not None and status not in NODE_FAULTS:
                attempt.backend.answered(self.model, ok=ok)
            self.sink.end()
        finally:  # whatever fails on our side, the slot comes back
            if attempt is not None:  # else the core has given up the ticket already
                self._relay.post(attempt.finished(ok=ok))

    # -- its end

    def _conclude_with(self, kept: Answer) -> None:
        """End with the answer of an earlier attempt."""
        self.answer, self.node = kept, kept.node
        self.conclude(kept)

    def _keep_informed(self) -> None:
        if self.call.arrival.stream and self.call.family.comments:
            self._relay.keepalive.add(self)

    def _comment(self, text: str) -> None:
        if not self.committed:
            self.committed = True
            self.status = 200
            self.sink.head(self.call.family.stream_head, None, self)
        if not self.ended:
            self.sink.chunk(text.encode() + b"\n\n")

    def _count_tokens(self, *, whole: bool = False) -> None:
        answer = self.answer
        if answer is None:
            return
        try:
            family, pieces = self.call.family, answer.pieces
            self.answer_bytes = size = answer.size_bytes
            events = answer.count_events(family.event_mark) if answer.is_stream else 0
            prompt_bytes, bare = self.call.arrival.size_bytes, family.bare_counts
            counted = count_tokens(pieces, events, size, prompt_bytes, bare=bare, whole=whole)
            self.prompt_tokens, self.output_tokens = counted
        except Exception:  # nothing may keep a request from its end
            logger.exception("counting tokens failed")

    def _stop(self, problem: Problem) -> None:
        self._count_tokens()
        self._end(problem.code)
        self.sink.failed(problem, self)

    def _end(self, outcome: str) -> None:
        """End it, once, and let the attempt go: it refers to this, and would wait for the gc."""
        self.ended = True
        try:
            if self.attempt is not None:
                self.attempt.close(ends=True)
        finally:
            self._relay.forget(self, outcome)
            self.attempt = None
