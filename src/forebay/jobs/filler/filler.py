"""Running jobs in idle capacity, model by model, through the one scheduler.

For every model with queued jobs exactly one ticket stands in line, in the class below all live
requests. When a slot is idle the core grants it; only then is the next job of that model claimed,
and at once the next ticket takes its place. So jobs use every idle slot, as many at once as there
are; they never crowd the live queue; they give way within one request, because a freed slot goes
to whatever is live first; and which model goes next is decided by the core's rule for swaps:
loaded models first, with a bound on how long the others wait.

What is claimed but not recorded when the program dies is found by the next start, or when the lease
ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from forebay.errors import StoreFailed
from forebay.jobs.filler.builtin import FAMILY, make_call, model_of
from forebay.jobs.filler.heartbeats import Leases
from forebay.jobs.filler.lane import Lane
from forebay.jobs.filler.recorder import Recorder
from forebay.jobs.filler.sink import JobSink
from forebay.jobs.job import Failure
from forebay.jobs.store.changes import in_time
from forebay.jobs.store.loop_listener import Hearing
from forebay.jobs.store.recovery import Recovery
from forebay.relay.members import InvalidBody
from forebay.relay.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future
    from random import Random

    from forebay.clock import TimerHandle, Timers
    from forebay.jobs.filler.builtin import Resolve
    from forebay.jobs.filler.fill_options import FillOptions
    from forebay.jobs.filler.sink import Outcome
    from forebay.jobs.job import Change, Job
    from forebay.jobs.store.job_store import JobStore
    from forebay.relay.relay import Relay
    from forebay.relay.reservation import Reservation

logger = logging.getLogger("forebay.jobs")

PARK_S = 2.0
"""How long a model rests that no node can serve just now."""
UNKNOWN_S = 60.0
"""How long a model may be unknown before its jobs fail: nodes may still be starting."""
POLL_S = 2.0
"""How often the store is asked what other processes have added or left: the net, not the way."""
CLAIM_S = 0.5
"""How long a granted slot waits for a job to be claimed: a commit takes a few milliseconds."""
PAUSE_S, PAUSE_S_MAX = 1.0, 30.0
"""How long no slot is asked for when the store was too slow, and then ever longer."""
STOP_S, LARGE_BYTES = 3.0, 524_288
TICKETS_MAX = 256
"""Models that may stand in line at once; the others follow when the store is looked at again."""


class Filler:
    """All built-in jobs of this gateway. `start` and `stop` once; everything on the loop."""

    def __init__(
        self,
        store: JobStore,
        relay: Relay,
        resolve: Resolve,
        clock: Timers,
        random: Random,
        options: FillOptions,
    ) -> None:
        self._store = store
        self._relay = relay
        self._resolve = resolve
        self._clock = clock
        self._random = random
        self._options = options
        self._recorder = Recorder(store, clock)
        self.worker = f"gateway-{random.randbytes(8).hex()}"
        self._leases = Leases(store, self.worker, options.lease_s, self._is_claiming)
        self._lanes: dict[str, Lane] = {}
        self._tickets: dict[str, Lane] = {}
        self._held: dict[tuple[int, int], JobSink] = {}  # by id and fence: a job may run again
        self._gone_early: set[tuple[int, int]] = set()  # ended before their claim reached us
        self._tasks: set[asyncio.Task[object]] = set()
        self._timers: dict[str, TimerHandle] = {}
        self._stopping = False
        self._resting = False  # while the store is slow
        self._looks = 0  # asked for, and not done yet
        self._pause_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._hearing = Hearing(store, self._take_in, self._look)

    # -- from outside

    async def start(self) -> None:
        """Begin with what is queued; raises StoreFailed."""
        self._hearing.start()
        await self._refresh()
        self._repeat("heartbeat", self._options.lease_s / 3, self._beat)
        self._repeat("poll", min(POLL_S, self._options.lease_s / 2), self._poll)

    def drain(self) -> None:
        """Take nothing more; what runs may finish."""
        self._stopping = True
        for timer in self._timers.values():
            timer.cancel()
        for lane in self._lanes.values():
            if lane.parked is not None:
                lane.parked.cancel()
            if lane.reservation is not None:
                lane.reservation.give_up()

    async def stop(self) -> None:
        """Stop what runs, and wait until that is recorded: it goes back to its place."""
        self.drain()
        self._hearing.stop()
        self._recorder.stop()
        for sink in list(self._held.values()):
            sink.interrupt()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=STOP_S)
            for task in late:  # of a store that hangs: what they hold is found by the next start
                task.cancel()

    @property
    def running(self) -> int:
        """How many jobs run here now."""
        return len(self._held)

    # -- what the store tells

    def _take_in(self, heard: list[Change]) -> None:
        touched: dict[str, Lane] = {}
        for change in heard:
            if model_of(change.queue) is None:
                continue
            lane = self._lane(change.queue)
            touched[change.queue] = lane
            if change.before == "queued":
                lane.queued = max(0, lane.queued - 1)
            if change.status == "queued":
                lane.queued += 1
                lane.heard += 1
            elif change.before == "running":
                self._abandon(change, lane)  # nothing, where it was we who ended it
        for lane in touched.values():
            self._top_up(lane)

    def _abandon(self, change: Change, lane: Lane) -> None:
        held = (change.id, change.fence)
        sink = self._held.get(held)
        if sink is not None:
            sink.leave()
        elif lane.claiming:
            self._gone_early.add(held)

    # -- tickets

    def _lane(self, queue: str) -> Lane:
        lane = self._lanes.get(queue)
        if lane is None:
            lane = self._lanes[queue] = Lane(queue, model_of(queue) or "")
        return lane

    def _top_up(self, lane: Lane) -> None:
        """Have one ticket in line while there is work; a grant inside `reserve` asks for more."""
        if lane.reserving:
            return
        lane.reserving = True
        try:
            while lane.wants_slot() and not self._stopping and self._has_room():
                lane.waiting = True
                ticket_id = f"job-{self._random.randbytes(12).hex()}"
                self._tickets[ticket_id] = lane
                model, fallbacks = self._resolve(lane.model)
                made = self._relay.reserve(ticket_id, model, FAMILY.name, fallbacks, self)
                lane.reservation = made if ticket_id in self._tickets else lane.reservation
        finally:
            lane.reserving = False
        if lane.is_idle():
            self._lanes.pop(lane.queue, None)

    def _has_room(self) -> bool:
        """Say whether one more ticket may stand in line: models are whatever callers write."""
        return not self._resting and len(self._tickets) < TICKETS_MAX

    def granted(self, reservation: Reservation) -> None:
        """Use a slot: claim the next job of the model."""
        lane = self._tickets.pop(reservation.id)
        lane.waiting, lane.reservation, lane.unknown_since_s = False, None, None
        lane.claiming += 1
        self._spawn(self._work(lane, reservation))
        self._top_up(lane)

    def refused(self, reservation: Reservation, problem: Problem) -> None:
        """Ask again in a while, and give up on a model that nobody has."""
        lane = self._tickets.pop(reservation.id)
        lane.waiting, lane.reservation = False, None
        if problem.code == "shutting_down":
            self._stopping = True
        if self._stopping:
            return
        now_s = self._clock.monotonic_s()
        unknown = problem.code in ("model_not_found", "route_not_supported")
        if not unknown or self._relay.nodes.is_starting():
            lane.unknown_since_s = None
        elif lane.unknown_since_s is None:
            lane.unknown_since_s = now_s
        elif now_s - lane.unknown_since_s >= UNKNOWN_S:
            self._spawn(self._give_up_on(lane, problem))
        self._park(lane)

    def _park(self, lane: Lane) -> None:
        def over() -> None:
            lane.parked = None
            self._top_up(lane)

        if lane.parked is None and not self._stopping:
            lane.parked = self._clock.call_at(self._clock.monotonic_s() + PARK_S, over)

    async def _give_up_on(self, lane: Lane, problem: Problem) -> None:
        failure = Failure(f"{problem.message}: {lane.model}", problem.code)
        with contextlib.suppress(StoreFailed):
            while await asyncio.wrap_future(self._store.fail_queue(lane.queue, failure)):
                pass

    # -- one job

    async def _work(self, lane: Lane, reservation: Reservation) -> None:
        """Claim a job, run it in the slot, record what became of it."""
        job: Job | None = None
        try:
            job = await self._claim(lane)
        finally:
            if job is None:
                reservation.give_up()
        if job is None:
            return
        held, sink = (job.id, job.fence), JobSink()
        self._held[held] = sink
        if self._stopping:
            sink.interrupt()
        elif held in self._gone_early:
            sink.leave()
        try:
            await self._recorder.record(
                job, reservation.id, await self._run(job, reservation, sink)
            )
        finally:
            reservation.give_up()  # nothing, once it has begun
            self._held.pop(held, None)

    async def _claim(self, lane: Lane) -> Job | None:
        """Claim a job; a store that is slow costs the jobs, not the slot that was granted."""
        before = lane.heard
        asked = self._store.claim(lane.queue, self.worker, self._options.lease_s)
        taken: list[Job] = []
        try:
            if await in_time(asked, CLAIM_S):
                taken = asked.result()
                self._pause_s = 0.0
                if not taken:  # others were first; what was heard of meanwhile may be there
                    lane.queued = lane.heard - before
            else:
                self._rest("the store is slow")
                if not asked.cancel():  # else it will never run
                    asked.add_done_callback(self._claimed_too_late)
        except StoreFailed as error:
            self._leases.in_doubt = True  # it may have been committed all the same
            self._rest(str(error))
        finally:
            lane.claiming -= 1
            if not self._is_claiming():
                self._loop.call_soon(self._gone_early.clear)  # whoever claimed has looked by then
            if not self._stopping:
                self._loop.call_soon(self._top_up, lane)
        return taken[0] if taken else None

    async def _run(self, job: Job, reservation: Reservation, sink: JobSink) -> Outcome:
        """Return what became of a job; a bug of ours fails it, or it would be running for ever."""
        try:
            await self._begin(job, reservation, sink)
            return await sink.outcome
        except Exception:
            logger.exception("a job could not be run", extra={"job": job.id})
            return Problem("internal_error", "an internal error; the log has the details")

    def _is_claiming(self) -> bool:
        return any(lane.claiming for lane in self._lanes.values())

    def _claimed_too_late(self, asked: Future[list[Job]]) -> None:
        """Put back what was claimed after its slot was given up; on the store's thread."""
        if asked.exception() is not None:
            self._leases.in_doubt = True
            return
        for job in asked.result():
            self._store.give_back(job, tried=False)

    def _rest(self, why: str) -> None:
        """Ask for no slot for a while, ever longer: none could be used."""
        if self._resting or self._stopping:
            return
        self._pause_s = min(max(PAUSE_S, 2 * self._pause_s), PAUSE_S_MAX)
        logger.warning("jobs rest for %g s: %s", self._pause_s, why)
        for lane in self._lanes.values():
            if lane.reservation is not None:
                self._tickets.pop(lane.reservation.id, None)
                lane.reservation.give_up()
                lane.waiting, lane.reservation = False, None
        self._resting = True
        self._timers["rest"] = self._loop.call_later(self._pause_s, self._go_on)

    def _go_on(self) -> None:
        self._resting = False
        for lane in list(self._lanes.values()):
            self._top_up(lane)

    async def _begin(self, job: Job, reservation: Reservation, sink: JobSink) -> None:
        """Send the job's request on its way, or settle why it cannot be."""
        if sink.outcome.done():
            return
        model, fallbacks = self._resolve(job.model)
        make = (job, reservation.id, reservation.model or model, fallbacks)
        is_large = len(job.params) >= LARGE_BYTES
        try:
            call = await asyncio.to_thread(make_call, *make) if is_large else make_call(*make)
        except (InvalidBody, KeyError, StopIteration) as error:
            sink.failed(Problem("invalid_request", f"the params cannot be used: {error}"), None)
            return
        if not sink.outcome.done():  # else it was cancelled meanwhile
            sink.carries(reservation.begin(call, sink))

    # -- the clock

    def _spawn(self, work: Coroutine[None, None, object]) -> asyncio.Task[object]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a job's work failed", exc_info=error)

    def _repeat(
        self, name: str, every_s: float, work: Callable[[], Coroutine[None, None, object]]
    ) -> None:
        def again() -> None:
            if not self._stopping:  # of a store that hangs nothing more is asked
                self._spawn(work()).add_done_callback(lambda _: self._repeat(name, every_s, work))

        self._timers[name] = self._clock.call_at(self._clock.monotonic_s() + every_s, again)

    def _look(self) -> None:
        """See what others did without our hearing of it."""
        self._looks += 1
        if self._looks == 1:
            self._spawn(self._look_again())

    async def _look_again(self) -> None:
        while asked := self._looks:
            if not self._stopping:
                await self._beat()
                if await self._poll() and self._resting:
                    self._timers["rest"].cancel()
                    self._go_on()  # the store is back, whatever was wrong
            self._looks -= asked

    async def _beat(self) -> None:
        for sink in await self._leases.beat(self._held):
            sink.leave()

    async def _poll(self) -> bool:
        """See what other processes have added, and take over what they left; False: no answer."""
        options = self._options
        how = Recovery(options.retry, options.attempts, True, options.never_again, options.known)
        try:
            if not self._store.database.is_sqlite:
                await asyncio.wrap_future(self._store.recover(how))
            await self._refresh()
            return True
        except StoreFailed as error:
            logger.warning("the store was not asked: %s", error)
            return False

    async def _refresh(self) -> None:
        depths = await asyncio.wrap_future(self._store.depths())
        for queue in filter(model_of, depths):
            self._lane(queue)
        for lane in self._lanes.values():
            lane.queued = depths.get(lane.queue, 0)
        for lane in list(self._lanes.values()):
            self._top_up(lane)
