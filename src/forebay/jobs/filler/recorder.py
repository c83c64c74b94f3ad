"""What became of a job, written down: until the store takes it, or the program ends.

A store that is down for a while must not cost a result that a GPU has worked for; so it is tried
again and again, ever more slowly. What could not be written when the program ends is still
"running" in the store, and is found there by the next start.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from forebay.errors import InvariantBroken, StoreFailed
from forebay.jobs.filler.sink import Answered, Gone
from forebay.jobs.job import Failure
from forebay.relay.answer import said
from forebay.relay.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from forebay.clock import Timers
    from forebay.jobs.filler.sink import Outcome
    from forebay.jobs.job import Job
    from forebay.jobs.store.job_store import JobStore

logger = logging.getLogger("forebay.jobs")

FIRST_S = 0.2
LONGEST_S = 10.0
LARGE_BYTES = 524_288
UNSTORABLE = Failure("the outcome cannot be stored; the log has the details", "internal_error")


class Recorder:
    """Writes outcomes."""

    def __init__(self, store: JobStore, clock: Timers) -> None:
        self._store = store
        self._clock = clock
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Do not try again from now on."""
        self._stopped.set()

    async def record(self, job: Job, request_id: str, outcome: Outcome) -> None:
        """Write down what became of a job."""
        match outcome:
            case Answered(status, body):
                await self._answered(job, request_id, status, body)
            case Problem(code="shutting_down"):
                await self._insist(job, lambda: self._store.give_back(job, tried=False))
            case Problem(code="cancelled"):  # through the queue, by an admin
                await self._insist(job, lambda: self._store.cancel_held(job))
            case Problem(code, message):
                failure = Failure(message, code)
                await self._insist(job, lambda: self._store.fail(job, failure))
            case Gone():
                pass

    async def _answered(self, job: Job, request_id: str, status: int, body: bytes) -> None:
        if len(body) < LARGE_BYTES:
            text = as_result(job, request_id, status, body)
        else:
            text = await asyncio.to_thread(as_result, job, request_id, status, body)
        if status < 400 and text is not None:
            await self._insist(job, lambda: self._store.complete(job, text))
            return
        if status < 400:
            failure = Failure("the node's answer is not JSON", "node_failed")
        else:
            code = "node_refused" if status < 500 else "node_failed"
            failure = Failure(said(status, _words(body)), code, result=text)
        await self._insist(job, lambda: self._store.fail(job, failure))

    async def _insist(self, job: Job, write: Callable[[], Future[bool]]) -> None:
        pause_s, unstorable = FIRST_S, False
        while True:
            try:
                if not await asyncio.wrap_future(write()):
                    logger.info("a job was no longer ours to end", extra={"job": job.id})
                return
            except InvariantBroken:  # what cannot be stored is not stored by asking again
                logger.exception("an outcome cannot be recorded", extra={"job": job.id})
                if unstorable:  # not even that: the next start finds it running
                    return
                unstorable, write = True, partial(self._store.fail, job, UNSTORABLE)
                continue
            except StoreFailed as error:
                logger.warning("an outcome is not recorded yet: %s", error, extra={"job": job.id})
            if self._stopped.is_set() or await self._stopped_within(pause_s):
                return
            pause_s = min(2 * pause_s, LONGEST_S)

    async def _stopped_within(self, seconds: float) -> bool:
        over = asyncio.Event()
        timer = self._clock.call_at(self._clock.monotonic_s() + seconds, over.set)
        waits = [asyncio.ensure_future(event.wait()) for event in (over, self._stopped)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            for wait in waits:
                wait.cancel()
        return self._stopped.is_set()


def as_result(job: Job, request_id: str, status: int, body: bytes) -> str | None:
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


def _words(body: bytes) -> bytes:
    """Return a node's own error message; all that it said where that is not to be found."""
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return body
    error = answer.get("error") if isinstance(answer, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return str(message).encode(errors="replace") if message else body
