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
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.core import Arrived
from forebay.errors import StoreFailed
from forebay.jobs.builtin import FAMILY, model_of
from forebay.jobs.idle.backlog import ModelBacklog
from forebay.jobs.idle.request import LARGE_BYTES, ask_node
from forebay.jobs.job import Failure
from forebay.jobs.outcomes import settled
from forebay.relay.fields import prompt_tokens
from forebay.relay.relay import ABOUT_THE_MODEL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from forebay.clock import Timers
    from forebay.core import WaitReason
    from forebay.jobs.builtin import Resolve
    from forebay.jobs.claims import ClaimedJob
    from forebay.jobs.job import StoredJob
    from forebay.jobs.loop import JobLoop
    from forebay.relay.problem import Problem
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
CLAIM_S = 0.5
"""How long a granted slot waits for a job to be claimed: a commit takes a few milliseconds."""
TICKETS_MAX = 256
"""Models that may have a ticket at once, of each key with limits and of all others together; the
rest follows when the store is polled again."""

UNSTORABLE = Failure("the outcome cannot be stored; the log has the details", "internal_error")


@dataclass(frozen=True)
class SlotSource:
    """What tickets need from the gateway."""

    relay: Relay
    resolve: Resolve
    clock: Timers
    explain: Callable[[Problem, str, str], Problem]
    """Adds to a problem with a model what the owner of a job may ask for instead."""
    paced: Callable[[], Mapping[str, int]]
    """Returns the owners of the keys that have limits or a `max_running`, with that."""
    shares_nodes: bool = False
    """Whether all gateways on this database have the same nodes."""


