"""What a handler is given: its job, and a way to report progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.jobs.claims import ClaimedJob


class TaskCancelled(BaseException):
    """The job is no longer this handler's: cancelled, taken over, or the runner stops.

    Like `asyncio.CancelledError` it is no `Exception`, so that a handler which catches those to
    fall back on another model does not go on with work that nobody waits for.
    """


class Task:
    """One job, as its handler sees it."""

    def __init__(
        self, claimed: ClaimedJob, params: Any, tell_stage: Callable[[ClaimedJob, str], None]
    ) -> None:
        self.id = claimed.job.id
        self.task_type = claimed.job.task_type
        self.job_id = claimed.job.job_id
        """The submitter's own number for what the job is about."""
        self.params = params
        self.attempt = claimed.job.attempt
        """1 the first time; more after an interruption."""
        self._claimed = claimed
        self._tell_stage = tell_stage

    @property
    def cancelled(self) -> bool:
        """Whether there is no point in going on; a long sync handler asks now and then."""
        return bool(self._claimed.revoked)

    def stage(self, text: str) -> None:
        """Record how far the job is; raises TaskCancelled when it is no longer this handler's.

        A sync handler waits for the record. An async one does not, lest it hold up the others on
        its loop; so there a lost job is noticed by the next call, or by being cancelled.
        """
        self._check()
        self._tell_stage(self._claimed, text)
        self._check()

    def _check(self) -> None:
        if self._claimed.revoked:
            raise TaskCancelled(f"job {self.id} {self._claimed.revoked}")

    def __repr__(self) -> str:
        return f"Task({self.id}, {self.task_type!r}, attempt={self.attempt})"
