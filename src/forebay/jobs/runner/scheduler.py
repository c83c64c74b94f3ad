"""Decides which task types run, starts the threads that run them, and ends them.

One scheduler thread sleeps on a condition. What wakes it: a job was queued, a batch ended, a GPU
was read, a timer is due. It asks the database how deep each queue is (the only truth: other
programs add jobs too), has `placement.plan` decide, and starts one thread for each type that may
run. It waits for no answer of a database or a driver, for it also keeps the leases alive.

A type's thread takes its jobs one by one until there are none or it must give way; jobs that arrive
meanwhile are among them. Bypass types have one thread for each job, at most `bypass_workers` of
them in all, shared out evenly, for a type with many jobs must not keep out one with few.

No wake-up is lost: each thread notes how many jobs its type was told of before it claims. If it
finds none, and more were told of since, the depths are read again. GPU memory is released in one
place, `_end_batch`.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from forebay.errors import NotAllowed
from forebay.jobs.claims import BEATS_PER_LEASE, ClaimSet
from forebay.jobs.job import Failure
from forebay.jobs.runner.executor import Executor
from forebay.jobs.runner.gpu_memory import GpuWatch
from forebay.jobs.runner.handler_loop import HandlerLoop
from forebay.jobs.runner.placement import Active, Placement, Start, Waiting, plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.clock import Clock
    from forebay.jobs.claims import ClaimedJob
    from forebay.jobs.runner.gpu_memory import ReadGpus
    from forebay.jobs.runner.task_types import TaskType, TaskTypes
    from forebay.jobs.store.job_store import JobStore

logger = logging.getLogger("forebay.jobs")

STOP_S = 0.9
"""What a stop may take beyond the caller's own limit: a second, with a margin. Its steps share it,
each taking at most half of what is left: half of it for interrupted handlers to unwind, a quarter
to record those that do not, and so on; so the database, which is closed last, always has some."""
STEP_S_MAX = 5.0
"""What one step may take where the caller's limit leaves more."""
ABANDONED_S = 0.1
"""How long to wait for the ends of threads whose handlers may never return."""
STOPPED = "Interrupted by shutdown"


