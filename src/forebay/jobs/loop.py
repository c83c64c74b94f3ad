"""The loop of one worker of the job store: claim, beat, poll, listen, recover, record, stop.

It lives on one event loop: the gateway's, or one in a thread of its own (`TaskRunner`). It knows
what is queued and keeps what is claimed; an `Executor` decides when to claim, and runs the jobs:
`idle` in idle slots of nodes, `runner` on threads that share the memory of GPUs.

How many jobs are queued is counted from the changes that the store announces, and asked for again
at every poll, for a notification may be lost and another program may write to the file. The counts
are hints: the store decides, and a wrong one costs a claim that finds nothing. They may be too high
but not too low, so that no job is forgotten: what was announced or claimed while a poll was under
way is added to its answer. Polls do not overlap, nor do heartbeats: a store that hangs is not asked
again and again.

While the store is slow or away nothing is claimed: the pause is doubled each time.

What is claimed but not recorded when the program dies is found by the next start, or when the lease
expires.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from forebay.errors import StoreFailed
from forebay.jobs.claims import BEATS_PER_LEASE, ClaimSet
from forebay.jobs.outcomes import record, settled
from forebay.jobs.store.change_bus import LoopListener

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping

    from forebay.clock import TimerHandle, Timers
    from forebay.jobs.claims import ClaimedJob
    from forebay.jobs.job import Change, Failure
    from forebay.jobs.outcomes import Outcome
    from forebay.jobs.store.job_store import JobStore
    from forebay.jobs.store.recovery import Recovery

logger = logging.getLogger("forebay.jobs")

PAUSE_S, PAUSE_S_MAX = 1.0, 30.0
"""How long nothing is claimed when the store was too slow; doubled each time."""


class Backlog:
    """The queued jobs of a queue, or of one owner in it."""

    def __init__(self, queue: str, owner: str = "") -> None:
        self.queue = queue
        self.owner = owner
        self.queued = 0
        """Jobs that are queued in the store, as far as we know, those being claimed included."""
        self.announced = 0
        """Jobs that were ever announced as queued."""
        self.claiming = 0
        """Claims that have begun, or will at once, and are not answered."""


B = TypeVar("B", bound=Backlog)


class Executor(Protocol[B]):
    """Whatever runs jobs. Everything is called on the event loop."""

    def line_of(self, queue: str, owner: str) -> str | None:
        """Return whose line such a job is in: its owner's own, or "" for everybody's.

        Returns None if the queue is not for this executor.
        """
        ...

    def make_backlog(self, queue: str, owner: str) -> B: ...

    def update(self, backlogs: Collection[B]) -> None:
        """Claim what can run now: what is queued has changed, or claims are allowed again."""
        ...

    def polled(self, depths: Mapping[tuple[str, str], int]) -> None:
        """Take note of an answer of the store: how many jobs are queued, by queue and owner."""
        ...

    def hold(self) -> None:
        """Give up what claims were planned: nothing is claimed for a while, or any more."""
        ...

    def unstorable(self, error: BaseException) -> Failure:
        """Return what is recorded in place of an outcome that the store refuses."""
        ...

    async def abandon(self, claimed: list[ClaimedJob]) -> None:
        """Write down what becomes of jobs that do not stop; the time for it is short."""
        ...


class JobLoop(Generic[B]):
    """One worker. `start` and `stop` once; everything on the event loop."""

    def __init__(
        self,
        store: JobStore,
        worker: str,
        lease_s: float,
        poll_s: float,
        clock: Timers,
        recovery: Callable[[], Recovery] | None,
    ) -> None:
        """`recovery` returns what becomes of jobs whose worker died; None: others see to them.

        On SQLite nobody else works on the jobs, so there is nothing to recover after the start.
        """
        self.store = store
        self.claims = ClaimSet(store, worker, lease_s)
        self.backlogs: dict[tuple[str, str], B] = {}
        """By queue and owner."""
        self.stopping = False
        """Whether no job is taken any more."""
        self.is_away = False
        """Whether the last poll was not answered."""
        self.end_revoked: Callable[[set[str]], Awaitable[bool]] = _nothing
        """Ends what owners whose key was revoked have queued; returns whether there was any."""
        self._executor: Executor[B]
        self._clock = clock
        shared = store.changes.shared
        self._poll_s = min(poll_s, lease_s / 2) if shared else poll_s
        self._recovery = recovery if shared else None
        self._loop = asyncio.get_running_loop()
        self._listener = LoopListener(store, self._take_in, self.look)
        self._tasks: set[asyncio.Task[object]] = set()
        self._polling: asyncio.Task[bool] | None = None
        self._next_poll: asyncio.Task[bool] | None = None
        self._timers: dict[str, TimerHandle] = {}
        self._paused = False
        self._pause_s = 0.0
        self._ending = asyncio.Event()  # outcomes are not written again

    async def start(self, executor: Executor[B]) -> None:
        """Begin with what is queued; raises StoreFailed."""
        self._executor = executor
        self._listener.start()
        try:
            await self._count()
        except BaseException:
            self._listener.stop()
            raise
        self._call_in("beat", self.claims.lease_s / BEATS_PER_LEASE, self._beat)
        self._call_in("poll", self._poll_s, self._poll_again)

    def drain(self) -> None:
        """Take nothing more; what runs may finish, and its leases are kept."""
        self.stopping = True
        if "poll" in self._timers:
            self._timers.pop("poll").cancel()
        self._executor.hold()

    async def wait_drained(self, limit_s: float) -> bool:
        """Wait until nothing runs any more; return False if that takes longer."""
        return not self._tasks or not (await asyncio.wait(self._tasks, timeout=limit_s))[1]

    async def stop(self, patience_s: float, revoke_s: float) -> bool:
        """Stop: what runs has so long to end, then it is interrupted and goes back to its place.

        What is not recorded within `revoke_s` is abandoned; return False if anything was.
        """
        self.drain()
        ended = await self.wait_drained(patience_s)
        if not ended:
            self._ending.set()
            self.claims.stop()
            ended = await self.wait_drained(revoke_s)
        if not ended:
            await self._executor.abandon(self.claims.all())
        self._listener.stop()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for task in (*self._tasks, self._polling, self._next_poll):
            if task is not None:
                task.cancel()
        return ended

    # -- what is queued

    def backlog(self, queue: str, owner: str = "") -> B | None:
        """Return the line that a job is in; None if it is not to run here, or not now."""
        line = self._executor.line_of(queue, owner) if self.store.in_force(owner) else None
        if line is None:
            return None
        if (queue, line) not in self.backlogs:
            self.backlogs[queue, line] = self._executor.make_backlog(queue, line)
        return self.backlogs[queue, line]

    def look(self) -> asyncio.Task[bool]:
        """Ask the store now: changes of other programs or of keys may have been missed.

        The task returns whether the store answered; if so, a pause is over.
        """
        self.claims.beat()
        poll = self._poll_next()
        poll.add_done_callback(self._resume_after)
        return poll

    def _take_in(self, changes: list[Change]) -> None:
        touched: dict[B, None] = {}
        for change in changes:
            self.claims.take_in(change)
            backlog = self.backlog(change.queue, change.owner)
            if backlog is None or change.before == change.status:
                continue
            touched[backlog] = None
            claimed_here = change.here and change.status == "running"  # `claim` counts those
            if change.before == "queued" and not claimed_here:
                backlog.queued = max(0, backlog.queued - 1)
            if change.status == "queued":
                backlog.queued += 1
                backlog.announced += 1
        if touched:
            self._executor.update(touched)

    def _poll_next(self) -> asyncio.Task[bool]:
        """Return the next poll, which begins when the one under way has been answered."""
        if self._next_poll is None:
            self._next_poll = self._loop.create_task(self._poll(self._polling))
        return self._next_poll

    async def _poll(self, before: asyncio.Task[bool] | None) -> bool:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._polling, self._next_poll = self._next_poll, None
        try:
            if self._recovery is not None and not self.stopping:
                await asyncio.wrap_future(self.store.recover(self._recovery()))
            await self._count()
        except StoreFailed as error:
            if not self.is_away:
                logger.warning("polling the job store failed: %s", error, extra={"action": "poll"})
            self.is_away = True
        except Exception:  # a bug must not end the polls
            logger.exception("polling the job store failed")
        else:
            self.is_away = False
            return True
        return False

    async def _count(self) -> None:
        before = {backlog: backlog.announced for backlog in self.backlogs.values()}
        found = await asyncio.wrap_future(self.store.owner_depths())
        if await self.end_revoked({owner for _, owner in found}):
            found = await asyncio.wrap_future(self.store.owner_depths())
        depths: Counter[B] = Counter()
        for (queue, owner), depth in found.items():
            if (backlog := self.backlog(queue, owner)) is not None:
                depths[backlog] += depth
        for backlog in self.backlogs.values():
            missed = backlog.announced - before.get(backlog, 0) + backlog.claiming
            backlog.queued = depths[backlog] + missed
        self._executor.polled(found)
        self._executor.update(list(self.backlogs.values()))

    # -- running

    def may_claim(self) -> bool:
        return not (self.stopping or self._paused)

    async def claim(
        self,
        backlog: B,
        limit_s: float | None = None,
        *,
        owner: str | None = None,
        passed_over: Collection[str] = (),
    ) -> ClaimedJob | None:
        """Claim the next job of a line, which counts it in `claiming` before.

        Returns None if there is none, or the store did not answer in time.
        """
        before = backlog.announced
        try:
            if not self.may_claim():
                return None
            asked = self.claims.claim(backlog.queue, owner=owner, passed_over=passed_over)
            try:
                await settled(asked, limit_s)
            finally:
                abandoned = asked.cancel()
            if abandoned:
                self.pause("the store is slow")
                return None
            claimed = asked.result()
        except StoreFailed as error:
            self.pause(str(error))
            return None
        finally:
            backlog.claiming -= 1
            self._loop.call_soon(self._executor.update, (backlog,))
        self._pause_s = 0.0
        if claimed is None:  # others were first; what was announced meanwhile may be there
            backlog.queued = backlog.announced - before + backlog.claiming
            return None
        backlog.queued = max(backlog.claiming, backlog.queued - 1)
        if self.stopping:
            claimed.revoke("was stopped")
        return claimed

    async def run(self, claimed: ClaimedJob, running: Awaitable[Outcome | None]) -> None:
        """Wait for the outcome of a job, and record it; None: whoever revoked it has done so."""
        try:
            outcome = await running
            if outcome is not None:
                await record(
                    self.store, claimed, outcome, self._executor.unstorable, self._wait_to_retry
                )
        finally:
            self.claims.drop(claimed)

    def spawn(self, work: Coroutine[None, None, object]) -> None:
        """Begin a task that a stop waits for."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a task of the job loop failed", exc_info=error)

    async def _wait_to_retry(self, seconds: float) -> bool:
        """Wait for so long; return False if it all ends before."""
        try:
            async with asyncio.timeout(seconds):  # the store lives in real time
                await self._ending.wait()
        except TimeoutError:
            return True
        return False

    # -- pauses and timers

    def pause(self, reason: str) -> None:
        """Claim nothing for a while, doubled each time."""
        if not self.may_claim():
            return
        self._pause_s = min(max(PAUSE_S, 2 * self._pause_s), PAUSE_S_MAX)
        logger.warning("pausing job dispatch for %g s: %s", self._pause_s, reason)
        self._paused = True
        self._executor.hold()
        self._timers["resume"] = self._loop.call_later(self._pause_s, self._resume)

    def _resume(self) -> None:
        if self._paused:
            self._timers.pop("resume").cancel()
            self._paused = False
            self._executor.update(list(self.backlogs.values()))

    def _resume_after(self, poll: asyncio.Task[bool]) -> None:
        if not poll.cancelled() and poll.result():
            self._resume()

    def _beat(self) -> None:
        self.claims.beat()
        self._call_in("beat", self.claims.lease_s / BEATS_PER_LEASE, self._beat)

    def _poll_again(self) -> None:
        def answered(_: object) -> None:
            if not self.stopping:
                self._call_in("poll", self._poll_s, self._poll_again)

        self._poll_next().add_done_callback(answered)

    def _call_in(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        self._timers[name] = self._clock.call_at(self._clock.monotonic_s() + seconds, call)


async def _nothing(_: set[str]) -> bool:
    return False
