"""One job from its claim to its outcome, whatever its handler does.

A handler may return, raise, exit its thread, or be told to stop: each becomes an outcome before
anything is written.
"""

from __future__ import annotations

import inspect
import json
import logging
import traceback
from typing import TYPE_CHECKING, Any

from forebay.errors import NotAllowed
from forebay.jobs.job import Failure
from forebay.jobs.outcomes import Completed, Requeued
from forebay.jobs.runner.task_types import Task
from forebay.jobs.runner.validation import (
    ERROR_CHARS_MAX,
    RESULT_BYTES_MAX,
    STAGE_CHARS_MAX,
    TRACEBACK_CHARS_MAX,
    encode,
    stored,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

    from forebay.jobs.claims import ClaimedJob
    from forebay.jobs.job import StoredJob
    from forebay.jobs.outcomes import Outcome
    from forebay.jobs.runner.task_types import TaskType
    from forebay.jobs.runner.threads import LoopThread
    from forebay.jobs.store.job_store import JobStore

logger = logging.getLogger("forebay.jobs")


class Handlers:
    """Calls handlers on the threads that call it."""

    def __init__(self, store: JobStore, loop: LoopThread) -> None:
        """Async handlers run on `loop`."""
        self._store = store
        self._loop = loop

    def run(self, kind: TaskType, claimed: ClaimedJob) -> Outcome | None:
        """Return the outcome of a job; None where whoever revoked it has recorded one."""
        outcome = self._run(kind, claimed)
        if isinstance(outcome, Failure):
            logger.warning(
                "job %d of type %r failed: %s",
                claimed.job.id,
                claimed.job.task_type,
                outcome.error.partition(":")[0],  # the class; the message may quote a prompt
                extra={"action": "failed", "job": claimed.job.id},
            )
        return outcome

    def _run(self, kind: TaskType, claimed: ClaimedJob) -> Outcome | None:
        if not claimed.revoked:
            try:
                task = Task(claimed, _params(claimed.job), self._tell_stage)
                value = kind.handler(task)
                if inspect.isawaitable(value):
                    value = self._loop.run(value, claimed)
                return Completed(encode(value, "result", RESULT_BYTES_MAX))
            except BaseException as error:  # SystemExit too: the row must not stay running
                if not claimed.revoked:
                    return failure_of(error)
        return Requeued() if claimed.revoked == "was stopped" else None

    def _tell_stage(self, claimed: ClaimedJob, text: str) -> None:
        future = self._store.stage(claimed.job, stored(str(text), STAGE_CHARS_MAX))

        def check(done: Future[bool]) -> None:
            if done.exception() is not None:
                logger.warning("job %d: stage not recorded: %s", claimed.job.id, done.exception())
            elif not done.result():
                claimed.revoke("was taken over")

        if self._loop.is_here():
            future.add_done_callback(check)
        else:
            future.exception()  # waits
            check(future)


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


def _params(job: StoredJob) -> Any:
    try:
        return json.loads(job.params)
    except ValueError as error:
        raise NotAllowed(f"params is not JSON: {error}") from error
