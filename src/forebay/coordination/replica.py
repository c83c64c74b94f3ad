"""The coordinator of one replica of several: always a follower, sometimes the leader as well.

`Follower` and `Leader` decide and do no I/O; this class hands them events and messages, performs
their actions and keeps their timer. `post` never waits and never re-enters, as in one process.
`StoreTasks` sends what is for other replicas, once per turn of the event loop.

A leader's own requests pass between its two halves in memory: a single replica works as if it had
no store.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

from forebay.coordination.follower.follower import USABLE, Follower
from forebay.coordination.follower.loan_reports import REPORT_S, LoanReports
from forebay.coordination.leader.leader import Leader
from forebay.coordination.leader.totals import highest
from forebay.coordination.membership import Directory, Roster
from forebay.coordination.protocol.messages import (
    Broadcast,
    MemberLeft,
    Owner,
    OwnerAsked,
    ProbeNode,
    Resigned,
)
from forebay.coordination.protocol.wire_ids import WireIds
from forebay.coordination.serial_executor import SerialExecutor
from forebay.coordination.store.port import Registration
from forebay.coordination.store_tasks import StoreTasks
from forebay.core import Arrived, Finished, OptionsChanged

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from forebay.clock import TimerHandle, Timers
    from forebay.coordination.leader.tickets import Member
    from forebay.coordination.port import Perform
    from forebay.coordination.protocol.fleet import Mode
    from forebay.coordination.protocol.messages import About, MemberStatus, Orders, ReplicaBatch
    from forebay.coordination.store.port import Store, StoreReply
    from forebay.core import Action, Event, Options

Step: TypeAlias = "Callable[[float], list[Action]]"
"""Called with the time; returns the actions to perform."""

logger = logging.getLogger("forebay.coordination")

SEEKING_TICK_S = 0.1
"""How often wait limits are checked while there is no leader to do it."""


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
        self.about = about
        self.lease_s = lease_s
        self.on_probe_request: Callable[[str], None] = lambda _: None
        self.ask_peers: Callable[[Sequence[str]], Awaitable[bool]] = _nobody
        """Asks the replicas at these addresses whether one of them has a leader."""
        self._clock = clock
        self._ids = WireIds(about.member)
        self._reports = LoanReports(self._ids.open)
        self._report_timer: TimerHandle | None = None
        self._follower = follower = Follower(about, options, lease_s, self._reports)
        self._roster = Roster(about, lease_s)
        self.fleet = Directory(self, self._roster)
        """The other replicas, for the rest of the gateway."""
        follower.on_notice = self._on_notice
        self._leader: Leader | None = None
        self._leads_until_s = 0.0
        self._led_epoch = 0  # an epoch is led once: leading again needs a new one
        self._perform = perform
        self._executor: SerialExecutor[Step] = SerialExecutor(
            self._run, self._perform_own, clock, self._next_s, self._tick
        )
        self.resigned = False
        """Whether it must not become leader any more."""
        self._store_tasks = StoreTasks(self, store, clock, lease_s)
        self.failovers = 0
        self.outages = 0

    # -- the coordinator

    def post(self, event: Event) -> None:
        """Hand over one event; what needs no other replica is done before this returns."""
        if self._is_done_on_loan(event):
            return
        if isinstance(event, OptionsChanged) and self._leader is not None:
            self._leader.change_options(event.options, self._clock.monotonic_s())
        known = self._ids.to_wire(event)
        if known is not None:
            self._executor.submit(lambda now_s: self._follower.post(known, now_s))

    def _is_done_on_loan(self, event: Event) -> bool:
        """Start or end a request on a lent slot, of which nobody else need hear at once."""
        if type(event) is Arrived:
            return self._executor.is_free and self._has_started_on_loan(event)
        own_id = getattr(event, "id", None)
        if own_id not in self._reports.runs:
            return False
        if type(event) is not Finished or not self._executor.is_free:
            self._follower.report_one(own_id)
            return False
        self._follower.end_on_loan(event, self._clock.monotonic_s())
        if self._follower.has_outgoing:
            self._executor.submit(_nothing)
        return True

    def _has_started_on_loan(self, arrival: Arrived) -> bool:
        now_s = self._clock.monotonic_s()
        route = self._follower.start_on_loan(arrival, now_s)
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
            self._follower.report(now_s)
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
        """Run one step, then pass messages between follower and leader until there are none."""
        self._check_leadership(now_s)
        was_alone = self._follower.is_standalone
        actions = step(now_s)
        if self._leader is not None:
            actions += self._exchange(self._leader, now_s)
        if was_alone and not self._follower.is_standalone:
            logger.warning("store reachable again")
        if not self._store_tasks.awake and self.has_outgoing():
            self._store_tasks.wake()
        return actions

    def _exchange(self, leader: Leader, now_s: float) -> list[Action]:
        actions = exchange(self._follower, leader, now_s)
        for error in leader.errors:
            logger.error("invalid event from a replica", extra={"error": str(error)})
        leader.errors.clear()
        return actions

    def _check_leadership(self, now_s: float) -> None:
        """Step down when the lease was not renewed for two thirds of its length."""
        if self._leader is not None and now_s >= self._leads_until_s:
            self._step_down("the lease was not renewed in time")

    def _step_down(self, why: str) -> None:
        if self._leader is not None:
            logger.warning("lost leadership", extra={"epoch": self._leader.epoch, "why": why})
            self._end_leadership(self._leader)
            self._store_tasks.heartbeat_now()

    def _end_leadership(self, leader: Leader) -> None:
        self._follower.totals = highest(self._follower.totals, leader.totals())
        self._follower.known_endings = leader.endings
        self._leader = None
        self._follower.seek()

    def _next_s(self) -> float | None:
        own_s = self._follower.next_deadline_s()
        if self._leader is not None:
            due_s = self._leader.next_deadline_s()
            return due_s if own_s is None else own_s if due_s is None else min(due_s, own_s)
        if self._follower.mode == "seeking" and self._follower.tickets:
            return self._executor.timer_s or self._clock.monotonic_s() + SEEKING_TICK_S
        return own_s

    def _tick(self, now_s: float) -> list[Action]:
        if self._leader is not None:
            self._leader.tick(now_s)
        return self._follower.tick(now_s)

    # -- lifecycle

    def introduce(self, about: About) -> None:
        self.about = self._follower.about = about
        self._ids.member = about.member
        self._roster.introduce(about)

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

    # -- for the store tasks

    def registration(self) -> Registration:
        """Return what the next heartbeat tells the store."""
        epoch = max(self._follower.epoch, self._led_epoch)
        return Registration(self.about, self.token(), epoch, not self.resigned)

    def token(self) -> str:
        """Return the fencing token of this leader, `epoch:member`; empty when it does not lead."""
        return f"{self._leader.epoch}:{self.about.member}" if self._leader is not None else ""

    @property
    def leads(self) -> bool:
        return self._leader is not None

    @property
    def epoch(self) -> int:
        return self._follower.epoch

    @property
    def mode(self) -> Mode:
        return self._follower.mode

    def has_outgoing(self) -> bool:
        """Say whether messages wait to be sent to other replicas."""
        return self._follower.has_outgoing or (
            self._leader is not None and self._leader.members.has_outgoing()
        )

    def take_batches(self) -> list[ReplicaBatch]:
        """Take what goes to the leader, where that is another replica."""
        return [] if self._leader is not None else self._follower.take_batches()

    def final_batches(self) -> list[ReplicaBatch]:
        """Take what goes to the leader last, before this replica leaves."""
        return self._follower.final_batches()

    def take_orders(self) -> list[tuple[str, Orders]]:
        """Take what goes to the other replicas, where this one leads."""
        self._check_leadership(self._clock.monotonic_s())
        return self._leader.members.take_orders() if self._leader is not None else []

    def final_orders(self) -> list[tuple[str, Orders]]:
        """End the leadership; return its last orders."""
        leader = self._leader
        if leader is None:
            return []
        leaves = self._follower.stopping and not self._follower.tickets
        leader.resign(leaves=leaves, now_s=self._clock.monotonic_s())
        orders = leader.members.take_orders()
        logger.info("resigned leadership", extra={"epoch": leader.epoch})
        self._end_leadership(leader)
        return orders

    def on_lease_lost(self) -> None:
        """Step down: the store refused our orders, or names another leader."""
        self._step_down("another gateway holds the lease")

    def on_store_changed(self) -> None:
        """Ask the store now: it has another leader, or other members."""
        self._store_tasks.heartbeat_now()

    def on_store_reply(self, reply: StoreReply, asked_s: float) -> None:
        """Act on the reply to a heartbeat sent at `asked_s`."""
        self._roster.update(reply, self._clock.monotonic_s())
        if self._roster.has_namesake(reply):
            logger.error(
                "another gateway has the same address: set coordination.advertise on both",
                extra={"address": self.about.address},
            )
        if keys := self._roster.differing(reply):
            logger.warning(
                "settings differ from the leader's, which decide for all: %s",
                ", ".join(keys),
                extra={"leader": reply.leader},
            )
        self._follower.members = tuple(about.member for about in reply.members)
        self._executor.submit(lambda now_s: self._handle_store_reply(reply, asked_s, now_s))

    def _handle_store_reply(self, reply: StoreReply, asked_s: float, now_s: float) -> list[Action]:
        follower = self._follower
        follower.end_standalone()
        self._update_leadership(reply, asked_s, now_s)
        leads = reply.leader == self.about.member
        if not reply.leader or (leads and self._leader is None):
            follower.seek()  # there is no leader, or this one was elected too late to lead
        elif not follower.follows(reply.epoch, reply.leader):
            self._follow(reply, now_s)
        elif not leads and not follower.has_leader_contact(now_s):
            follower.join(reply.epoch, reply.leader, now_s)
        follower.send_heartbeat(now_s)
        if self._leader is not None:
            self._leader.balance(now_s)
            self._leader.tick(now_s)
        return []

    def _update_leadership(self, reply: StoreReply, asked_s: float, now_s: float) -> None:
        leads, leader = reply.leader == self.about.member, self._leader
        if leader is not None and (not leads or reply.epoch != leader.epoch):
            self.on_lease_lost()
        if leads:
            self._leads_until_s = asked_s + USABLE * self.lease_s
            if self._led_epoch < reply.epoch and now_s < self._leads_until_s:
                self._become_leader(reply, now_s)

    def _become_leader(self, reply: StoreReply, now_s: float) -> None:
        follower = self._follower
        expected = self._roster.expected(follower.replicas, now_s)
        self._leader = leader = Leader(
            self.about, reply.epoch, follower.options, self.lease_s, expected
        )
        self._led_epoch = reply.epoch
        leader.begin(follower.totals, follower.fleet_endings(), now_s)
        logger.info("became leader", extra={"epoch": reply.epoch, "replicas": len(reply.members)})

    def _follow(self, reply: StoreReply, now_s: float) -> None:
        if self._follower.epoch and reply.epoch != self._follower.epoch:
            self.failovers += 1
        self._follower.join(reply.epoch, reply.leader, now_s)
        if reply.leader != self.about.member:
            _log_following(reply.epoch, reply.leader)

    def on_batches(self, batches: Sequence[ReplicaBatch]) -> None:
        def receive(now_s: float) -> list[Action]:
            for batch in batches:
                if self._leader is not None and batch.member != self.about.member:
                    self._leader.receive(batch, now_s)
            return []

        self._executor.submit(receive)

    def on_orders(self, orders: Sequence[Orders]) -> None:
        def receive(now_s: float) -> list[Action]:
            actions: list[Action] = []
            for one in orders:
                before = self._follower.epoch
                if self._leader is not None and one.epoch > self._leader.epoch:
                    self._step_down("a later leader has been elected")
                actions += self._follower.receive(one, now_s)
                if self._follower.epoch != before:
                    self.failovers += bool(before)
                    _log_following(one.epoch, one.leader)
            if self._follower.mode == "seeking":
                self._store_tasks.heartbeat_now()
            return actions

        self._executor.submit(receive)

    def on_store_lost(self, why: str) -> None:
        """Continue standalone: the store has not answered for too long."""
        if self._follower.is_standalone:
            return
        self.outages += 1
        met = self._follower.epoch > 0  # one that never met the others knows no share
        then = "continuing standalone" if met else "starting nothing until it has answered once"
        logger.warning("store unreachable: %s", then, extra={"error": why})
        if self._leader is not None:
            self._end_leadership(self._leader)
        self._executor.submit(self._follower.go_standalone)

    def on_peers_polled(self, *, cut_off: bool) -> None:
        """Learn, while standalone, whether other replicas still have a leader."""
        self._executor.submit(lambda now_s: self._follower.set_cut_off(off=cut_off, now_s=now_s))

    def addresses(self) -> list[str]:
        return self._roster.addresses()

    # -- for the directory of the fleet

    def _on_notice(self, item: ProbeNode | Owner | Broadcast | MemberLeft | Resigned) -> None:
        """Take an order that is not about tickets."""
        match item:
            case Resigned():
                if item.leaves:
                    self._roster.leave(self._follower.leader)
            case MemberLeft():
                self._roster.leave(item.member)
            case ProbeNode():
                self.on_probe_request(item.node)
            case Owner():
                self.fleet.on_owner(item.id, item.member)
            case Broadcast():
                self.fleet.receive_broadcast(item.topic, item.payload)

    def statuses(self) -> tuple[float, Sequence[MemberStatus], str]:
        """Return the time, the status of every replica as far as known here, and who leads."""
        now_s = self._clock.monotonic_s()
        known: Sequence[MemberStatus] = self._follower.replicas
        if self._leader is not None:
            known = self._leader.statuses(now_s)
        return now_s, known, self._follower.leader

    def send(self, item: Broadcast | OwnerAsked) -> None:
        """Send the leader something that is not about a ticket of this replica."""

        def step(_: float) -> list[Action]:
            self._follower.send(item)
            return []

        self._executor.submit(step)


def _nothing(_: float) -> list[Action]:
    """Have what was sent taken on its way."""
    return []


def _log_following(epoch: int, leader: str) -> None:
    logger.info("following a new leader", extra={"epoch": epoch, "leader": leader})


async def _nobody(_: Sequence[str]) -> bool:
    return False


def exchange(follower: Follower, leader: Leader, now_s: float) -> list[Action]:
    """Pass messages between the two halves of a leading replica until there are none.

    An announcement goes in numbered batches, as it would between machines. From then on nothing
    can be lost, delayed or repeated here, so items are handed over as they are: at a busy leader
    every request takes this path.
    """
    me = leader.about.member
    actions: list[Action] = []
    while follower.leader == me:
        own = leader.local_member(follower.generation) if follower.mode == "coordinated" else None
        if own is not None:
            if _talk(own, follower, leader, actions, now_s):
                break
            continue
        batches = follower.take_batches()
        for batch in batches:
            leader.receive(batch, now_s)
        orders = leader.members.orders_for(me)
        if orders is not None:
            actions += follower.receive(orders, now_s)
        elif not batches:
            break
    return actions


def _talk(
    own: Member, follower: Follower, leader: Leader, actions: list[Action], now_s: float
) -> bool:
    """Hand items over until there are none; False when the follower announces itself anew."""
    generation = follower.generation
    while follower.has_outgoing or own.out:
        leader.receive_local(own, follower.take_items(), now_s)
        if own.out:
            items, own.out = own.out, []
            actions += follower.apply(items, now_s)
            if follower.generation != generation or follower.mode != "coordinated":
                return False
    return True
