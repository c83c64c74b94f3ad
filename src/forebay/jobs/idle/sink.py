"""The answer to a job's request: collected whole within a bound, and turned into an outcome."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from forebay.jobs.job import Failure
from forebay.jobs.outcomes import CancelledHere, Completed, Requeued
from forebay.relay.answer import said
from forebay.relay.problem import Problem

if TYPE_CHECKING:
    from forebay.jobs.job import StoredJob
    from forebay.jobs.outcomes import Outcome
    from forebay.relay.exchange import Exchange
    from forebay.wire.heads import AnswerHead

RESULT_BYTES_MAX = 16_777_216
"""Larger answers fail their job: they would have to fit into a row, and into memory."""


class Answered(Struct, frozen=True):
    """A node has answered, well or not."""

    status: int
    body: bytes


class JobSink:
    """Collects one answer; `answer` is set exactly once."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Answered | Problem | None] = (
            asyncio.get_running_loop().create_future()
        )
        """None where the job was revoked before the end."""
        self._exchange: Exchange | None = None
        self._status = 0
        self._body = bytearray()

    @property
    def size(self) -> int:
        """How many bytes the answer has so far."""
        return len(self._body)

    def carries(self, exchange: Exchange) -> None:
        """Know the exchange that the answer comes from."""
        self._exchange = exchange

    def abandon(self) -> None:
        """Stop at once: the job was revoked, and the node must not work for it."""
        self._settle(None)
        if self._exchange is not None:
            self._exchange.cancel()

    def waits(self, exchange: Exchange) -> None:
        """Take no notice: the slot was granted before."""

    def starts(self, exchange: Exchange) -> None:
        """Take no notice."""

    def head(self, head: AnswerHead, length: bytes | None, exchange: Exchange) -> None:
        self._exchange = exchange
        self._status = head.status

    def chunk(self, data: bytes, framed: bytes = b"") -> None:
        """Take a piece, unless it becomes too much."""
        if self.answer.done():
            return
        self._body += data
        if len(self._body) > RESULT_BYTES_MAX:
            bound = RESULT_BYTES_MAX // 1_048_576
            self._settle(Problem("answer_too_large", f"the answer is larger than {bound} MiB"))
            if self._exchange is not None:
                self._exchange.cancel()

    def end(self) -> None:
        self._settle(Answered(self._status, bytes(self._body)))

    def failed(self, problem: Problem, exchange: Exchange | None) -> None:
        self._settle(problem)

    def _settle(self, answer: Answered | Problem | None) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


def to_outcome(job: StoredJob, request_id: str, answer: Answered | Problem) -> Outcome:
    """Return what is recorded of an answer, or of the reason there is none."""
    match answer:
        case Problem(code="shutting_down"):
            return Requeued()
        case Problem(code="cancelled"):  # through the queue, by an admin
            return CancelledHere()
        case Problem(code, message):
            return Failure(message, code)
        case Answered(status, body):
            return _answered(status, body, _result(job, request_id, status, body))


def _answered(status: int, body: bytes, result: str | None) -> Outcome:
    if status >= 400:
        code = "node_refused" if status < 500 else "node_failed"
        return Failure(said(status, _error_message(body)), code, result=result)
    if result is None:
        return Failure("the node's answer is not JSON", "node_failed")
    return Completed(result)


def _result(job: StoredJob, request_id: str, status: int, body: bytes) -> str | None:
    """Return what is stored of an answer; None when it is not JSON.

    For a job that is the answer itself, for a line of a batch what its output file will say.
    """
    try:
        answer = msgspec.json.decode(body)
        text = body.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if job.batch_id is None:
        return text
    whole = {"status_code": status, "request_id": request_id, "body": answer}
    return msgspec.json.encode(whole).decode()


def _error_message(body: bytes) -> bytes:
    """Return a node's own error message; the whole body where there is none."""
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return body
    error = answer.get("error") if isinstance(answer, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return str(message).encode(errors="replace") if message else body
