"""The prompt at the head of its session: a request in the gateway's queue, or waiting to be one.

Only the head of a session is ever a request: its wait begins there, so that no prompt times out
behind its own session. Where the queue has no capacity the turn waits for some, at most as long as
a request may wait in the queue, and is then submitted again.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from forebay.api.sessions import TokenUsage
from forebay.core import NO_ROOM
from forebay.relay.answer import said
from forebay.relay.problem import Problem
from forebay.sessions.capacity import resource_of
from forebay.sessions.conversation import size_bytes
from forebay.sse import BadStream, SseLines

if TYPE_CHECKING:
    from forebay.clock import TimerHandle
    from forebay.relay.call import InferenceCall
    from forebay.relay.exchange import Exchange
    from forebay.sessions.capacity import CapacityWaiter, CapacityWaiters
    from forebay.sessions.deps import SessionDeps
    from forebay.sessions.prompt import Prompt
    from forebay.sessions.session import Session
    from forebay.wire.heads import AnswerHead

LINE_BYTES_MAX = 4_194_304
ANSWER_CHARS_MAX = 1_000_000
"""Some 250,000 tokens: more than any model writes in one turn."""
REFUSAL_CHARS_MAX = 2048
"""How much of a node's own words about a refusal is passed on."""
TOKENS_MAX = 1_000_000_000

_decode = msgspec.json.Decoder().decode
logger = logging.getLogger("forebay.sessions")
ERROR_BODY_BYTES_MAX = 65_536
NO_NODE = ("no_node", "model_loading", "model_not_found", "route_not_supported")
"""Rejections that may mean no more than that the nodes are not up yet."""


class TooLong(Exception):
    """The answer, or one line of it, is longer than a session can hold."""


class AnswerReader:
    """Reads the text out of a node's answer as it arrives: OpenAI's chat stream, or one JSON body.

    Nothing is trusted: nodes send extra fields and wrong types, and an invalid side field must not
    cost the text beside it. An answer of which nothing could be read is an error (`understood`).
    Bounded: a line of a stream and a whole JSON body by LINE_BYTES_MAX, the text by
    ANSWER_CHARS_MAX; linear in what comes.
    """

    def __init__(self) -> None:
        self.is_stream = True
        """Whether the answer comes in events, not as one JSON body; set by who sees the head."""
        self.understood = False
        """Whether anything of it was an answer."""
        self.finish_reason: str | None = None
        self.usage: TokenUsage | None = None
        self.error: str | None = None
        """The node's own words, where it ended its stream with an error."""
        self._pieces: list[str] = []
        self._chars = 0
        self._lines = SseLines(LINE_BYTES_MAX)
        self._body = bytearray()
        """What has come of an answer that is one JSON body."""
        self._new: list[str] = []
        self._thoughts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def feed(self, data: bytes) -> tuple[str, str]:
        """Take a piece; return the text and the thoughts that it brought. Raises TooLong."""
        if self.is_stream:
            try:
                lines = self._lines.feed(data)
            except BadStream:
                raise TooLong from None
            for line in lines:
                self._take_line(line)
        else:
            self._body += data
            if len(self._body) > LINE_BYTES_MAX:
                raise TooLong
        return self._brought()

    def end(self) -> str:
        """Take the end; return text that came without a line end, or with a whole JSON body."""
        if self.is_stream:
            self._take_line(self._lines.end())
        else:
            self._take(bytes(self._body))
        return self._brought()[0]

    def _take_line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._take(line[5:].strip())

    def _brought(self) -> tuple[str, str]:
        text, thoughts = "".join(self._new), "".join(self._thoughts)
        self._new, self._thoughts = [], []
        if self._chars > ANSWER_CHARS_MAX:
            raise TooLong
        return text, thoughts

    def _take(self, data: bytes) -> None:
        chunk = _decoded(data)
        if not isinstance(chunk, dict):
            return  # `[DONE]`, or something of the node's own
        if chunk.get("error"):
            self.error = _message_of(chunk["error"]) or "it ended its answer with an error"
        self.usage = _usage(chunk.get("usage")) or self.usage
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            return
        self.understood = True
        for choice in choices[:1]:
            if isinstance(choice, dict):
                self._read_choice(choice)

    def _read_choice(self, choice: dict[str, Any]) -> None:
        reason = _text(choice.get("finish_reason"))
        if 0 < len(reason) <= 64:
            self.finish_reason = reason
        message = choice.get("delta") or choice.get("message")
        if not isinstance(message, dict):
            return
        text = _text(message.get("content"))
        if text:
            self._new.append(text)
            self._pieces.append(text)
        thought = _text(message.get("reasoning_content")) or _text(message.get("reasoning"))
        if thought:
            self._thoughts.append(thought)
        self._chars += len(text) + len(thought)


