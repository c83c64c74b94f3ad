"""The jobs that a runner holds now: claimed, kept by heartbeats, taken away.

A job is taken from its handler in three ways: it was cancelled, it was lost (its lease ended, and
the database says that it is no longer ours), or the runner stops. `Held.revoke` is where all three
arrive, and the first one counts.

Nothing slips between a claim and the moment we know of it. A cancellation that is heard in between
is kept until no claim is under way. A claim whose answer was lost with the connection may have
happened all the same, and heartbeats would keep that job running with nobody at it; so a beat that
brings back a job which we do not hold, while no claim was under way, gives it back.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from forebay.jobs.job import Job
    from forebay.jobs.store.job_store import JobStore

logger = logging.getLogger("forebay.jobs")

Why: TypeAlias = Literal["", "was cancelled", "was taken over", "was stopped"]


class Held:
    """One claimed job, until its outcome is recorded."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.why: Why = ""
        """Why it is no longer its handler's; empty while it is."""
        self._interrupt: Callable[[], object] | None = None
        self._lock = threading.Lock()

    def revoke(self, why: Why) -> None:
        """Take the job from its handler, at once where the handler can be interrupted."""
        with self._lock:
            if self.why:
                return
            self.why = why
            interrupt = self._interrupt
        if interrupt is not None:
            interrupt()

    def interruptible(self, interrupt: Callable[[], object] | None) -> None:
        """Say how the handler is interrupted; done at once when it is too late for it already."""
        with self._lock:
            self._interrupt = interrupt
            late = bool(self.why)
        if late and interrupt is not None:
            interrupt()


class Holding:
    """All that one runner holds. May be used from any thread."""

    def __init__(self, store: JobStore, worker: str, lease_s: float) -> None:
        self._store = store
        self._worker = worker
        self._lease_s = lease_s
        self._lock = threading.Lock()
        self._held: dict[tuple[int, int], Held] = {}  # a job that is retried has a new fence
        self._claiming = 0
        self._claims = 0  # ever begun
        self._cancelled_early: set[tuple[int, int]] = set()
        self._in_doubt = False  # a claim's answer was lost
        self._stopped = False

    def claim(self, queue: str) -> Held | None:
        """Take the next job of a queue; raises StoreFailed."""
        with self._lock:
            self._claiming += 1
            self._claims += 1
        taken: list[Job] | None = None
        try:
            taken = self._store.claim(queue, self._worker, self._lease_s).result()
        finally:
            held, why = self._claimed(taken)
        if held is not None and why:
            held.revoke(why)
        return held

    def _claimed(self, taken: list[Job] | None) -> tuple[Held | None, Why]:
        """Note what a claim brought, and why nobody may begin with it any more."""
        with self._lock:
            self._in_doubt |= taken is None
            held: Held | None = None
            why: Why = "was stopped" if self._stopped else ""
            for job in taken or ():
                held = self._held[job.id, job.fence] = Held(job)
                if (job.id, job.fence) in self._cancelled_early:
                    why = "was cancelled"
            self._claiming -= 1
            if not self._claiming:
                self._cancelled_early.clear()
        return held, why

    def drop(self, held: Held) -> None:
        """Forget a job: its outcome is recorded, or nobody wants it."""
        with self._lock:
            self._held.pop((held.job.id, held.job.fence), None)

    def stop(self) -> None:
        """Take every job from its handler, those of claims that are under way included."""
        with self._lock:
            self._stopped = True
        for held in self.all():
            held.revoke("was stopped")

    def all(self) -> list[Held]:
        """Return what is held now."""
        with self._lock:
            return list(self._held.values())

    def cancelled(self, job_id: int, fence: int) -> None:
        """Take a running job from its handler: it was cancelled, as that claim of it."""
        with self._lock:
            held = self._held.get((job_id, fence))
            if held is None and self._claiming:
                self._cancelled_early.add((job_id, fence))
        if held is not None:
            held.revoke("was cancelled")

    # -- heartbeats

    def beat(self) -> None:
        """Lengthen every lease with one statement; the answer is dealt with when it comes."""
        with self._lock:
            if not self._held and not self._in_doubt:
                return
            held = dict(self._held)
            claims = None if self._claiming else self._claims
        future = self._store.heartbeat(self._worker, self._lease_s)
        future.add_done_callback(lambda done: self._beaten(done, held, claims))

    def _beaten(
        self, done: Future[set[int]], held: dict[tuple[int, int], Held], claims: int | None
    ) -> None:
        if done.cancelled() or done.exception() is not None:
            return  # the next one may get through; leases last for three
        ours = done.result()
        for (job_id, _), one in held.items():
            if job_id not in ours:
                one.revoke("was taken over")  # does nothing where it ended meanwhile
        for job_id in self._strays(ours, claims):
            logger.warning(
                "job %d was claimed without our knowing: given back", job_id,
                extra={"action": "stray", "job": job_id},
            )  # fmt: skip
            self._give_back(job_id)

    def _strays(self, ours: set[int], claims: int | None) -> set[int]:
        """Return jobs that the database says we hold, and nobody here runs."""
        with self._lock:
            if claims is None or claims != self._claims:
                return set()  # it may be one that is just being claimed
            known = {job_id for job_id, _ in self._held}
            self._in_doubt = False
        return ours - known

    def _give_back(self, job_id: int) -> None:
        def found(done: Future[Job | None]) -> None:
            job = None if done.exception() is not None else done.result()
            if job is not None and job.status == "running" and job.worker == self._worker:
                self._store.give_back(job, tried=False)  # refused, should it have ended meanwhile

        self._store.get(job_id).add_done_callback(found)
