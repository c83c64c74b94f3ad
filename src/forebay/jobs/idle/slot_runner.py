"""Runs jobs of the built-in types in idle slots, model by model, through the one scheduler.

For every model with queued jobs exactly one ticket waits in the queue, in the class below all live
requests. When a slot is idle the core grants it; only then is the next job of that model claimed,
and at once the next ticket takes its place. So jobs use every idle slot, as many at once as there
are; they never crowd the live queue; they give way within one request, because a freed slot goes
to whatever is live first; and which model goes next is decided by the core's rule for swaps:
loaded models first, with a bound on how long the others wait.

The jobs of a key with limits, or with `max_running`, have a ticket of their own for each model,
which names the key: the core charges it as it does live requests, and parks it while the key must
pause, or has no room for another request. So nothing of that key is claimed meanwhile, and the
tickets of all others are granted as before. What it is charged is guessed from the job that is
next when the ticket is made; which one it will be used for, nobody can know. The next ticket is
made when a job has been claimed for this one.

What is claimed but not recorded when the program dies is found by the next start, or when the lease
expires.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import Counter
from typing import TYPE_CHECKING, Any

from forebay.core import Arrived
from forebay.errors import StoreFailed
from forebay.jobs.builtin import FAMILY, make_call, model_of
from forebay.jobs.claims import BEATS_PER_LEASE, ClaimSet
from forebay.jobs.idle.backlog import ModelBacklog
from forebay.jobs.idle.sink import JobSink, to_outcome
from forebay.jobs.job import Failure
from forebay.jobs.outcomes import Recording, Requeued
from forebay.jobs.store.change_bus import LoopListener
from forebay.relay.fields import prompt_tokens
from forebay.relay.members import InvalidBody
from forebay.relay.problem import Problem
from forebay.relay.relay import ABOUT_THE_MODEL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from concurrent.futures import Future

    from forebay.clock import TimerHandle, Timers
    from forebay.core import WaitReason
    from forebay.jobs.builtin import Resolve
    from forebay.jobs.claims import ClaimedJob
    from forebay.jobs.job import Change, StoredJob
    from forebay.jobs.outcomes import Outcome
    from forebay.jobs.store.job_store import JobStore
    from forebay.jobs.store.recovery import Recovery
    from forebay.relay.call import InferenceCall
    from forebay.relay.relay import Relay
    from forebay.relay.reservation import Reservation

logger = logging.getLogger("forebay.jobs")

PARK_S = 2.0
"""How long no slot is asked for a model that no node can serve just now."""
GONE_S = 60.0
"""How long nobody may have a model before its jobs fail, where it may come: there is no node
at all, its last node was removed while a ticket waited for it, or other gateways may have nodes
that are not known here, and none of them has ever had it."""
NOTE_S = 20.0
"""How often such gateways are told which models are here."""
POLL_S = 2.0
"""How often the store is asked what other gateways have added or left, should a notification be
lost."""
CLAIM_S = 0.5
"""How long a granted slot waits for a job to be claimed: a commit takes a few milliseconds."""
PAUSE_S, PAUSE_S_MAX = 1.0, 30.0
"""How long no slot is asked for when the store was too slow; doubled each time."""
STOP_S, LARGE_BYTES = 3.0, 524_288
TICKETS_MAX = 256
"""Models that may have a ticket at once, of each key with limits and of all others together; the
rest follows when the store is polled again."""

INTERNAL_ERROR = Failure("an internal error; the log has the details", "internal_error")
UNSTORABLE = Failure("the outcome cannot be stored; the log has the details", "internal_error")


class IdleSlotRunner:
    """All built-in jobs of this gateway. `start` and `stop` once; everything on the loop."""

    def __init__(
        self,
        store: JobStore,
        relay: Relay,
        resolve: Resolve,
        clock: Timers,
        lease_s: float,
        recovery: Recovery,
    ) -> None:
        """`recovery` says what becomes of jobs whose gateway died, on PostgreSQL."""
        self._store = store
        self._relay = relay
        self._resolve = resolve
        self._clock = clock
        self._lease_s = lease_s
        self._recovery = recovery
        self._name = f"gateway-{secrets.token_hex(8)}"
        self._claims = ClaimSet(store, self._name, lease_s)
        self._noted_s: dict[str, float] = {}  # when others were told of a queue's model
        self._backlogs: dict[tuple[str, str], ModelBacklog] = {}  # by queue, and key with limits
        self._tickets: dict[str, ModelBacklog] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self._timers: dict[str, TimerHandle] = {}
        self._retries: set[asyncio.Event] = set()  # of outcomes that wait to be written again
        self._stopping = False
        self._ending = False  # outcomes are not written again
        self._paused = False  # while the store is slow
        self._pause_s = 0.0
        self._looks = 0  # asked for, and not done yet
        self._loop = asyncio.get_running_loop()
        self._listener = LoopListener(store, self._take_in, self.look)
        self.explain: Callable[[Problem, str, str], Problem] = lambda problem, *_: problem
        """Adds to a problem what the owner may ask for instead of the model."""
        self.shares_nodes = False
        """Whether all gateways on this database have the same nodes."""
        self.paced: Callable[[], Mapping[str, int]] = dict
        """Returns the owners of the keys that have limits or a `max_running`, with that."""
        self.end_revoked: Callable[[set[str]], Awaitable[bool]] = _nothing
        """Ends what owners whose key was revoked have queued; returns whether there was any."""

    async def start(self) -> None:
        """Begin with what is queued; raises StoreFailed."""
        self._listener.start()
        await self._refresh()
        self._repeat("heartbeat", self._lease_s / BEATS_PER_LEASE, self._beat)
        self._repeat("poll", min(POLL_S, self._lease_s / 2), self._poll)

    def drain(self) -> None:
        """Take nothing more; what runs may finish."""
        self._stopping = True
        for timer in self._timers.values():
            timer.cancel()
        for backlog in self._backlogs.values():
            if backlog.parked is not None:
                backlog.parked.cancel()
            if backlog.reservation is not None:
                backlog.reservation.give_up()

    async def stop(self) -> None:
        """Stop what runs, and wait until that is recorded: it goes back to its place."""
        self.drain()
        self._listener.stop()
        self._ending = True
        for retry in self._retries:
            retry.set()
        self._claims.stop()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=STOP_S)
            for task in late:  # of a store that hangs: what they hold is found by the next start
                task.cancel()

    def waits_for(self, job: StoredJob) -> WaitReason | None:
        """Return why its key had to wait when a slot was last asked for; None where it had not."""
        backlog = self._backlogs.get((job.queue, job.owner))
        reservation = None if backlog is None or not backlog.owner else backlog.reservation
        return None if reservation is None else reservation.reason

    # -- what the store tells

    def _take_in(self, heard: list[Change]) -> None:
        touched: dict[ModelBacklog, None] = {}
        for change in heard:
            if model_of(change.queue) is None or not self._store.in_force(change.owner):
                continue
            backlog = self._backlog(change.queue, change.owner)
            touched[backlog] = None
            if change.before == "queued":
                backlog.queued = max(0, backlog.queued - 1)
            if change.status == "queued":
                backlog.queued += 1
                backlog.heard += 1
            self._claims.hear(change)
        for backlog in touched:
            self._top_up(backlog)

    def look(self) -> None:
        """Poll at once: keys have changed, or what other gateways did may have been missed."""
        self._looks += 1
        if self._looks == 1:
            self._spawn(self._look_again())

    async def _look_again(self) -> None:
        while asked := self._looks:
            if not self._stopping:
                self._claims.beat()
                if await self._poll() and self._paused:
                    self._timers["resume"].cancel()
                    self._resume()  # the store is back, whatever was wrong
            self._looks -= asked

    async def _beat(self) -> None:
        self._claims.beat()

    async def _poll(self) -> bool:
        """See what other gateways have added, and recover what they left; False: no answer."""
        try:
            if not self._store.database.is_sqlite:
                await asyncio.wrap_future(self._store.recover(self._recovery))
            await self._refresh()
            await self._note_served()
            return True
        except StoreFailed as error:
            logger.warning("polling the job store failed: %s", error)
            return False

    async def _refresh(self) -> None:
        depths: Counter[ModelBacklog] = Counter()
        found = await asyncio.wrap_future(self._store.owner_depths())
        if await self.end_revoked({owner for _, owner in found}):
            found = await asyncio.wrap_future(self._store.owner_depths())
        for (queue, owner), depth in found.items():
            if model_of(queue) is not None and self._store.in_force(owner):
                depths[self._backlog(queue, owner)] += depth
        for backlog in self._backlogs.values():
            backlog.queued = depths[backlog]
        for backlog in list(self._backlogs.values()):
            self._renew_ticket(backlog)
            self._top_up(backlog)

    @property
    def _others_have_nodes(self) -> bool:
        return self._store.changes.shared and not self.shares_nodes

    async def _note_served(self) -> None:
        """Tell other gateways of the models of jobs that are here: they must not fail them."""
        if not self._others_have_nodes:
            return
        now_s = self._clock.monotonic_s()
        queues = {one.queue for one in self._backlogs.values()}
        queues |= {claimed.job.queue for claimed in self._claims.all()}
        told = {queue for queue in queues if now_s - self._noted_s.get(queue, -NOTE_S) < NOTE_S}
        new = [queue for queue in queues - told if any(self._known(model_of(queue) or ""))]
        if new:
            await asyncio.wrap_future(self._store.note_served(new, self._name))
            self._noted_s.update(dict.fromkeys(new, now_s))

    def _known(self, model: str) -> list[bool]:
        """Say of the model and each of its fallbacks whether a node has it."""
        name, fallbacks = self._resolve(model)
        return [self._relay.nodes.knows(one, FAMILY.name) for one in (name, *fallbacks)]

    # -- tickets

    def _backlog(self, queue: str, owner: str) -> ModelBacklog:
        owner = owner if owner in self.paced() else ""
        backlog = self._backlogs.get((queue, owner))
        if backlog is None:
            backlog = ModelBacklog(queue, model_of(queue) or "", owner)
            self._backlogs[queue, owner] = backlog
        return backlog

    def _top_up(self, backlog: ModelBacklog) -> None:
        """Keep one ticket waiting while there is work; a grant inside `reserve` asks for more."""
        if backlog.reserving:
            return
        backlog.reserving = True
        try:
            while backlog.wants_slot() and self._may_reserve(backlog):
                if backlog.owner and not backlog.measured:
                    backlog.measuring = True
                    self._spawn(self._measure(backlog))
                    break
                backlog.waiting = True
                ticket_id = f"job-{secrets.token_hex(12)}"
                self._tickets[ticket_id] = backlog
                made = self._relay.reserve(self._arrival(ticket_id, backlog), self)
                backlog.reservation = made if ticket_id in self._tickets else backlog.reservation
        finally:
            backlog.reserving = False
        if backlog.is_idle():
            self._backlogs.pop((backlog.queue, backlog.owner), None)

    async def _measure(self, backlog: ModelBacklog) -> None:
        """Guess the prompt of the next job, then ask for its slot; a slow store is not waited for.

        The guess before stands where it cannot be read.
        """
        try:
            asked = self._store.first_params(backlog.queue, backlog.owner)
            await settled(asked, CLAIM_S)
            if asked.done() and (params := asked.result()) is not None:
                backlog.prompt_tokens = await _guess_prompt(params)
        except StoreFailed as error:
            logger.warning("the next job of key %s cannot be read: %s", backlog.owner, error)
        finally:
            backlog.measuring, backlog.measured = False, True
        self._top_up(backlog)

    def _renew_ticket(self, backlog: ModelBacklog) -> None:
        """Give up a ticket whose model, or one of its fallbacks, no node has had for GONE_S.

        It may wait for a node that was removed. A new one is refused, or waits where there is one.
        """
        if backlog.reservation is None:
            return
        if backlog.running_max != self.paced().get(backlog.owner, 0):
            self._give_up(backlog)
            return  # the next ticket has the cap of now
        if all(self._known(backlog.model)) or self._relay.nodes.is_starting():
            backlog.unknown_since_s = None
        elif self._is_overdue(backlog):
            self._give_up(backlog)
            self._top_up(backlog)
            if backlog.waiting:
                backlog.unknown_since_s = None

    def _give_up(self, backlog: ModelBacklog) -> None:
        if backlog.reservation is not None:
            self._tickets.pop(backlog.reservation.id, None)
            backlog.reservation.give_up()
            backlog.waiting, backlog.reservation = False, None

    def _arrival(self, ticket_id: str, backlog: ModelBacklog) -> Arrived:
        model, fallbacks = self._resolve(backlog.model)
        backlog.running_max = self.paced().get(backlog.owner, 0)
        return Arrived(
            ticket_id, model, FAMILY.name, prompt_tokens=backlog.prompt_tokens, job=True,
            key=backlog.owner, key_running_max=backlog.running_max, fallbacks=fallbacks,
        )  # fmt: skip

    def _may_reserve(self, backlog: ModelBacklog) -> bool:
        """Say whether one more ticket may wait: models are whatever callers write."""
        if self._stopping or self._paused:
            return False
        waiting = self._tickets.values()  # a key that must pause keeps nobody else's from waiting
        return sum(one.owner == backlog.owner for one in waiting) < TICKETS_MAX

    def granted(self, reservation: Reservation) -> None:
        """Use a slot: claim the next job of the model."""
        backlog = self._tickets.pop(reservation.id)
        backlog.waiting, backlog.reservation, backlog.unknown_since_s = False, None, None
        backlog.measured = False
        backlog.claiming += 1
        self._spawn(self._work(backlog, reservation))
        self._top_up(backlog)

    def refused(self, reservation: Reservation, problem: Problem) -> None:
        """Ask again in a while, and fail the jobs of a model that nobody has."""
        backlog = self._tickets.pop(reservation.id)
        backlog.waiting, backlog.reservation = False, None
        if problem.code == "shutting_down":
            self._stopping = True
        if self._stopping:
            return
        if problem.code not in ABOUT_THE_MODEL or self._relay.nodes.is_starting():
            backlog.unknown_since_s = None
        elif self._is_gone(backlog):
            self._spawn(self._fail_all(backlog, problem))
        self._park(backlog)

    def _is_gone(self, backlog: ModelBacklog) -> bool:
        """Say whether to give up on a model, now that every node has said that it has it not."""
        if not self._others_have_nodes and any(self._relay.nodes):
            return True
        return self._is_overdue(backlog)

    def _is_overdue(self, backlog: ModelBacklog) -> bool:
        """Say whether the model has been unknown for GONE_S, or take note that it is now."""
        now_s = self._clock.monotonic_s()
        if backlog.unknown_since_s is None:
            backlog.unknown_since_s = now_s
        return now_s - backlog.unknown_since_s >= GONE_S

    def _park(self, backlog: ModelBacklog) -> None:
        def over() -> None:
            backlog.parked = None
            self._top_up(backlog)

        if backlog.parked is None and not self._stopping:
            backlog.parked = self._clock.call_at(self._clock.monotonic_s() + PARK_S, over)

    async def _fail_all(self, backlog: ModelBacklog, problem: Problem) -> None:
        store, queue = self._store, backlog.queue
        with contextlib.suppress(StoreFailed):
            if self._others_have_nodes and await asyncio.wrap_future(
                store.is_served(queue, self._name)
            ):
                return
            while (owner := await asyncio.wrap_future(store.first_owner(queue))) is not None:
                said = self.explain(problem, backlog.model, owner)
                failure = Failure(said.message, said.code)
                if not await asyncio.wrap_future(store.fail_queue(queue, failure, owner=owner)):
                    return  # another gateway is at it

    def _pause(self, reason: str) -> None:
        """Ask for no slot for a while, doubled each time: none could be used."""
        if self._paused or self._stopping:
            return
        self._pause_s = min(max(PAUSE_S, 2 * self._pause_s), PAUSE_S_MAX)
        logger.warning("pausing job dispatch for %g s: %s", self._pause_s, reason)
        for backlog in self._backlogs.values():
            self._give_up(backlog)
        self._paused = True
        self._timers["resume"] = self._loop.call_later(self._pause_s, self._resume)

    def _resume(self) -> None:
        self._paused = False
        for backlog in list(self._backlogs.values()):
            self._top_up(backlog)

    # -- one job

    async def _work(self, backlog: ModelBacklog, reservation: Reservation) -> None:
        """Claim a job, run it in the slot, record what became of it."""
        claimed: ClaimedJob | None = None
        try:
            claimed = await self._claim(backlog)
        finally:
            if claimed is None:
                reservation.give_up()
        if claimed is None:
            return
        if self._stopping:
            claimed.revoke("was stopped")
        try:
            outcome = await self._run(claimed, reservation)
            if outcome is not None:
                await self._record(claimed, outcome)
        finally:
            reservation.give_up()  # nothing, once it has begun
            self._claims.drop(claimed)

    async def _claim(self, backlog: ModelBacklog) -> ClaimedJob | None:
        """Claim a job; a store that is slow costs the jobs, not the slot that was granted."""
        before = backlog.heard
        if backlog.owner:
            asked = self._claims.claim(backlog.queue, owner=backlog.owner)
        else:
            asked = self._claims.claim(backlog.queue, passed_over=self.paced())
        try:
            try:
                await settled(asked, CLAIM_S)
            finally:
                abandoned = asked.cancel()
            if abandoned:
                self._pause("the store is slow")
                return None
            claimed = asked.result()
            self._pause_s = 0.0
            if claimed is None:  # others were first; what was heard of meanwhile may be there
                backlog.queued = backlog.heard - before
            return claimed
        except StoreFailed as error:
            self._pause(str(error))
            return None
        finally:
            backlog.claiming -= 1
            if not self._stopping:
                self._loop.call_soon(self._top_up, backlog)

    async def _run(self, claimed: ClaimedJob, reservation: Reservation) -> Outcome | None:
        """Return the outcome; None where whoever revoked the job has recorded one."""
        sink = JobSink()

        def interrupt() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has closed
                self._loop.call_soon_threadsafe(sink.abandon)

        claimed.on_revoke(interrupt)
        try:
            call = await self._make_call(claimed, reservation, sink)
            if call is not None:
                sink.carries(reservation.begin(call, sink))
            answer = await sink.answer
            if answer is None:
                return Requeued() if claimed.revoked == "was stopped" else None
            made = (claimed.job, reservation.id, answer)
            if sink.size < LARGE_BYTES:
                return to_outcome(*made)
            return await asyncio.to_thread(to_outcome, *made)
        except Exception:  # a bug of ours fails the job, or it would be running for ever
            logger.exception("job %d could not be run", claimed.job.id)
            return INTERNAL_ERROR

    async def _make_call(
        self, claimed: ClaimedJob, reservation: Reservation, sink: JobSink
    ) -> InferenceCall | None:
        """Return the job's request; None, where it is settled why it cannot be sent."""
        if claimed.revoked:
            return None
        job = claimed.job
        model, fallbacks = self._resolve(job.model)
        make = (job, reservation.id, reservation.model or model, fallbacks)
        is_large = len(job.params) >= LARGE_BYTES
        try:
            call = await asyncio.to_thread(make_call, *make) if is_large else make_call(*make)
        except (InvalidBody, KeyError, StopIteration) as error:
            sink.failed(Problem("invalid_request", f"the params cannot be used: {error}"), None)
            return None
        return None if claimed.revoked else call  # meanwhile

    async def _record(self, claimed: ClaimedJob, outcome: Outcome) -> None:
        recording = Recording(self._store, claimed, outcome, lambda _: UNSTORABLE)
        while True:
            written = recording.write()
            await settled(written)
            pause_s = recording.retry_s(written)
            if pause_s is None:
                return
            if pause_s:
                await self._wait_to_retry(pause_s)
                if self._ending:
                    recording.give_up()
                    return

    async def _wait_to_retry(self, seconds: float) -> None:
        """Wait for so long, or until `stop`."""
        over = asyncio.Event()
        timer = self._clock.call_at(self._clock.monotonic_s() + seconds, over.set)
        self._retries.add(over)
        try:
            if not self._ending:
                await over.wait()
        finally:
            self._retries.discard(over)
            timer.cancel()

    # -- tasks and timers

    def _spawn(self, work: Coroutine[None, None, object]) -> asyncio.Task[object]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a task of the job runner failed", exc_info=error)

    def _repeat(
        self, name: str, every_s: float, work: Callable[[], Coroutine[None, None, object]]
    ) -> None:
        def again() -> None:
            if not self._stopping:  # of a store that hangs nothing more is asked
                self._spawn(work()).add_done_callback(lambda _: self._repeat(name, every_s, work))

        self._timers[name] = self._clock.call_at(self._clock.monotonic_s() + every_s, again)


async def _nothing(_: set[str]) -> bool:
    return False


async def _guess_prompt(params: str) -> int:
    if len(params) < LARGE_BYTES:
        return prompt_tokens(params.encode())
    return await asyncio.to_thread(lambda: prompt_tokens(params.encode()))


async def settled(future: Future[Any], limit_s: float | None = None) -> None:
    """Wait until a future of the store is done, or for so long; take no result."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def wake(_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has closed
            loop.call_soon_threadsafe(over.set)

    future.add_done_callback(wake)
    # The store lives in real time.
    timer = None if limit_s is None else loop.call_later(limit_s, over.set)
    try:
        await over.wait()
    finally:
        if timer is not None:
            timer.cancel()
