"""The jobs that one worker has claimed: kept by heartbeats, revoked, recorded.

Nothing here waits: the store answers on its own thread, and whoever claims waits for the future.

A claimed job is revoked for one of three reasons: it was cancelled, it was taken over (its lease
expired, and the store says that it is no longer ours), or its worker stops. The first counts.

Nothing is lost between a claim and the moment its answer arrives:

- A cancellation announced in between is kept until every claim is answered that may bring the job.
- A claim whose answer was lost with the connection may have been committed all the same, and
  heartbeats would keep that job running with nobody at it. So each heartbeat returns what the store
  says is ours. What we do not know, and what no claim still on its way can explain, is an *orphaned
  claim*, and is requeued.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from forebay.jobs.job import Change, Claim, StoredJob
    from forebay.jobs.store.job_store import JobStore

logger = logging.getLogger("forebay.jobs")

BEATS_PER_LEASE = 3
"""Two heartbeats may be lost before a lease expires."""

Reason: TypeAlias = Literal["", "was cancelled", "was taken over", "was stopped"]


class ClaimedJob:
    """One claimed job, until its outcome is recorded. May be used from any thread."""

    def __init__(self, job: StoredJob) -> None:
        self.job = job
        self.revoked: Reason = ""
        """Why the job is no longer ours to run; empty while it is."""
        self._interrupt: Callable[[], object] | None = None
        self._lock = threading.Lock()

    def revoke(self, reason: Reason) -> None:
        """Take the job from whoever runs it, interrupting them where that is possible."""
        with self._lock:
            if self.revoked:
                return
            self.revoked = reason
            interrupt = self._interrupt
        if interrupt is not None:
            interrupt()

    def on_revoke(self, interrupt: Callable[[], object] | None) -> None:
        """Set what interrupts whoever runs the job; called at once if it is revoked already."""
        with self._lock:
            self._interrupt = interrupt
            late = bool(self.revoked)
        if late and interrupt is not None:
            interrupt()


class ClaimSet:
    """All that one worker has claimed. May be used from any thread."""

    def __init__(self, store: JobStore, worker: str, lease_s: float) -> None:
        self.worker = worker
        self._store = store
        self.lease_s = lease_s
        self._lock = threading.Lock()
        self._claimed: dict[Claim, ClaimedJob] = {}
        self._asked = 0  # claims ever asked for; each has its number
        self._in_flight: set[int] = set()  # those not answered yet
        self._revoked_early: dict[Claim, tuple[int, Reason]] = {}  # with `_asked` at that time
        self._unknown: dict[Claim, int] = {}  # ours, says the store; with `_asked` when first seen
        self._in_doubt = False  # the answer to a claim was lost
        self._beating = False
        self._stopped = False

    def __len__(self) -> int:
        return len(self._claimed)

    def all(self) -> list[ClaimedJob]:
        with self._lock:
            return list(self._claimed.values())

    def claim(
        self, queue: str, *, owner: str | None = None, passed_over: Collection[str] = ()
    ) -> Future[ClaimedJob | None]:
        """Claim the next job of a queue, of these owners; fails with StoreFailed.

        Cancel the future to abandon the claim: a job that it brings all the same is requeued.
        """
        with self._lock:
            self._asked += 1
            number = self._asked
            self._in_flight.add(number)
        asked = self._store.claim(
            queue, self.worker, self.lease_s, owner=owner, passed_over=passed_over
        )
        answer: Future[ClaimedJob | None] = Future()
        answer.add_done_callback(lambda done: done.cancelled() and asked.cancel())
        asked.add_done_callback(lambda _: self._answer(number, asked, answer))
        return answer

    def drop(self, claimed: ClaimedJob) -> None:
        """Forget a job: its outcome is recorded, or nobody wants it."""
        with self._lock:
            self._claimed.pop(_key(claimed.job), None)

    def stop(self) -> None:
        """Revoke every job, those of claims in flight included."""
        with self._lock:
            self._stopped = True
        for claimed in self.all():
            claimed.revoke("was stopped")

    def take_in(self, change: Change) -> None:
        """Revoke a job that somebody else cancelled or ended while it ran here.

        One that was requeued because its lease expired is left to the next heartbeat.
        """
        ended = change.before == "running" and change.status not in ("queued", "running")
        if ended and change.fence:  # our own endings have none
            reason: Reason = "was cancelled" if change.status == "cancelled" else "was taken over"
            self.revoke((change.id, change.fence), reason)

    def revoke(self, claim: Claim, reason: Reason) -> None:
        """Revoke one claim, even if its answer has not arrived."""
        with self._lock:
            claimed = self._claimed.get(claim)
            if claimed is None and self._in_flight:
                self._revoked_early[claim] = self._asked, reason
        if claimed is not None:
            claimed.revoke(reason)

    def beat(self) -> None:
        """Extend every lease with one statement; one at a time, should the store be slow."""
        with self._lock:
            if self._beating or not (self._claimed or self._in_doubt):
                return
            self._beating = True
            self._in_doubt = False  # from here on, this beat will tell
            claimed = dict(self._claimed)
        beat = self._store.heartbeat(self.worker, self.lease_s)
        beat.add_done_callback(lambda done: self._beaten(done, claimed))

    # -- the store's answers, on its thread

    def _answer(
        self, number: int, asked: Future[list[StoredJob]], answer: Future[ClaimedJob | None]
    ) -> None:
        abandoned = not answer.set_running_or_notify_cancel()
        error = None if asked.cancelled() else asked.exception()
        jobs = [] if asked.cancelled() or error is not None else asked.result()
        claimed = None if abandoned or not jobs else ClaimedJob(jobs[0])
        with self._lock:
            self._in_flight.discard(number)
            self._in_doubt |= error is not None
            reason: Reason = ""
            if claimed is not None:
                self._claimed[_key(claimed.job)] = claimed
                _, reason = self._revoked_early.get(
                    _key(claimed.job), (0, "was stopped" if self._stopped else "")
                )
            self._revoked_early = {
                claim: early
                for claim, early in self._revoked_early.items()
                if not self._answered_up_to(early[0])
            }
        if abandoned:
            for job in jobs:
                self._store.give_back(job, tried=False)
        elif error is not None:
            answer.set_exception(error)
        else:
            if claimed is not None and reason:
                claimed.revoke(reason)
            answer.set_result(claimed)

    def _beaten(self, done: Future[set[Claim]], claimed: dict[Claim, ClaimedJob]) -> None:
        error = done.exception()
        with self._lock:
            self._beating = False
            self._in_doubt |= error is not None
        if error is not None:  # the next one may get through; a lease lasts for three
            logger.warning("heartbeat failed: %s", error)
            return
        ours = done.result()
        for claim, one in claimed.items():
            if claim not in ours:
                one.revoke("was taken over")  # no effect where it has ended meanwhile
        orphans = self._find_orphans(ours - claimed.keys())
        if orphans:
            logger.warning("requeued %d orphaned claims", len(orphans), extra={"action": "orphans"})
            self._store.release(self.worker, orphans)

    def _find_orphans(self, unknown: set[Claim]) -> set[Claim]:
        with self._lock:
            self._unknown = {
                claim: self._unknown.get(claim, self._asked)
                for claim in unknown - self._claimed.keys()
            }
            self._in_doubt |= bool(self._unknown)
            return {claim for claim, asked in self._unknown.items() if self._answered_up_to(asked)}

    def _answered_up_to(self, number: int) -> bool:
        """Say whether every claim up to this number has been answered; with the lock held."""
        return all(one > number for one in self._in_flight)


def _key(job: StoredJob) -> Claim:
    return job.id, job.fence
