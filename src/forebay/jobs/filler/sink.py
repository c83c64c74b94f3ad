"""The sink behind a job: an answer collected whole, within a bound, or the reason there is none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from forebay.relay.problem import Problem

if TYPE_CHECKING:
    from forebay.relay.exchange import Exchange
    from forebay.wire.heads import AnswerHead

RESULT_BYTES_MAX = 16_777_216
"""Larger answers fail their job: they would have to fit into a row, and into memory."""


class Answered(Struct, frozen=True):
    """A node has answered, well or not."""

    status: int
    body: bytes


class Gone(Struct, frozen=True):
    """The job is no longer ours: cancelled, or its lease is lost. Nothing is to be recorded."""


Outcome: TypeAlias = Answered | Problem | Gone


class JobSink:
    """Collects one answer; `outcome` is set exactly once."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._exchange: Exchange | None = None
        self._status = 0
        self._body = bytearray()

    def carries(self, exchange: Exchange) -> None:
        """Know the exchange that the answer comes from."""
        self._exchange = exchange

    def leave(self) -> None:
        """Stop at once: the job is no longer ours, and the node must not work for it."""
        self._settle(Gone())
        if self._exchange is not None:
            self._exchange.cancel()

    def interrupt(self) -> None:
        """Stop at once: the program ends, and the job goes back to its place."""
        self._settle(Problem("shutting_down", "the gateway is shutting down"))
        if self._exchange is not None:
            self._exchange.cancel()

    def waits(self, exchange: Exchange) -> None:
        """Take no notice: the slot was granted before."""

    def starts(self, exchange: Exchange) -> None:
        """Take no notice."""

    def head(self, head: AnswerHead, length: bytes | None, exchange: Exchange) -> None:
        """Take the head."""
        self._exchange = exchange
        self._status = head.status

    def chunk(self, data: bytes) -> None:
        """Take a piece, unless it becomes too much."""
        if self.outcome.done():
            return
        self._body += data
        if len(self._body) > RESULT_BYTES_MAX:
            bound = RESULT_BYTES_MAX // 1_048_576
            self._settle(Problem("answer_too_large", f"the answer is larger than {bound} MiB"))
            if self._exchange is not None:
                self._exchange.cancel()

    def end(self) -> None:
        """Hand over the answer."""
        self._settle(Answered(self._status, bytes(self._body)))

    def failed(self, problem: Problem, exchange: Exchange | None) -> None:
        """Hand over the reason."""
        self._settle(problem)

    def _settle(self, outcome: Outcome) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)
