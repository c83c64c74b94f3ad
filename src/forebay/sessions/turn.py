"""The sink behind a session: one attempt of a prompt to be answered, told as it goes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from forebay.core import NO_ROOM
from forebay.relay.answer import said
from forebay.relay.problem import Problem
from forebay.sessions.answer_reader import AnswerReader, TooLong, words_of
from forebay.sessions.conversation import size_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forebay.relay.call import Call
    from forebay.relay.exchange import Exchange
    from forebay.relay.relay import Relay
    from forebay.sessions.conversation import Message
    from forebay.wire.heads import AnswerHead

logger = logging.getLogger("forebay.sessions")

REFUSAL_BYTES_MAX = 65_536
NO_NODE = ("no_node", "model_loading", "model_not_found", "route_not_supported")
"""Refusals that may mean no more than that the nodes are not up yet."""


class Listener(Protocol):
    """Who is told what becomes of a turn; exactly one of the last three comes, and only once."""

    def turn_waits(self, turn: Turn) -> None:
        """Know that it stands in the one queue."""
        ...

    def turn_starts(self, turn: Turn) -> None:
        """Know that it runs."""
        ...

    def turn_says(self, turn: Turn, text: str, thoughts: str) -> None:
        """Take a piece of the answer."""
        ...

    def turn_answered(self, turn: Turn) -> None:
        """Take the whole answer."""
        ...

    def turn_failed(self, turn: Turn, problem: Problem) -> None:
        """Know that there is none."""
        ...

    def turn_found_no_room(self, turn: Turn, problem: Problem) -> None:
        """Know that the queue is full; nothing has happened."""
        ...


class Turn:
    """One request in the one queue; ends once."""

    def __init__(
        self,
        call: Call,
        messages: Sequence[Message],
        listener: Listener,
        *,
        waits_for_nodes: bool = False,
    ) -> None:
        self.call = call
        self._no_room = (*NO_ROOM, *NO_NODE) if waits_for_nodes else NO_ROOM
        self.sent_bytes, self.sent_messages = size_bytes(messages), len(messages)
        """What the node's count of tokens is compared with."""
        self.answer = AnswerReader()
        self.exchange: Exchange | None = None
        self.over = False
        self._listener = listener
        self._started = False
        self._status = 200
        self._refusal = bytearray()

    def submit(self, relay: Relay) -> None:
        """Become a request; it may have ended before this returns."""
        exchange = relay.submit(self.call, self)
        if not self.over:
            self.exchange = exchange
            if exchange.node:
                self._start(exchange)

    def stop(self) -> None:
        """Give it up at once; nobody is told."""
        self.over = True
        if self.exchange is not None:
            self.exchange.cancel()

    # -- from the relay

    def waits(self, exchange: Exchange) -> None:
        """Stand in line."""
        self.exchange = exchange
        if not self.over and not self._started:  # else it came back, which is nobody's affair
            self._listener.turn_waits(self)

    def starts(self, exchange: Exchange) -> None:
        """Leave the line."""
        self._start(exchange)

    def head(self, head: AnswerHead, length: bytes | None, exchange: Exchange) -> None:
        """See how the node answers."""
        self._start(exchange)
        self._status = head.status
        self.answer.is_stream = b"json" not in head.content_type

    def chunk(self, data: bytes) -> None:
        """Read a piece."""
        if self.over:
            return
        if self._status >= 300:
            self._refusal += data[: REFUSAL_BYTES_MAX - len(self._refusal)]
            return
        try:
            text, thoughts = self.answer.feed(data)
            if text or thoughts:
                self._listener.turn_says(self, text, thoughts)
        except Exception as error:
            self._give_up(error)

    def end(self) -> None:
        """Hand over the answer."""
        if self.over:
            return
        if self._status >= 300:
            self._fail(_refused(self._status, bytes(self._refusal)))
            return
        try:
            rest = self.answer.end()
            if rest:
                self._listener.turn_says(self, rest, "")
            self._hand_over()
        except Exception as error:
            self._give_up(error)

    def _hand_over(self) -> None:
        if self.answer.error is not None:
            self._fail(Problem("node_failed", f"the node failed: {self.answer.error}"))
        elif not self.answer.understood:
            self._fail(Problem("node_failed", "the node failed: its answer cannot be read"))
        else:
            self._listener.turn_answered(self)
            self.over = True

    def failed(self, problem: Problem, exchange: Exchange) -> None:
        """Pass on the reason."""
        if self.over:
            return
        if problem.code in self._no_room:
            self.over = True
            self._listener.turn_found_no_room(self, problem)
        else:
            self._fail(problem)

    # -- inside

    def _start(self, exchange: Exchange) -> None:
        self.exchange = exchange
        if not self._started and not self.over:
            self._started = True
            self._listener.turn_starts(self)

    def _fail(self, problem: Problem) -> None:
        self.over = True
        self._listener.turn_failed(self, problem)

    def _give_up(self, error: Exception) -> None:
        """End it: the answer is too long, or breaks our reader. The line must move on."""
        self.stop()
        problem = Problem("answer_too_large", "the answer is longer than a session can hold")
        if not isinstance(error, TooLong):
            logger.error("an answer could not be read", exc_info=error)
            problem = Problem("internal_error", "an internal error; the log has the details")
        self._listener.turn_failed(self, problem)


def _refused(status: int, body: bytes) -> Problem:
    words = words_of(body)
    if status >= 500:
        return Problem("node_failed", said(status, words.encode() or body))
    told = f": {words}" if words else ""
    return Problem("node_refused", f"the node refused the request ({status}){told}")
