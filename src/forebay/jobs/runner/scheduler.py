"""A job loop with its executor on threads, as the threads of a program see it.

The job loop has a thread of its own, and so have handlers: one that blocks holds up no heartbeat.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from forebay.clock import LoopClock
from forebay.jobs.loop import JobLoop
from forebay.jobs.runner.executor import ThreadExecutor
from forebay.jobs.runner.gpu_memory import FIRST_READING_S, GpuWatch
from forebay.jobs.runner.handlers import Handlers
from forebay.jobs.runner.threads import LoopThread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from forebay.clock import Clock
    from forebay.jobs.loop import Backlog
    from forebay.jobs.runner.gpu_memory import ReadGpus
    from forebay.jobs.runner.options import RunnerOptions
    from forebay.jobs.runner.task_types import TaskTypes
    from forebay.jobs.store.job_store import JobStore
    from forebay.jobs.store.recovery import Recovery

STOP_S = 0.9
"""What a stop may take beyond the caller's own limit: a second, with a margin. Its steps share it,
each taking at most half of what is left: half of it for interrupted handlers to unwind, a quarter
to record those that do not, and so on; so the database, which is closed last, always has some."""
STEP_S_MAX = 5.0
"""What one step may take where the caller's limit leaves more."""
ABANDONED_S = 0.1
"""How long to wait for the ends of threads whose handlers may never return."""


class TaskScheduler:
    """Runs a runner's jobs from `start` to `stop`, each once. May be used from any thread."""

    def __init__(
        self,
        store: JobStore,
        types: TaskTypes,
        options: RunnerOptions,
        clock: Clock,
        read_gpus: ReadGpus | None,
    ) -> None:
        self._store = store
        self._types = types
        self._options = options
        self._clock = clock
        self._thread = LoopThread("forebay-scheduler")
        self._handlers = LoopThread("forebay-async")
        self._gpus = GpuWatch(options.available_vram_gb, read_gpus)
        self.jobs: JobLoop[Backlog]
        self.executor: ThreadExecutor

    def start(self, recovery: Callable[[], Recovery] | None) -> None:
        """Read the GPUs, then begin; raises StoreFailed."""
        try:
            self._thread.run(self._begin(recovery))
        except BaseException:
            self._thread.stop(STEP_S_MAX)
            raise

    async def _begin(self, recovery: Callable[[], Recovery] | None) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._gpus.refresh(), FIRST_READING_S)
        options, clock = self._options, LoopClock(asyncio.get_running_loop())
        worker = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.jobs = JobLoop(
            self._store, worker, options.lease_seconds, options.poll_seconds, clock, recovery
        )
        handlers = Handlers(self._store, self._handlers)
        self.executor = ThreadExecutor(
            self.jobs, self._types, options, self._clock, self._gpus, handlers
        )
        await self.jobs.start(self.executor)
        self._watching = asyncio.create_task(self.executor.watch_gpus())

    def call_soon(self, call: Callable[[], object]) -> None:
        """Make a call on the loop, unless it has ended."""
        self._thread.call_soon(call)

    def run(self, awaitable: Awaitable[bool]) -> bool:
        """Wait for something on the loop; return False if the loop ends before."""
        try:
            return bool(self._thread.run(awaitable))
        except asyncio.CancelledError:
            return False

    def stop(self, until_s: float) -> None:
        """End everything by then; handlers are told to stop STOP_S earlier."""
        left_s = until_s - self._clock.monotonic_s()
        stopping = self.jobs.stop(max(0.0, left_s - STOP_S), min(STOP_S, left_s) / 2)
        ended = self.run(stopping)
        for loop in (self._thread, self._handlers):
            loop.stop(self._step_s(until_s))
        self._join_threads(self._step_s(until_s) if ended else ABANDONED_S)

    def _step_s(self, until_s: float) -> float:
        return min(STEP_S_MAX, max(0.0, until_s - self._clock.monotonic_s()) / 2)

    def _join_threads(self, limit_s: float) -> None:
        """Wait for the ends of the workers' threads."""
        end_s = self._clock.monotonic_s() + limit_s
        for thread in self.executor.threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end_s - self._clock.monotonic_s()))
