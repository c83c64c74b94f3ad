"""The outcome of a claimed job, and how it is recorded.

A result that a GPU has worked for minutes on is worth waiting for: recording is retried with
backoff while the store is unavailable. What is still not recorded when the program ends is running
in the store, and found there by the next start. The store refuses what is no longer ours to say.

`Recording` decides and does not wait, so that both engines can use it: one waits on a thread, the
other on the event loop.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from forebay.errors import StoreFailed
from forebay.jobs.job import Failure

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from forebay.jobs.claims import ClaimedJob
    from forebay.jobs.store.job_store import JobStore

logger = logging.getLogger("forebay.jobs")

RETRY_S_FIRST = 0.1
RETRY_S_MAX = 5.0


class Completed(Struct, frozen=True):
    """There is a result."""

    result: str
    """JSON."""


class Requeued(Struct, frozen=True):
    """It was stopped before its end, and goes back to its place without losing an attempt."""


class CancelledHere(Struct, frozen=True):
    """An operator cancelled its request in the queue of live requests."""


Outcome: TypeAlias = Completed | Failure | Requeued | CancelledHere


class Recording:
    """One outcome on its way into the store.

    Call `write`, wait until its future is done, hand that to `retry_s`, and again after so long.
    """

    def __init__(
        self,
        store: JobStore,
        claimed: ClaimedJob,
        outcome: Outcome,
        unstorable: Callable[[BaseException], Failure],
    ) -> None:
        """`unstorable` returns what is recorded in place of an outcome that the store refuses."""
        self._store = store
        self._claimed = claimed
        self._outcome = outcome
        self._unstorable: Callable[[BaseException], Failure] | None = unstorable
        self._pause_s = RETRY_S_FIRST
        self._tries = 0

    def write(self) -> Future[bool]:
        """Ask the store to record the outcome."""
        self._tries += 1
        job = self._claimed.job
        match self._outcome:
            case Completed(result):
                return self._store.complete(job, result)
            case Failure():
                return self._store.fail(job, self._outcome)
            case Requeued():
                return self._store.give_back(job, tried=False)
            case CancelledHere():
                return self._store.cancel_held(job)

    def retry_s(self, written: Future[bool]) -> float | None:
        """Return in how many seconds to write again; None when there is nothing more to do."""
        job, error = self._claimed.job, written.exception()
        if error is None:
            if not written.result() and self._tries == 1:  # else the first was written after all
                logger.info(
                    "job %d: outcome refused, it %s", job.id,
                    self._claimed.revoked or "was taken over",
                    extra={"action": "refused", "job": job.id},
                )  # fmt: skip
            return None
        if isinstance(error, StoreFailed):
            logger.warning("job %d: outcome not recorded yet: %s", job.id, error)
            pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, RETRY_S_MAX)
            return pause_s
        logger.error("job %d: outcome cannot be stored", job.id, exc_info=error)
        if self._unstorable is None:  # not even the reason can
            return None
        self._outcome, self._unstorable = self._unstorable(error), None
        return 0.0

    def give_up(self) -> None:
        """Log that the program ends before the outcome is recorded."""
        logger.error("job %d: outcome not recorded, the store is unavailable", self._claimed.job.id)
