"""A runner between `start` and `shutdown`: its parts, put together and taken apart in order."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING

from forebay.jobs.claims import BEATS_PER_LEASE, ClaimedJob, ClaimSet
from forebay.jobs.job import Failure
from forebay.jobs.runner.executor import Executor
from forebay.jobs.runner.gpu_memory import GpuWatch
from forebay.jobs.runner.gpu_reservations import Room
from forebay.jobs.runner.handler_loop import HandlerLoop
from forebay.jobs.runner.scheduler import Scheduler, Timer

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.clock import Clock
    from forebay.jobs.runner.gpu_memory import ReadGpus
    from forebay.jobs.runner.options import Options
    from forebay.jobs.runner.task_types import TaskTypes
    from forebay.jobs.store.job_store import JobStore

logger = logging.getLogger("forebay.jobs")

STOP_S = 0.9
"""What a stop may take beyond the caller's own limit: a second, less what nobody waits for. Its
steps share it, each taking at most half of what is left: half of it for handlers to unwind that
were told to stop, a quarter to record those that do not, and so on; so the database, which is
closed last, always has some of it."""
STEP_S_MAX = 5.0
"""What one step may take where the caller's limit leaves more."""
STOPPED = "Interrupted by shutdown"


class Running:
    """The scheduler, what it holds, and the loop of async handlers."""

    def __init__(
        self,
        store: JobStore,
        types: TaskTypes,
        options: Options,
        clock: Clock,
        read_gpus: ReadGpus | None,
    ) -> None:
        worker = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._store = store
        self._options = options
        self._clock = clock
        self.claims = ClaimSet(store, worker, options.lease_seconds)
        self._loop = HandlerLoop()
        self._executor = Executor(store, self.claims, self._loop)
        self._gpus = GpuWatch(options.available_vram_gb, read_gpus)
        self._room = Room(store, self._gpus, worker, options.lease_seconds)
        self.scheduler = Scheduler(self._room, types, self._executor, self._gpus, clock, options)

    def start(self, recover: Callable[[], object] | None) -> None:
        """Read the GPUs, then start scheduling; `recover` is done every half lease."""
        options = self._options
        self._gpus.first()
        timers = [
            Timer(options.lease_seconds / BEATS_PER_LEASE, self._beat),
            Timer(options.poll_seconds, self.scheduler.look),
            Timer(options.vram_refresh_seconds, self._refresh),
        ]
        if recover is not None:
            timers.append(Timer(options.lease_seconds / 2, recover))
        self.scheduler.start(timers)

    def stop(self, until_s: float) -> None:
        """End everything by then; handlers are told to stop STOP_S earlier."""
        self.scheduler.drain()
        if not self.scheduler.wait_drained(until_s - STOP_S - self._clock.monotonic_s()):
            self.claims.stop()
            if not self.scheduler.wait_drained(self._step_s(until_s)):
                self._abandon(until_s)
        self.scheduler.stop(self._step_s(until_s))
        self._loop.stop(self._step_s(until_s))
        self._gpus.join(self._step_s(until_s))

    def _step_s(self, until_s: float) -> float:
        return min(STEP_S_MAX, max(0.0, until_s - self._clock.monotonic_s()) / 2)

    def _beat(self) -> None:
        self.claims.beat()
        self._room.beat()

    def _refresh(self) -> None:
        if self.scheduler.needs_gpus:
            self._gpus.refresh(self.scheduler.think)

    def _abandon(self, until_s: float) -> None:
        """Leave handlers that do not stop to themselves: what they say later is refused."""
        self._executor.give_up()
        left = []
        for claimed in self.claims.all():
            logger.error(
                "job %d of type %r does not stop, and is left to itself",
                claimed.job.id,
                claimed.job.task_type,
                extra={"action": "abandoned", "job": claimed.job.id},
            )
            left.append((claimed, self._interrupt(claimed)))
        wait([done for _, done in left], self._step_s(until_s))
        for claimed, done in left:
            if not done.done() or done.exception() is not None:
                logger.error(
                    "job %d: interruption not recorded yet; the next start finds it running",
                    claimed.job.id,
                )

    def _interrupt(self, claimed: ClaimedJob) -> Future[bool]:
        again = (
            self._options.on_interrupt == "retry" and claimed.job.attempt < self._options.attempts
        )
        if again:
            return self._store.give_back(claimed.job, tried=True)
        return self._store.fail(claimed.job, Failure(STOPPED, "interrupted"))