class RunnerOptions(Struct, frozen=True, kw_only=True):
    """The options of a runner; the defaults are those of the settings' `[jobs]`.

    Raises NotAllowed, naming the option, when one makes no sense.
    """

    available_vram_gb: float | None = None
    """One GPU of this size, whatever there is; None asks NVML, and is no limit without a GPU."""
    vram_budgets: Mapping[str, float] = {}
    """GB by task type, over what the decorators say."""
    max_queue_depth: int = 500
    bypass_workers: int = 32
    """Jobs of bypass types at once, all types together: a thousand submissions must not start a
    thousand threads."""
    max_type_wait_seconds: float = 300.0
    """How long a type may wait behind others before they give way; 0: turns after every job."""
    on_interrupt: Literal["fail", "retry"] = "fail"
    attempts: int = 3
    lease_seconds: float = 30.0
    vram_refresh_seconds: float = 10.0
    poll_seconds: float = 1.0
    """How soon jobs that other programs add are seen; one's own are seen at once."""
    retention_days: float | None = None
    """Ended jobs of this age are deleted; None keeps them."""

    def __post_init__(self) -> None:
        for name in ("max_queue_depth", "bypass_workers", "attempts"):
            if getattr(self, name) < 1:
                raise NotAllowed(f"{name} must be 1 or more")
        for name in ("lease_seconds", "vram_refresh_seconds", "poll_seconds", "retention_days"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise NotAllowed(f"{name} must be above 0")
        for name in ("available_vram_gb", "max_type_wait_seconds"):
            if not (getattr(self, name) or 0) >= 0:
                raise NotAllowed(f"{name} must be 0 or more")
        if self.on_interrupt not in ("fail", "retry"):
            raise NotAllowed('on_interrupt is "fail" or "retry"')


class PeriodicCall:
    """Something that the scheduler's thread does every so often."""

    def __init__(self, every_s: float, call: Callable[[], object]) -> None:
        self.every_s = every_s
        self.call = call
        self.due_s = 0.0


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
        worker = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._store = store
        self._types = types
        self._options = options
        self._clock = clock
        self.claims = ClaimSet(store, worker, options.lease_seconds)
        self._loop = HandlerLoop()
        self._executor = Executor(store, self.claims, self._loop)
        self._gpus = GpuWatch(options.available_vram_gb, read_gpus)
        self._changed = threading.Condition()
        self._depths: dict[str, int] = {}
        self._stale = True  # the depths must be read
        self._reading = False
        self._away = False  # the database did not answer, and that is logged
        self._replan = False
        self._heard: Counter[str] = Counter()  # jobs queued since the start, by type
        self._since: dict[str, float] = {}  # when a waiting type began to wait
        self._active: dict[str, Active] = {}
        self._giving_way: frozenset[str] = frozenset()
        self._bypass: Counter[str] = Counter()
        self._bypass_claiming: Counter[str] = Counter()
        self._bypass_taken: Counter[str] = Counter()  # since the depths were last asked for
        self._draining = False
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="forebay-scheduler", daemon=True)
        self._workers: list[threading.Thread] = []  # touched by the scheduler's thread alone
        self._periodic: list[PeriodicCall] = []
        self.on_depths: Callable[[dict[str, int]], object] = lambda depths: None
        """Called with the depths whenever they were read, those of unknown types included."""

    # -- for the runner

    def start(self, recover: Callable[[], object] | None) -> None:
        """Read the GPUs, then begin; `recover` is called every half lease."""
        options, now_s = self._options, self._clock.monotonic_s()
        self._gpus.first()
        self._periodic = [
            PeriodicCall(options.lease_seconds / BEATS_PER_LEASE, self._beat),
            PeriodicCall(options.poll_seconds, self.look),
            PeriodicCall(options.vram_refresh_seconds, self._refresh_gpus),
        ]
        if recover is not None:
            self._periodic.append(PeriodicCall(options.lease_seconds / 2, recover))
        for periodic in self._periodic:
            periodic.due_s = now_s + periodic.every_s
        self._thread.start()

    def job_queued(self, task_type: str) -> None:
        with self._changed:
            self._heard[task_type] += 1
            self._stale = True
            self._changed.notify_all()

    def look(self) -> None:
        """Read the depths of the queues again."""
        with self._changed:
            self._stale = True
            self._changed.notify_all()

    def drain(self) -> None:
        """Start nothing more; batches end after the job they are at."""
        with self._changed:
            self._draining = True
            self._changed.notify_all()

    def wait_drained(self, timeout_s: float) -> bool:
        """Wait until no worker is left."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._working(), max(0.0, timeout_s))

    def wait_idle(self, timeout_s: float | None) -> bool:
        """Wait until nothing is queued for our types and nothing runs; False when that takes long.

        What other programs have queued by now counts: the depths are read once more.
        """
        self.look()
        with self._changed:
            return self._changed.wait_for(lambda: self._stopped or self._idle(), timeout_s)

    @property
    def reserved_gb(self) -> float:
        """What the running types hold, in all."""
        with self._changed:
            return sum(one.budget_gb for one in self._active.values())

    @property
    def available_gb(self) -> float | None:
        """What may be held on all GPUs together; None where there is no limit."""
        with self._changed:
            gpus = self._gpus.gpus(self._held_gb())
        return sum(gpu.size_gb for gpu in gpus) if gpus else None

    # -- the end

    def stop(self, until_s: float) -> None:
        """End everything by then; handlers are told to stop STOP_S earlier."""
        self.drain()
        if not self.wait_drained(until_s - STOP_S - self._clock.monotonic_s()):
            self.claims.stop()
            if not self.wait_drained(self._step_s(until_s)):
                self._abandon(until_s)
        self._join_threads(self._step_s(until_s))
        self._loop.stop(self._step_s(until_s))
        self._gpus.join(self._step_s(until_s))

    def _step_s(self, until_s: float) -> float:
        return min(STEP_S_MAX, max(0.0, until_s - self._clock.monotonic_s()) / 2)

    def _abandon(self, until_s: float) -> None:
        """Give up on handlers that do not stop: what they say later is refused."""
        self._executor.give_up()
        left = []
        for claimed in self.claims.all():
            logger.error(
                "job %d of type %r does not stop: abandoned",
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
        job, options = claimed.job, self._options
        if options.on_interrupt == "retry" and job.attempt < options.attempts:
            return self._store.give_back(job, tried=True)
        return self._store.fail(job, Failure(STOPPED, "interrupted"))

    def _join_threads(self, limit_s: float) -> None:
        """End the scheduler's own thread; wait for the workers', unless they do not stop."""
        until_s = self._clock.monotonic_s() + limit_s
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            left = self._working()
        self._thread.join(limit_s)
        if left:
            until_s = min(until_s, self._clock.monotonic_s() + ABANDONED_S)
        for worker in list(self._workers):
            if worker.ident is not None and worker is not threading.current_thread():
                worker.join(max(0.0, until_s - self._clock.monotonic_s()))

    # -- the scheduler's thread

    def _run(self) -> None:
        while True:
            try:
                if not self._turn():
                    return
            except Exception:  # whatever it was, jobs must go on
                logger.exception("scheduling failed")

    def _turn(self) -> bool:
        with self._changed:
            self._changed.wait_for(self._woken, self._timeout_s())
            if self._stopped:
                return False
            read = self._stale and not self._reading
            if read:
                self._stale, self._reading = False, True
                self._bypass_taken.clear()
            self._replan = False
        if read:
            self._read_depths()
        now_s = self._clock.monotonic_s()
        for periodic in self._periodic:
            if now_s >= periodic.due_s:
                periodic.due_s = now_s + periodic.every_s
                periodic.call()
        self._act()
        return True

    def _woken(self) -> bool:
        return self._stopped or self._replan or (self._stale and not self._reading)

    def _timeout_s(self) -> float:
        """Return how long it is until something periodic is due, or a waiting type is overdue."""
        now_s = self._clock.monotonic_s()
        due = [periodic.due_s for periodic in self._periodic]
        due += [
            since_s + self._options.max_type_wait_seconds
            for since_s in self._since.values()
            if since_s + self._options.max_type_wait_seconds > now_s
        ]
        return max(0.0, min(due, default=now_s + 1.0) - now_s)

    def _read_depths(self) -> None:
        def done(future: Future[dict[str, int]]) -> None:
            error = future.exception()
            with self._changed:
                self._reading = False
                if error is None:
                    self._depths = future.result()
                elif not self._away:
                    logger.warning(
                        "reading queue depths failed: %s", error, extra={"action": "poll"}
                    )
                self._away = error is not None
                self._replan = True
                self._changed.notify_all()
            if error is None:
                self.on_depths(future.result())

        self._store.depths().add_done_callback(done)

    def _beat(self) -> None:
        self.claims.beat()

    def _refresh_gpus(self) -> None:
        """Read the GPUs again while anything waits for their memory or holds some."""
        with self._changed:
            names = {*self._since, *self._active}
        known = self._types.all()
        if any(name in known and known[name].budget_gb > 0 for name in names):
            self._gpus.refresh(self._gpus_read)

    def _gpus_read(self) -> None:
        with self._changed:
            self._replan = True
            self._changed.notify_all()

    def _act(self) -> None:
        """Decide, and start what was decided."""
        known = self._types.all()
        with self._changed:
            if self._draining:
                return
            starts = self._take_starts(known)
            bypass = self._share_out_bypass(known)
        for start in starts:
            self._spawn(self._batch, known[start.name])
        for name in bypass:
            self._spawn(self._one_bypass, known[name])

    def _take_starts(self, known: dict[str, TaskType]) -> list[Start]:
        """Decide until there is nothing to start: who started may have to give way already."""
        starts: list[Start] = []
        while True:
            decided = self._decide(known)
            self._giving_way = decided.give_way
            if not decided.starts:
                return starts
            for start in decided.starts:
                kind = known[start.name]
                self._active[kind.name] = Active(kind.name, kind.budget_gb, start.gpu)
                self._since.pop(kind.name, None)
            starts += decided.starts

    def _decide(self, known: dict[str, TaskType]) -> Placement:
        now_s = self._clock.monotonic_s()
        waiting = []
        for kind in known.values():
            depth = self._depths.get(kind.name, 0)
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
        for one in self._active.values():
            if one.gpu is not None:
                held[one.gpu] += one.budget_gb
        return held

    def _share_out_bypass(self, known: dict[str, TaskType]) -> list[str]:
        """Return a type's name for each bypass thread to start: fewest running first."""
        wanted = {
            name: self._depths.get(name, 0) - self._bypass_claiming[name] - self._bypass_taken[name]
            for name, kind in known.items()
            if not kind.llm
        }
        given: list[str] = []
        for _ in range(self._options.bypass_workers - self._bypass.total()):
            names = [name for name, jobs in wanted.items() if jobs > 0]
            if not names:
                break
            name = min(names, key=lambda name: (self._bypass[name], name))
            wanted[name] -= 1
            self._bypass[name] += 1
            self._bypass_claiming[name] += 1
            given.append(name)
        return given

    # -- the workers' threads

    def _spawn(self, work: Callable[[TaskType], None], kind: TaskType) -> None:
        name = f"forebay-job-{kind.name}"
        thread = threading.Thread(target=work, args=(kind,), name=name, daemon=True)
        self._workers = [worker for worker in self._workers if worker.is_alive()]
        self._workers.append(thread)
        try:
            thread.start()
        except RuntimeError:  # no more threads: what was taken for it must be given back
            logger.exception("cannot start a thread for task type %r", kind.name)
            if kind.llm:
                self._end_batch(kind.name, None)
            else:
                self._end_bypass(kind.name, claiming=True)

    def _batch(self, kind: TaskType) -> None:
        """Take a type's jobs in order until there are none, or others must get in."""
        heard: int | None = None
        try:
            while True:
                with self._changed:
                    heard = self._heard[kind.name]
                    if self._draining:
                        return
                claimed = self._executor.claim(kind.name)
                if claimed is None:
                    return
                heard = None
                self._executor.execute(kind, claimed)
                with self._changed:  # only now: a type that started has one job done, always
                    if kind.name in self._giving_way:
                        return
        finally:
            self._end_batch(kind.name, heard)

    def _end_batch(self, name: str, heard: int | None) -> None:
        """Release a type's GPU memory: here and nowhere else."""
        with self._changed:
            del self._active[name]
            if heard is not None and heard == self._heard[name]:
                self._depths[name] = 0  # it found nothing, and nothing came since
            else:
                self._stale = True
            self._replan = True
            self._changed.notify_all()

    def _one_bypass(self, kind: TaskType) -> None:
        claiming = True
        try:
            with self._changed:
                heard = self._heard[kind.name]
            claimed = self._executor.claim(kind.name)
            claiming = False
            self._bypass_claimed(kind.name, None if claimed is not None else heard)
            if claimed is not None:
                self._executor.execute(kind, claimed)
        finally:
            self._end_bypass(kind.name, claiming=claiming)

    def _bypass_claimed(self, name: str, heard: int | None) -> None:
        with self._changed:
            self._bypass_claiming[name] -= 1
            if heard is not None and heard == self._heard[name]:
                self._depths[name] = 0  # it found nothing, and nothing came since
            else:
                self._bypass_taken[name] += heard is None
                self._stale = True
            self._changed.notify_all()

    def _end_bypass(self, name: str, *, claiming: bool) -> None:
        with self._changed:
            self._bypass[name] -= 1
            if claiming:
                self._bypass_claiming[name] -= 1
            self._replan = True
            self._changed.notify_all()

    # -- with the lock held

    def _working(self) -> bool:
        return bool(self._active) or self._bypass.total() > 0

    def _idle(self) -> bool:
        unread = self._stale or self._reading or self._away
        queued = any(self._depths.get(name, 0) > 0 for name in self._types.all())
        return not unread and not queued and not self._working()