def _decoded(data: bytes) -> Any:
    """Return the value of a JSON text; None if it is none."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:  # more lenient: it accepts half a surrogate pair, which nodes cut from a character
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _text(content: object) -> str:
    """Return a text, or the texts of a list of parts."""
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        content = "".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str):
        return ""
    try:
        content.encode()
    except UnicodeEncodeError:
        content = content.encode("utf-8", "replace").decode()
    return content


def _usage(given: object) -> TokenUsage | None:
    """Return counts that make sense, else None."""
    if not isinstance(given, dict):
        return None
    counts = [given.get(name) for name in ("prompt_tokens", "completion_tokens")]
    known = [
        int(count)
        for count in counts
        if isinstance(count, int | float)
        and not isinstance(count, bool)
        and 0 <= count <= TOKENS_MAX
    ]
    return TokenUsage(known[0], known[1]) if len(known) == 2 else None


def words_of(body: bytes) -> str:
    """Return the message in the error body of a node, cut short; empty if none can be read.

    >>> words_of(b'{"error": {"message": "too long"}}'), words_of(b'"no"'), words_of(b"<html>")
    ('too long', 'no', '')
    """
    return _message_of(_decoded(body))


def _message_of(value: Any) -> str:
    for name in ("error", "message", "detail"):
        if isinstance(value, dict) and name in value:
            value = value[name]
    if isinstance(value, dict):
        value = value.get("message", "")
    text = _text(value)[: 2 * REFUSAL_CHARS_MAX]
    return "".join(letter if letter.isprintable() else " " for letter in text)[:REFUSAL_CHARS_MAX]


class ActiveTurn:
    """One prompt from the moment it heads its session to its end; the relay's sink.

    The session gets any number of `turn_waits`, `turn_starts` and `turn_delta`, and then exactly
    one of `turn_answered` and `turn_failed`, unless the turn is stopped.
    """

    def __init__(
        self, prompt: Prompt, session: Session, deps: SessionDeps, waiters: CapacityWaiters
    ) -> None:
        self.prompt = prompt
        self.exchange: Exchange | None = None
        self.answer = AnswerReader()
        self.sent_bytes = self.sent_messages = 0
        """What the node's count of tokens is compared with."""
        self._session = session
        self._deps = deps
        self._waiters = waiters
        self._arrival = waiters.next_number()
        self._call: InferenceCall | None = None
        self._no_room = (*NO_ROOM, *NO_NODE) if prompt.recovered else NO_ROOM
        self._waiter: CapacityWaiter | None = None  # while it waits for capacity
        self._limit: TimerHandle | None = None  # of that wait
        self._over = self._started = False
        self._status = 200
        self._error_body = bytearray()

    def submit(self) -> None:
        """Submit the prompt as a request; it may be over before this returns."""
        try:
            call, messages = self._session.build_call(self.prompt)
            if isinstance(call, Problem):
                if call.code == "unauthorized":
                    self._wait_for_key()
                else:
                    self._fail(call)
                return
            self._call = call
            self.sent_bytes, self.sent_messages = size_bytes(messages), len(messages)
            self._waiter, self._started = None, False
            exchange = self._deps.relay.submit(call, self)
            if not self._over and self._waiter is None:
                self.exchange = exchange
                if exchange.node:
                    self._start(exchange)
        except Exception:  # a bug of ours must not block the session
            logger.exception("cannot submit prompt %s", self.prompt.id)
            self._fail_internally()

    def stop(self) -> None:
        """End it without a word to the session; may be called twice."""
        self._over = True
        self._stop_waiting()
        if self.exchange is not None:
            self.exchange.cancel()

    # -- from the relay

    def waits(self, exchange: Exchange) -> None:
        self.exchange = exchange
        if not self._over and not self._started:  # a retry that waits again is not announced
            self._cancel_limit()
            self._session.turn_waits(self.prompt, exchange.position, exchange.estimate_s)

    def starts(self, exchange: Exchange) -> None:
        self._start(exchange)

    def head(self, head: AnswerHead, length: bytes | None, exchange: Exchange) -> None:
        self._start(exchange)
        self._status = head.status
        self.answer.is_stream = b"json" not in head.content_type

    def chunk(self, data: bytes, framed: bytes = b"") -> None:
        if self._over:
            return
        if self._status >= 300:
            self._error_body += data[: ERROR_BODY_BYTES_MAX - len(self._error_body)]
            return
        try:
            text, thoughts = self.answer.feed(data)
            if text or thoughts:
                self._session.turn_delta(self.prompt, text, thoughts)
        except Exception as error:
            self._give_up(error)

    def end(self) -> None:
        if self._over:
            return
        if self._status >= 300:
            self._fail(_error_of_node(self._status, bytes(self._error_body)))
            return
        try:
            rest = self.answer.end()
            if rest:
                self._session.turn_delta(self.prompt, rest, "")
            self._finish()
        except Exception as error:
            self._give_up(error)

    def failed(self, problem: Problem, exchange: Exchange) -> None:
        if self._over:
            return
        if problem.code == "unauthorized":  # its key is gone since it was submitted
            self._wait_for_key()
        elif problem.code in self._no_room:
            self._wait_for_capacity(problem)
        else:
            self._fail(problem)

    # -- inside

    def _start(self, exchange: Exchange) -> None:
        self.exchange = exchange
        if not self._started and not self._over:
            self._started = True
            self._cancel_limit()
            self._session.turn_starts(self.prompt, exchange)

    def _finish(self) -> None:
        if self.answer.error is not None:
            self._fail(Problem("node_failed", f"the node failed: {self.answer.error}"))
        elif not self.answer.understood:
            self._fail(Problem("node_failed", "the node failed: its answer cannot be read"))
        else:
            self._session.turn_answered(self)
            self._over = True

    def _fail(self, problem: Problem) -> None:
        self._over = True
        self._stop_waiting()
        self._session.turn_failed(self.prompt, problem)

    def _give_up(self, error: Exception) -> None:
        """End a turn whose answer is too long, or breaks our reader."""
        if isinstance(error, TooLong):
            self.stop()
            words = "the answer is longer than a session can hold"
            self._session.turn_failed(self.prompt, Problem("answer_too_large", words))
        else:
            logger.error("cannot read the answer to prompt %s", self.prompt.id, exc_info=error)
            self._fail_internally()

    def _fail_internally(self) -> None:
        self.stop()
        problem = Problem("internal_error", "an internal error; the log has the details")
        self._session.turn_failed(self.prompt, problem)

    # -- waiting for capacity

    def _wait_for_key(self) -> None:
        """Submit again when the keys have changed, however long that takes."""
        self.exchange = None
        self._cancel_limit()
        sender = self.prompt.sender
        order = (self._deps.rank_of(sender.priority), self._arrival)
        self._waiter = self._waiters.wait(self.submit, order, ("key", sender.key), 0)
        self._session.turn_waits(self.prompt, None, None)

    def _wait_for_capacity(self, problem: Problem) -> None:
        """Submit again when the queue may have capacity: nothing has happened yet."""
        call, sender = self._call, self.prompt.sender
        assert call is not None
        self.exchange = None
        if problem.code == "user_queue_full" and call.arrival.key_running_max:
            self._cancel_limit()  # for room in its key it waits as long as that takes
        else:
            self._limit = self._limit or self._limit_wait(problem)
        self._waiter = self._waiters.wait(
            self.submit,
            (self._deps.rank_of(sender.priority), self._arrival),
            resource_of(problem.code, call.arrival.model, sender.key, sender.user),
            len(call.body),
        )
        self._session.turn_waits(self.prompt, None, problem.retry_after_s)

    def _limit_wait(self, problem: Problem) -> TimerHandle:
        limit_s, own_s = self._deps.wait_s_max(), self.prompt.sender.max_wait_s
        if own_s is not None:
            limit_s = min(limit_s, own_s)

        def too_long() -> None:
            words = f"waited {limit_s:.1f} s for room in the queue, which is its limit"
            self._fail(Problem("queue_timeout", words, None, problem.retry_after_s))

        clock = self._deps.clock
        return clock.call_at(clock.monotonic_s() + limit_s, too_long)

    def _cancel_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _stop_waiting(self) -> None:
        self._cancel_limit()
        if self._waiter is not None:
            self._waiter.leave()


def _error_of_node(status: int, body: bytes) -> Problem:
    words = words_of(body)
    if status >= 500:
        return Problem("node_failed", said(status, words.encode() or body))
    reason = f": {words}" if words else ""
    return Problem("node_refused", f"the node refused the request ({status}){reason}")
