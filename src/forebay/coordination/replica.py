"""The coordinator of one replica of several.

`Roles` decide and do no I/O; this class hands them events and messages, performs their actions and
keeps their timer. `post` never waits and never re-enters, as in one process. `StoreTasks` sends
what is for other replicas, once per turn of the event loop.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

from forebay.coordination.follower.loan_reports import REPORT_S
from forebay.coordination.membership import Directory
from forebay.coordination.protocol.messages import (
    Broadcast,
    MemberLeft,
    Owner,
    OwnerAsked,
    ProbeNode,
    Resigned,
)
from forebay.coordination.protocol.wire_ids import WireIds
from forebay.coordination.roles import Roles
from forebay.coordination.serial_executor import SerialExecutor
from forebay.coordination.store_tasks import StoreTasks
from forebay.core import Arrived, Finished

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from forebay.clock import TimerHandle, Timers
    from forebay.coordination.port import Perform
    from forebay.coordination.protocol.fleet import Mode
    from forebay.coordination.protocol.messages import About, MemberStatus
    from forebay.coordination.store.port import Store, StoreReply
    from forebay.core import Action, Event, Options

Step: TypeAlias = "Callable[[float], list[Action]]"
"""Called with the time; returns the actions to perform."""

logger = logging.getLogger("forebay.coordination")


class Replica:
    """A `Coordinator` that shares its queue."""

    def __init__(
        self,
        about: About,
        options: Options,
        perform: Perform,
        clock: Timers,
        store: Store,
        *,
        lease_s: float,
    ) -> None:
        self.on_probe_request: Callable[[str], None] = lambda _: None
        self.ask_peers: Callable[[Sequence[str]], Awaitable[bool]] = _nobody
        """Asks the replicas at these addresses whether one of them has a leader."""
        self.resigned = False
        """Whether it must not become leader any more."""
        self.outages = 0
        self._clock = clock
        self._ids = WireIds(about.member)
        self.roles = Roles(about, options, lease_s, self._ids.open)
        self._reports = self.roles.follower.reports
        self._report_timer: TimerHandle | None = None
        self.roles.follower.on_notice = self._on_notice
        self.fleet = Directory(self)
        """The other replicas, for the rest of the gateway."""
        self._perform = perform
        self._executor: SerialExecutor[Step] = SerialExecutor(
            self._run, self._perform_own, clock, self.roles.next_deadline_s, self.roles.tick
        )
        self._store_tasks = StoreTasks(self, store, clock, lease_s)
        self.roles.on_step_down = self._store_tasks.heartbeat_now

    # -- the coordinator

    def post(self, event: Event) -> None:
        """Hand over one event; what needs no other replica is done before this returns."""
        if self._is_done_on_loan(event):
            return
        known = self._ids.to_wire(event)
        if known is not None:
            self._executor.submit(lambda now_s: self.roles.post(known, now_s))

    def submit(self, step: Step) -> None:
        """Take a step of the roles now, or after the one under way."""
        self._executor.submit(step)

    def _is_done_on_loan(self, event: Event) -> bool:
        """Start or end a request on a lent slot, of which nobody else need hear at once."""
        if type(event) is Arrived:
            return self._executor.is_free and self._has_started_on_loan(event)
        own_id = getattr(event, "id", None)
        if own_id not in self._reports.runs:
            return False
        if type(event) is not Finished or not self._executor.is_free:
            self.roles.follower.report_one(own_id)
            return False
        self.roles.follower.end_on_loan(event, self._clock.monotonic_s())
        if self.roles.follower.outbox.items:
            self._executor.submit(_nothing)
        return True

    def _has_started_on_loan(self, arrival: Arrived) -> bool:
        now_s = self._clock.monotonic_s()
        route = self.roles.follower.start_on_loan(arrival, now_s)
        if route is None:
            return False
        if self._report_timer is None:
            self._report_timer = self._clock.call_at(now_s + REPORT_S, self._report)
        self._executor.perform(self._perform, route)
        return True

    def _report(self) -> None:
        """Tell the leader what it has not heard of, and again after a while if there is more."""
        self._report_timer = None

        def report(now_s: float) -> list[Action]:
            self.roles.follower.report(now_s - REPORT_S)
            return []

        self._executor.submit(report)
        if self._reports and self._executor.is_free:
            at_s = self._clock.monotonic_s() + REPORT_S
            self._report_timer = self._clock.call_at(at_s, self._report)

    def _perform_own(self, action: Action) -> None:
        known = self._ids.from_wire(action)
        if known is not None:
            self._perform(known)

    def _run(self, step: Step, now_s: float) -> list[Action]:
        roles, tasks = self.roles, self._store_tasks
        was_alone = roles.is_alone
        actions = roles.run(step, now_s)
        if was_alone and not roles.is_alone:
            logger.warning("store reachable again")
        if not tasks.awake and roles.has_outgoing():
            tasks.wake()
        return actions

    # -- lifecycle

    def introduce(self, about: About) -> None:
        self._ids.member = about.member
        self.roles.introduce(about)

    async def start(self) -> None:
        """Join the fleet, or continue standalone where the store does not answer in a second."""
        await self._store_tasks.start()

    def stop(self) -> None:
        self._executor.stop()
        if self._report_timer is not None:
            self._report_timer.cancel()
        self._store_tasks.stop()
        self.fleet.stop()

    async def close(self) -> None:
        """Leave the fleet at once, without waiting for a lease to expire; close all connections."""
        self.stop()
        await self._store_tasks.close()

    def resign(self) -> None:
        """Give up leadership and say so, so that another replica takes over at once."""
        self.resigned = True
        self._store_tasks.heartbeat_now()

    # -- what it is

    @property
    def about(self) -> About:
        return self.roles.about

    @property
    def leads(self) -> bool:
        return self.roles.leads

    @property
    def epoch(self) -> int:
        return self.roles.epoch

    @property
    def mode(self) -> Mode:
        return self.roles.follower.mode

    def statuses(self) -> tuple[float, Sequence[MemberStatus], str]:
        """Return the time, the status of every replica as far as known here, and who leads."""
        now_s = self._clock.monotonic_s()
        leader = "" if self.roles.is_alone else self.roles.follower.leader
        return now_s, self.roles.statuses(now_s), leader

    # -- from the store

    def on_store_changed(self) -> None:
        """Ask the store now: it has another leader, or other members."""
        self._store_tasks.heartbeat_now()

    def on_store_reply(self, reply: StoreReply, asked_s: float) -> None:
        """Act on the reply to a heartbeat sent at `asked_s`."""
        roster = self.roles.roster
        roster.update(reply, self._clock.monotonic_s())
        if roster.has_namesake(reply):
            logger.error(
                "another gateway has the same address: set coordination.advertise on both",
                extra={"address": self.about.address},
            )
        if keys := roster.differing(reply):
            logger.warning(
                "settings differ from the leader's, which decide for all: %s",
                ", ".join(keys),
                extra={"leader": reply.leader},
            )
        self.roles.follower.members = tuple(about.member for about in reply.members)
        self.submit(lambda now_s: self.roles.take_reply(reply, asked_s, now_s))

    def on_store_lost(self, why: str) -> None:
        """Continue standalone: the store has not answered for too long."""
        if self.roles.is_alone:
            return
        self.outages += 1
        met = self.epoch > 0  # one that never met the others knows no share
        then = "continuing standalone" if met else "starting nothing until it has answered once"
        logger.warning("store unreachable: %s", then, extra={"error": why})
        self.submit(self.roles.lead_itself)

    # -- for the directory of the fleet

    def _on_notice(self, item: ProbeNode | Owner | Broadcast | MemberLeft | Resigned) -> None:
        """Take an order that is not about tickets."""
        match item:
            case Resigned():
                if item.leaves:
                    self.roles.roster.leave(self.roles.follower.leader)
                self._store_tasks.heartbeat_now()
            case MemberLeft():
                self.roles.roster.leave(item.member)
            case ProbeNode():
                self.on_probe_request(item.node)
            case Owner():
                self.fleet.on_owner(item.id, item.member)
            case Broadcast():
                self.fleet.receive_broadcast(item.topic, item.payload)

    def send(self, item: Broadcast | OwnerAsked) -> None:
        """Send the leader something that is not about a ticket of this replica."""

        def step(_: float) -> list[Action]:
            self.roles.follower.send(item)
            return []

        self._executor.submit(step)


def _nothing(_: float) -> list[Action]:
    """Have what was sent taken on its way."""
    return []


async def _nobody(_: Sequence[str]) -> bool:
    return False
