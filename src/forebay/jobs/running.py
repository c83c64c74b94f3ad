"""A runner between `start` and `shutdown`: its parts, put together and taken apart in order."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from typing import TYPE_CHECKING

from forebay.jobs.executing import Executor
from forebay.jobs.gpus import GpuWatch
from forebay.jobs.handler_loop import HandlerLoop
from forebay.jobs.held import Held, Holding
from forebay.jobs.job import Failure
from forebay.jobs.room import Room
from forebay.jobs.scheduling import Scheduler, Timer

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.clock import Clock
    from forebay.jobs.gpus import ReadGpus
    from forebay.jobs.options import Options
    from forebay.jobs.store import JobStore
    from forebay.jobs.types import TaskTypes

logger = logging.getLogger("forebay.jobs")

BEATS_PER_LEASE = 3
"""Two heartbeats may go astray before a lease ends."""
GRACE_S = 5.0
"""What a handler that was told to stop has to unwind, before it is left to itself."""
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
        self.holding = Holding(store, worker, options.lease_seconds)
        self._loop = HandlerLoop()
        self._executor = Executor(store, self.holding, self._loop)
        self._gpus = GpuWatch(options.available_vram_gb, read_gpus)
        self._room = Room(store, self._gpus, worker, options.lease_seconds)
        self.scheduler = Scheduler(
            self._room, types, self._executor, self._gpus, clock, options.max_type_wait_seconds
        )

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

    def stop(self, timeout_s: float) -> None:
        """End everything; returns when it has ended, except for handlers that do not listen."""
        self.scheduler.drain()
        if not self.scheduler.wait_drained(timeout_s):
            for held in self.holding.all():
                held.revoke("was stopped")
            if not self.scheduler.wait_drained(GRACE_S):
                self._abandon()
        self.scheduler.stop()
        self._loop.stop(GRACE_S)
        self._gpus.join(GRACE_S)

    def _beat(self) -> None:
        self.holding.beat()
        self._room.beat()

    def _refresh(self) -> None:
        if self.scheduler.needs_gpus:
            self._gpus.refresh(self.scheduler.think)

    def _abandon(self) -> None:
        """Leave handlers that do not stop to themselves: what they say later is refused."""
        self._executor.give_up()
        for held in self.holding.all():
            logger.error(
                "job %d of type %r does not stop, and is left to itself",
                held.job.id,
                held.job.task_type,
                extra={"action": "abandoned", "job": held.job.id},
            )
            self._interrupt(held)

    def _interrupt(self, held: Held) -> None:
        again = self._options.on_interrupt == "retry" and held.job.attempt < self._options.attempts
        if again:
            done = self._store.give_back(held.job, tried=True)
        else:
            done = self._store.fail(held.job, Failure(STOPPED, "interrupted"))
        if done.exception() is not None:  # waits; the next start will find it running
            logger.error("job %d: interruption not recorded", held.job.id)
