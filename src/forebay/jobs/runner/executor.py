"""Runs jobs of an app's own types on threads: which types run now, and on which GPU.

`placement.plan` decides, whenever something may have changed: a job was queued, a batch ended, a
GPU was read, a type has waited for too long. Each type that may run has one worker with a thread,
which takes the type's jobs one by one until there are none or it must give way; jobs that arrive
meanwhile are among them. Bypass types have one worker for each job, at most `bypass_workers` of
them in all, shared out evenly, for a type with many jobs must not keep out one with few.

GPU memory is released in one place, `_end`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING

from forebay.jobs.job import Failure
from forebay.jobs.loop import Backlog
from forebay.jobs.outcomes import settled
from forebay.jobs.runner.handlers import failure_of
from forebay.jobs.runner.placement import Active, Waiting, plan
from forebay.jobs.runner.threads import HandlerThread

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from threading import Thread

    from forebay.clock import Clock
    from forebay.jobs.claims import ClaimedJob
    from forebay.jobs.loop import JobLoop
    from forebay.jobs.runner.gpu_memory import GpuWatch
    from forebay.jobs.runner.handlers import Handlers
    from forebay.jobs.runner.options import RunnerOptions
    from forebay.jobs.runner.placement import Placement
    from forebay.jobs.runner.task_types import TaskType, TaskTypes

logger = logging.getLogger("forebay.jobs")

ABANDON_S = 0.2
"""How long it may take to write down that jobs are abandoned."""
STOPPED = "Interrupted by shutdown"


class ThreadExecutor:
    """The executor of all registered types; everything on the loop but the two figures."""

    def __init__(
        self,
        loop: JobLoop[Backlog],
        types: TaskTypes,
        options: RunnerOptions,
        clock: Clock,
        gpus: GpuWatch,
        handlers: Handlers,
    ) -> None:
        """`clock` says how long types have waited."""
        self._loop = loop
        self._types = types
        self._options = options
        self._clock = clock
        self._gpus = gpus
        self._handlers = handlers
        self._since: dict[str, float] = {}  # when a waiting type began to wait
        self._active: dict[str, Active] = {}
        self._giving_way: frozenset[str] = frozenset()
        self._bypass: Counter[str] = Counter()
        self._warned: set[str] = set()  # types without a handler
        self._overdue: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self.threads: list[Thread] = []
        """Those that may be alive."""

    @property
    def reserved_gb(self) -> float:
        """What the running types hold, in all; from any thread."""
        return sum(one.budget_gb for one in list(self._active.values()))

    @property
    def available_gb(self) -> float | None:
        """What may be held on all GPUs together; None where there is no limit; from any thread."""
        gpus = self._gpus.gpus(self._held_gb())
        return sum(gpu.size_gb for gpu in gpus) if gpus else None

    async def wait_idle(self, timeout_s: float | None) -> bool:
        """Wait until nothing is queued for our types and nothing runs; False when that takes long.

        What other programs have queued by now counts: the store is asked once more.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._loop.look()
                while self._loop.is_away or self._is_busy():
                    self._changed.clear()
                    await self._changed.wait()
                return True
        return False

    async def watch_gpus(self) -> None:
        """Read the GPUs, now and then, while anything waits for their memory or holds some."""
        while True:
            await asyncio.sleep(self._options.vram_refresh_seconds)
            known = self._types.all()
            if any(known[name].budget_gb > 0 for name in (*self._since, *self._active)):
                await self._gpus.refresh()
                self.plan()

    # -- for the loop

    def line_of(self, queue: str, owner: str) -> str | None:
        return "" if queue in self._types.all() else None

    def make_backlog(self, queue: str, owner: str) -> Backlog:
        return Backlog(queue, owner)

    def update(self, backlogs: object) -> None:
        self.plan()

    def polled(self, depths: Mapping[tuple[str, str], int]) -> None:
        """Warn once of queued jobs whose type has no handler, where no other program has it."""
        if self._loop.store.changes.shared:
            return
        for name in {queue for queue, _ in depths} - self._types.all().keys() - self._warned:
            self._warned.add(name)
            logger.warning("no handler for task type %r, which has queued jobs", name)

    def hold(self) -> None:
        """Do nothing: whoever plans asks the loop first."""

    def unstorable(self, error: BaseException) -> Failure:
        return failure_of(error)

    async def abandon(self, claimed: Collection[ClaimedJob]) -> None:
        """Give up on handlers that do not stop: what they return later is refused."""
        left = []
        for one in claimed:
            logger.error(
                "job %d of type %r does not stop: abandoned", one.job.id, one.job.task_type,
                extra={"action": "abandoned", "job": one.job.id},
            )  # fmt: skip
            if self._options.on_interrupt == "retry" and one.job.attempt < self._options.attempts:
                left.append((one, self._loop.store.give_back(one.job, tried=True)))
            else:
                stopped = Failure(STOPPED, "interrupted")
                left.append((one, self._loop.store.fail(one.job, stopped)))
        waiting = [settled(done, ABANDON_S) for _, done in left]
        await asyncio.gather(*waiting)
        for one, done in left:
            if not done.done() or done.exception() is not None:
                logger.error(
                    "job %d: interruption not recorded yet; the next start finds it running",
                    one.job.id,
                )

    # -- planning

    def plan(self) -> None:
        """Decide, and start what was decided."""
        known = self._types.all()
        self._start_batches(known)
        self._start_bypass(known)
        self._plan_when_overdue()
        self._changed.set()

    def _start_batches(self, known: dict[str, TaskType]) -> None:
        """Decide until there is nothing to start: who started may have to give way already."""
        while self._loop.may_claim():
            decided = self._decide(known)
            self._giving_way = decided.give_way
            if not decided.starts:
                return
            for start in decided.starts:
                kind = known[start.name]
                self._active[kind.name] = Active(kind.name, kind.budget_gb, start.gpu)
                self._since.pop(kind.name, None)
                self._start(kind)

    def _decide(self, known: dict[str, TaskType]) -> Placement:
        now_s = self._clock.monotonic_s()
        waiting = []
        for kind in known.values():
            depth = self._queued(kind.name)
            if not kind.llm:
                continue
            if depth <= 0 or kind.name in self._active:
                self._since.pop(kind.name, None)
                continue
            waited_s = now_s - self._since.setdefault(kind.name, now_s)
            waiting.append(Waiting(kind.name, depth, kind.budget_gb, waited_s))
        gpus = self._gpus.gpus(self._held_gb())
        return plan(waiting, list(self._active.values()), gpus, self._options.max_type_wait_seconds)

    def _held_gb(self) -> dict[int, float]:
        held: defaultdict[int, float] = defaultdict(float)
        for one in list(self._active.values()):
            if one.gpu is not None:
                held[one.gpu] += one.budget_gb
        return held

    def _start_bypass(self, known: dict[str, TaskType]) -> None:
        """Start one worker for each job, the type first that has fewest of them."""
        wanted = {
            name: backlog.queued - backlog.claiming
            for (name, _), backlog in self._loop.backlogs.items()
            if not known[name].llm
        }
        for _ in range(self._options.bypass_workers - self._bypass.total()):
            names = [name for name, jobs in wanted.items() if jobs > 0]
            if not names or not self._loop.may_claim():
                return
            name = min(names, key=lambda name: (self._bypass[name], name))
            wanted[name] -= 1
            self._bypass[name] += 1
            self._start(known[name])

    def _plan_when_overdue(self) -> None:
        """Plan again when the next waiting type will have waited for too long."""
        if self._overdue is not None:
            self._overdue.cancel()
        now_s, limit_s = self._clock.monotonic_s(), self._options.max_type_wait_seconds
        waits_s = [since_s + limit_s - now_s for since_s in self._since.values()]
        soonest_s = min((wait_s for wait_s in waits_s if wait_s > 0), default=None)
        if soonest_s is not None:
            self._overdue = asyncio.get_running_loop().call_later(soonest_s, self.plan)

    def _queued(self, name: str) -> int:
        backlog = self._loop.backlogs.get((name, ""))
        return 0 if backlog is None else backlog.queued

    def _is_busy(self) -> bool:
        queued = any(backlog.queued for backlog in self._loop.backlogs.values())
        return queued or bool(self._active) or self._bypass.total() > 0

    # -- workers

    def _start(self, kind: TaskType) -> None:
        self.threads = [thread for thread in self.threads if thread.is_alive()]
        try:
            thread = HandlerThread(f"forebay-job-{kind.name}")
        except RuntimeError as error:  # no more threads: what was taken for it is given back
            self._end(kind)
            self._loop.pause(f"cannot start a thread for task type {kind.name!r}: {error}")
            return
        self.threads.append(thread.thread)
        backlog = self._loop.backlogs[kind.name, ""]
        backlog.claiming += 1
        self._loop.spawn(self._work(kind, backlog, thread))

    async def _work(self, kind: TaskType, backlog: Backlog, thread: HandlerThread) -> None:
        """Take a type's jobs in order until there are none, or others must get in."""
        try:
            while (claimed := await self._loop.claim(backlog)) is not None:
                call = partial(self._handlers.run, kind, claimed)
                await self._loop.run(claimed, thread.call(call))
                # Only now: a type that started has one job done, always.
                if not kind.llm or kind.name in self._giving_way:
                    return
                backlog.claiming += 1
        finally:
            thread.end()
            self._end(kind)
            self.plan()

    def _end(self, kind: TaskType) -> None:
        if kind.llm:
            del self._active[kind.name]
        else:
            self._bypass[kind.name] -= 1