class TicketExecutor:
    """The executor of all built-in jobs of one gateway."""

    def __init__(self, loop: JobLoop[ModelBacklog], slots: SlotSource) -> None:
        self._loop = loop
        self._store = loop.store
        self._slots = slots
        self._nodes = slots.relay.nodes
        self._tickets: dict[str, ModelBacklog] = {}
        self._noted_s: dict[str, float] = {}  # when other gateways were told of a queue's model
        self._others_have_nodes = loop.store.changes.shared and not slots.shares_nodes

    def waits_for(self, job: StoredJob) -> WaitReason | None:
        """Return why its key had to wait when a slot was last asked for; None where it had not."""
        backlog = self._loop.backlogs.get((job.queue, job.owner))
        reservation = None if backlog is None or not backlog.owner else backlog.reservation
        return None if reservation is None else reservation.reason

    # -- for the loop

    def line_of(self, queue: str, owner: str) -> str | None:
        if model_of(queue) is None:
            return None
        return owner if owner in self._slots.paced() else ""

    def make_backlog(self, queue: str, owner: str) -> ModelBacklog:
        return ModelBacklog(queue, owner)

    def update(self, backlogs: Collection[ModelBacklog]) -> None:
        for backlog in backlogs:
            self._top_up(backlog)

    def polled(self, depths: object) -> None:
        for backlog in list(self._loop.backlogs.values()):
            self._renew_ticket(backlog)
        if self._others_have_nodes:
            self._loop.spawn(self._note_served())

    def hold(self) -> None:
        for backlog in list(self._loop.backlogs.values()):
            self._give_up(backlog)

    def unstorable(self, error: BaseException) -> Failure:
        return UNSTORABLE

    async def abandon(self, claimed: object) -> None:
        """Do nothing: the store hangs, or they had stopped. The next start finds them."""

    # -- tickets

    def _top_up(self, backlog: ModelBacklog) -> None:
        """Keep one ticket waiting while there is work; a grant inside `reserve` asks for more."""
        if backlog.reserving:
            return
        backlog.reserving = True
        try:
            while backlog.wants_slot() and self._may_reserve(backlog):
                if backlog.owner and not backlog.measured:
                    backlog.measuring = True
                    self._loop.spawn(self._measure(backlog))
                    break
                backlog.waiting = True
                ticket_id = f"job-{secrets.token_hex(12)}"
                self._tickets[ticket_id] = backlog
                made = self._slots.relay.reserve(self._arrival(ticket_id, backlog), self)
                backlog.reservation = made if ticket_id in self._tickets else backlog.reservation
        finally:
            backlog.reserving = False
        if backlog.is_idle():
            self._loop.backlogs.pop((backlog.queue, backlog.owner), None)

    async def _measure(self, backlog: ModelBacklog) -> None:
        """Guess the prompt of the next job, then ask for its slot; a slow store is not waited for.

        The guess before stands where it cannot be read. Without a next job there is no ticket: it
        would take one of the few places of its key.
        """
        before = backlog.announced
        try:
            asked = self._store.first_params(backlog.queue, backlog.owner)
            await settled(asked, CLAIM_S)
            if not asked.done():
                return
            params = asked.result()
            if params is not None:
                backlog.prompt_tokens = await _guess_prompt(params)
            else:
                backlog.queued = backlog.announced - before
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
        if backlog.running_max != self._slots.paced().get(backlog.owner, 0):
            self._give_up(backlog)
            return  # the next ticket has the cap of now
        if all(self._known(backlog.model)) or self._nodes.is_starting():
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
        model, fallbacks = self._slots.resolve(backlog.model)
        backlog.running_max = self._slots.paced().get(backlog.owner, 0)
        return Arrived(
            ticket_id, model, FAMILY.name, prompt_tokens=backlog.prompt_tokens, job=True,
            key=backlog.owner, key_running_max=backlog.running_max, fallbacks=fallbacks,
        )  # fmt: skip

    def _may_reserve(self, backlog: ModelBacklog) -> bool:
        """Say whether one more ticket may wait: models are whatever callers write."""
        waiting = self._tickets.values()  # a key that must pause keeps nobody else's from waiting
        theirs = sum(one.owner == backlog.owner for one in waiting)
        return self._loop.may_claim() and theirs < TICKETS_MAX

    # -- for the relay

    def granted(self, reservation: Reservation) -> None:
        """Use a slot: claim the next job of the model."""
        backlog = self._tickets.pop(reservation.id)
        backlog.waiting, backlog.reservation, backlog.unknown_since_s = False, None, None
        backlog.measured = False
        backlog.claiming += 1
        self._loop.spawn(self._work(backlog, reservation))
        self._top_up(backlog)

    def refused(self, reservation: Reservation, problem: Problem) -> None:
        """Ask again in a while, and fail the jobs of a model that nobody has."""
        backlog = self._tickets.pop(reservation.id)
        backlog.waiting, backlog.reservation = False, None
        if problem.code == "shutting_down":
            self._loop.stopping = True
        if self._loop.stopping:
            return
        if problem.code not in ABOUT_THE_MODEL or self._nodes.is_starting():
            backlog.unknown_since_s = None
        elif self._is_gone(backlog):
            self._loop.spawn(self._fail_all(backlog, problem))
        self._park(backlog)

    async def _work(self, backlog: ModelBacklog, reservation: Reservation) -> None:
        """Claim a job, run it in the slot, record what became of it."""
        try:
            claimed = await self._claim(backlog)
            if claimed is not None:
                asked = ask_node(claimed, reservation, self._slots.resolve)
                await self._loop.run(claimed, asked)
        finally:
            reservation.give_up()  # nothing, once it has begun

    async def _claim(self, backlog: ModelBacklog) -> ClaimedJob | None:
        """Claim a job; a store that is slow costs the jobs, not the slot that was granted."""
        if backlog.owner:
            return await self._loop.claim(backlog, CLAIM_S, owner=backlog.owner)
        return await self._loop.claim(backlog, CLAIM_S, passed_over=self._slots.paced())

    # -- models that no node has

    def _known(self, model: str) -> list[bool]:
        """Say of the model and each of its fallbacks whether a node has it."""
        name, fallbacks = self._slots.resolve(model)
        return [self._nodes.knows(one, FAMILY.name) for one in (name, *fallbacks)]

    def _is_gone(self, backlog: ModelBacklog) -> bool:
        """Say whether to give up on a model, now that every node has said that it has it not."""
        if not self._others_have_nodes and any(self._nodes):
            return True
        return self._is_overdue(backlog)

    def _is_overdue(self, backlog: ModelBacklog) -> bool:
        """Say whether the model has been unknown for GONE_S, or take note that it is now."""
        now_s = self._slots.clock.monotonic_s()
        if backlog.unknown_since_s is None:
            backlog.unknown_since_s = now_s
        return now_s - backlog.unknown_since_s >= GONE_S

    def _park(self, backlog: ModelBacklog) -> None:
        def over() -> None:
            backlog.parked = None
            self._top_up(backlog)

        if backlog.parked is None:
            clock = self._slots.clock
            backlog.parked = clock.call_at(clock.monotonic_s() + PARK_S, over)

    async def _fail_all(self, backlog: ModelBacklog, problem: Problem) -> None:
        store, queue = self._store, backlog.queue
        with contextlib.suppress(StoreFailed):
            if self._others_have_nodes and await asyncio.wrap_future(
                store.is_served(queue, self._loop.claims.worker)
            ):
                return
            while (owner := await asyncio.wrap_future(store.first_owner(queue))) is not None:
                explained = self._slots.explain(problem, backlog.model, owner)
                failure = Failure(explained.message, explained.code)
                if not await asyncio.wrap_future(store.fail_queue(queue, failure, owner=owner)):
                    return  # another gateway is at it

    async def _note_served(self) -> None:
        """Tell other gateways of the models of jobs that are here: they must not fail them."""
        now_s = self._slots.clock.monotonic_s()
        queues = {one.queue for one in self._loop.backlogs.values()}
        queues |= {claimed.job.queue for claimed in self._loop.claims.all()}
        noted = {queue for queue in queues if now_s - self._noted_s.get(queue, -NOTE_S) < NOTE_S}
        new = [queue for queue in queues - noted if any(self._known(model_of(queue) or ""))]
        if new:
            with contextlib.suppress(StoreFailed):  # the next poll does it
                await asyncio.wrap_future(self._store.note_served(new, self._loop.claims.worker))
                self._noted_s.update(dict.fromkeys(new, now_s))


async def _guess_prompt(params: str) -> int:
    if len(params) < LARGE_BYTES:
        return prompt_tokens(params.encode())
    return await asyncio.to_thread(lambda: prompt_tokens(params.encode()))
