"""One job from its claim to its recorded outcome, whatever its handler does.

A handler may return, raise, exit its thread, or be told to stop. Each of those is a value before
anything is written, and writing it is tried again for as long as the database is away: an outcome
that took minutes to compute is worth waiting for. The store refuses what is no longer ours to say.
"""

from __future__ import annotations

import inspect
import json
import logging
import threading
import traceback
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from forebay.errors import NotAllowed, StoreFailed
from forebay.jobs.job import Failure
from forebay.jobs.runner.json_values import (
    ERROR_CHARS_MAX,
    RESULT_BYTES_MAX,
    STAGE_CHARS_MAX,
    TRACEBACK_CHARS_MAX,
    encode,
    stored,
)
from forebay.jobs.runner.task import Task

if TYPE_CHECKING:
    from concurrent.futures import Future

    from forebay.jobs.runner.claims import Held, Holding
    from forebay.jobs.runner.handler_loop import HandlerLoop
    from forebay.jobs.runner.task_types import TaskType
    from forebay.jobs.store.job_store import JobStore

logger = logging.getLogger("forebay.jobs")

RETRY_S_FIRST = 0.1
RETRY_S_MAX = 5.0


class Completed(Struct, frozen=True):
    """The handler returned."""

    result: str


class Revoked(Struct, frozen=True):
    """The job was taken from the handler, which stopped."""


Outcome: TypeAlias = Completed | Failure | Revoked


class Executor:
    """Runs jobs on the threads that call it."""

    def __init__(self, store: JobStore, holding: Holding, loop: HandlerLoop) -> None:
        self._store = store
        self._holding = holding
        self._loop = loop
        self._given_up = threading.Event()

    def claim(self, task_type: str) -> Held | None:
        """Take the next job of a type; None where there is none, or the database is away."""
        try:
            return self._holding.claim(task_type)
        except StoreFailed as error:
            logger.warning("cannot take jobs: %s", error, extra={"action": "claim"})
            return None

    def execute(self, kind: TaskType, held: Held) -> None:
        """Run a job and record what came of it; raises nothing."""
        try:
            outcome = self._run(kind, held)
            if self._given_up.is_set():  # recorded as interrupted: what comes now is too late
                logger.info("job %d ended after it was left to itself", held.job.id)
                return
            self._log(held, outcome)
            self._record(held, outcome)
        except Exception:  # a bug here must not end the worker
            logger.exception("job %d: no outcome recorded", held.job.id)
        finally:
            self._holding.drop(held)

    def give_up(self) -> None:
        """Stop trying to record outcomes: the runner ends."""
        self._given_up.set()

    # -- running

    def _run(self, kind: TaskType, held: Held) -> Outcome:
        if held.why:
            return Revoked()
        try:
            task = Task(held, _params(held), self._tell_stage)
            value = kind.handler(task)
            if inspect.isawaitable(value):
                value = self._loop.run(value, held)
            return Completed(encode(value, "result", RESULT_BYTES_MAX))
        except BaseException as error:  # SystemExit too: the row must not stay running
            return Revoked() if held.why else failure_of(error)

    def _tell_stage(self, held: Held, text: str) -> None:
        future = self._store.stage(held.job, stored(str(text), STAGE_CHARS_MAX))

        def check(done: Future[bool]) -> None:
            if done.exception() is not None:
                logger.warning("job %d: stage not recorded: %s", held.job.id, done.exception())
            elif not done.result():
                held.revoke("was taken over")

        if self._loop.is_here():
            future.add_done_callback(check)
        else:
            future.exception()  # waits
            check(future)

    # -- recording

    def _record(self, held: Held, outcome: Outcome) -> None:
        """Write an outcome, trying until it is written or the runner ends."""
        delay_s = RETRY_S_FIRST
        again = False
        while True:
            try:
                if not self._write(held, outcome).result() and not again:
                    self._refused(held)
                return  # refused the second time: most likely the first was written after all
            except StoreFailed as error:
                logger.warning("job %d: outcome not recorded yet: %s", held.job.id, error)
            except Exception as error:  # it cannot be written at all: say so in its place
                if isinstance(outcome, Failure):
                    raise
                outcome = failure_of(error)
            again = True
            if self._given_up.wait(delay_s):
                logger.error("job %d: outcome lost, the database is away", held.job.id)
                return
            delay_s = min(delay_s * 2, RETRY_S_MAX)

    def _write(self, held: Held, outcome: Outcome) -> Future[bool]:
        match outcome:
            case Completed(result):
                return self._store.complete(held.job, result)
            case Failure():
                return self._store.fail(held.job, outcome)
            case Revoked():
                # Whoever cancelled it or took it over has written that; only a job that we stopped
                # ourselves is still ours, and goes back to its place.
                return self._store.give_back(held.job, tried=False)

    def _refused(self, held: Held) -> None:
        if not held.why:
            held.revoke("was taken over")
        logger.info(
            "job %d %s: what its handler says is not recorded", held.job.id, held.why,
            extra={"action": "refused", "job": held.job.id},
        )  # fmt: skip

    def _log(self, held: Held, outcome: Outcome) -> None:
        if isinstance(outcome, Failure):
            logger.warning(
                "job %d of type %r failed: %s",
                held.job.id,
                held.job.task_type,
                outcome.error.partition(":")[0],  # the class; the message may quote a prompt
                extra={"action": "failed", "job": held.job.id},
            )


def failure_of(error: BaseException) -> Failure:
    """Return what is kept of an exception: its class, its text, and where it was raised."""
    name = type(error).__name__
    try:
        message = str(error)
    except Exception:  # a handler's own class may do anything
        message = "its text cannot be shown"
    text = f"{name}: {message}" if message else name
    trace = "".join(traceback.format_exception(error))
    return Failure(
        stored(text, ERROR_CHARS_MAX), "handler_failed", stored(trace, TRACEBACK_CHARS_MAX)
    )


def _params(held: Held) -> Any:
    try:
        return json.loads(held.job.params)
    except ValueError as error:
        raise NotAllowed(f"params is not JSON: {error}") from error
