"""The coordinator of one replica of several: a follower always, the leader sometimes.

Decisions are made by `Follower` and `Leader`, which are pure; this class hands them what happens,
performs what they decide, and keeps their time. `post` never waits and never re-enters, like the
coordinator of one process. What must go to others is sent by `Links` once per turn of the loop.

While this replica leads, its own requests pass between the two without any store, so one replica
alone works as if it had none.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

from forebay.coordination.follower.follower import USABLE, Follower
from forebay.coordination.leader.leader import Leader
from forebay.coordination.leader.totals import highest
from forebay.coordination.membership import Directory, Roster
from forebay.coordination.protocol.messages import Asked, Left, Look, Owner, Resigned, Told
from forebay.coordination.protocol.wire_ids import WireIds
from forebay.coordination.serial_executor import SerialExecutor
from forebay.coordination.store_tasks import Links
from forebay.core import OptionsChanged

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from forebay.clock import Timers
    from forebay.coordination.leader.tickets import Member
    from forebay.coordination.port import Perform
    from forebay.coordination.protocol.fleet import Mode
    from forebay.coordination.protocol.messages import About, Batch, Orders, Standing
    from forebay.coordination.store.port import Sign, Store
    from forebay.coordination.store.port import Standing as StoreStanding
    from forebay.core import Action, Event, Options

Step: TypeAlias = "Callable[[float], list[Action]]"
"""Something to be done at a time; returns what is to be performed because of it."""

logger = logging.getLogger("forebay.coordination")

SEEKING_TICK_S = 0.1
"""How often waiting is looked at while nobody leads who would do it."""


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
        self.on_look: Callable[[str], None] = lambda _: None
        self.ask_peers: Callable[[Sequence[str]], Awaitable[bool]] = _nobody
        """Asks the replicas at these addresses whether one of them has a leader."""
        self._clock = clock
        self._follower = follower = Follower(about, options, lease_s)
        self._roster = Roster(about, lease_s)
        self.fleet = Directory(self, self._roster)
        """The others, for the rest of the gateway."""
        follower.listen = self._listen
        self._leader: Leader | None = None
        self._leads_until_s = 0.0
        self._led_epoch = 0  # each is led once: who steps down and comes back starts a new one
        self._perform = perform
        self._ids = WireIds(about.member)
        self._executor: SerialExecutor[Step] = SerialExecutor(
            self._run, self._tell, clock, self._next_s, self._tick
        )
        self.resigned = False
        """Whether it should not lead any more."""
        self._links = Links(self, store, clock, lease_s)
        self.failovers = 0
        self.outages = 0

    # -- the coordinator

    def post(self, event: Event) -> None:
        """Hand over one event; what can be done at once is done before this returns."""
        if isinstance(event, OptionsChanged) and self._leader is not None:
            self._leader.change_options(event.options, self._clock.monotonic_s())
        known = self._ids.to_wire(event)
        if known is not None:
            self._executor.submit(lambda now_s: self._follower.post(known, now_s))

    def _tell(self, action: Action) -> None:
        known = self._ids.from_wire(action)
        if known is not None:
            self._perform(known)

    def _run(self, step: Step, now_s: float) -> list[Action]:
        """Take a step, and what follows from it in both halves of this replica."""
        self._check_leadership(now_s)
        was_alone = self._follower.is_alone
        actions = step(now_s)
        if self._leader is not None:
            actions += self._exchange(self._leader, now_s)
        if was_alone and not self._follower.is_alone:
            logger.warning("the store is back")
        if not self._links.awake and self.has_mail():
            self._links.wake()
        return actions

    def _exchange(self, leader: Leader, now_s: float) -> list[Action]:
        actions = exchange(self._follower, leader, now_s)
        for mistake in leader.mistakes:
            logger.error("a replica asked for what cannot be", extra={"error": str(mistake)})
        leader.mistakes.clear()
        return actions

    def _check_leadership(self, now_s: float) -> None:
        """Lead no longer than two thirds of a lease without its renewal."""
        if self._leader is not None and now_s >= self._leads_until_s:
            self._step_down("its lease was not renewed in time")

    def _step_down(self, why: str) -> None:
        if self._leader is not None:
            logger.warning("leads no more", extra={"epoch": self._leader.epoch, "why": why})
            self._leave_office(self._leader)
            self._links.beat_now()

    def _leave_office(self, leader: Leader) -> None:
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
        """Say who this replica is: before it starts, and when its settings have changed."""
        self.about = self._follower.about = about
        self._ids.member = about.member
        self._roster.introduce(about)

    async def start(self) -> None:
        """Join the others, or go on alone after a moment where the store does not answer."""
        await self._links.start()

    def stop(self) -> None:
        """Perform nothing any more; may be called twice."""
        self._executor.stop()
        self._links.stop()
        self.fleet.stop()

    async def close(self) -> None:
        """Be forgotten by the others at once, and close all connections."""
        self.stop()
        await self._links.close()

    def resign(self) -> None:
        """Lead no more, and tell the others, so that the next one leads at once."""
        self.resigned = True
        self._links.beat_now()

    # -- for the links

    def sign(self) -> Sign:
        """Return what to tell the store."""
        epoch = max(self._follower.epoch, self._led_epoch)
        return self._roster.sign(self.token(), epoch, may_lead=not self.resigned)

    def token(self) -> str:
        """Return what proves that this replica leads; empty when it does not."""
        return f"{self._leader.epoch}:{self.about.member}" if self._leader is not None else ""

    @property
    def leads(self) -> bool:
        """Whether it leads now."""
        return self._leader is not None

    @property
    def epoch(self) -> int:
        """Of the leader that this replica follows."""
        return self._follower.epoch

    @property
    def mode(self) -> Mode:
        """How it works now."""
        return self._follower.mode

    def has_mail(self) -> bool:
        """Say whether there may be something to send."""
        return self._follower.has_mail or (
            self._leader is not None and self._leader.members.has_mail()
        )

    def take_batches(self) -> list[Batch]:
        """Return what goes to the leader, where that is another."""
        return [] if self._leader is not None else self._follower.take_batches()

    def last_batches(self) -> list[Batch]:
        """Return what goes to the leader last; this replica has resigned."""
        return self._follower.last_batches()

    def take_orders(self) -> list[tuple[str, Orders]]:
        """Return what goes to the others, where this one leads."""
        self._check_leadership(self._clock.monotonic_s())
        return self._leader.members.take_orders() if self._leader is not None else []

    def last_orders(self) -> list[tuple[str, Orders]]:
        """Return what a leader says last; it leads no more."""
        leader = self._leader
        if leader is None:
            return []
        leaves = self._follower.stopping and not self._follower.tickets
        leader.resign(leaves=leaves, now_s=self._clock.monotonic_s())
        orders = leader.members.take_orders()
        logger.info("resigns", extra={"epoch": leader.epoch})
        self._leave_office(leader)
        return orders

    def lost_lease(self) -> None:
        """Know that another may lead: the store has refused our orders."""
        self._step_down("another holds the lease")

    def stand(self, standing: StoreStanding, asked_s: float) -> None:
        """Take what the store says of the fleet; it was asked at that time."""
        self._roster.hear(standing, self._clock.monotonic_s())
        if self._roster.has_namesake(standing):
            logger.error(
                "another gateway has the same address: set coordination.advertise on both",
                extra={"address": self.about.address},
            )
        if keys := self._roster.differing(standing):
            logger.warning(
                "settings differ from the leader's, which decide for all: %s",
                ", ".join(keys),
                extra={"leader": standing.leader},
            )
        self._follower.members = tuple(about.member for about in standing.members)
        self._executor.submit(lambda now_s: self._take_standing(standing, asked_s, now_s))

    def _take_standing(self, standing: StoreStanding, asked_s: float, now_s: float) -> list[Action]:
        follower = self._follower
        follower.find_store()
        self._take_office(standing, asked_s, now_s)
        leads = standing.leader == self.about.member
        if not standing.leader or (leads and self._leader is None):
            follower.seek()  # nobody leads, or this one heard of it too late: once more
        elif not follower.follows(standing.epoch, standing.leader):
            self._follow(standing, now_s)
        elif not leads and not follower.may_hear(now_s):
            follower.join(standing.epoch, standing.leader, now_s)
        follower.sign(now_s)
        if self._leader is not None:
            self._leader.balance(now_s)
            self._leader.tick(now_s)
        return []

    def _take_office(self, standing: StoreStanding, asked_s: float, now_s: float) -> None:
        """Lead if the store says so, and only then."""
        leads, leader = standing.leader == self.about.member, self._leader
        if leader is not None and (not leads or standing.epoch != leader.epoch):
            self.lost_lease()
        if leads:
            self._leads_until_s = asked_s + USABLE * self.lease_s
            if self._led_epoch < standing.epoch and now_s < self._leads_until_s:
                self._lead(standing, now_s)

    def _lead(self, standing: StoreStanding, now_s: float) -> None:
        follower = self._follower
        expected = self._roster.expected(follower.replicas, now_s)
        self._leader = leader = Leader(
            self.about, standing.epoch, follower.options, self.lease_s, expected
        )
        self._led_epoch = standing.epoch
        leader.begin(follower.totals, follower.fleet_endings(), now_s)
        logger.info("leads", extra={"epoch": standing.epoch, "replicas": len(standing.members)})

    def _follow(self, standing: StoreStanding, now_s: float) -> None:
        if self._follower.epoch and standing.epoch != self._follower.epoch:
            self.failovers += 1
        self._follower.join(standing.epoch, standing.leader, now_s)
        if standing.leader != self.about.member:
            _say_follows(standing.epoch, standing.leader)

    def receive(self, batches: Sequence[Batch]) -> None:
        """Take what other replicas say to the leader."""

        def receive(now_s: float) -> list[Action]:
            for batch in batches:
                if self._leader is not None and batch.member != self.about.member:
                    self._leader.receive(batch, now_s)
            return []

        self._executor.submit(receive)

    def hear(self, orders: Sequence[Orders]) -> None:
        """Take what the leader says."""

        def hear(now_s: float) -> list[Action]:
            actions: list[Action] = []
            for one in orders:
                before = self._follower.epoch
                if self._leader is not None and one.epoch > self._leader.epoch:
                    self._step_down("there is a later leader")
                actions += self._follower.hear(one, now_s)
                if self._follower.epoch != before:
                    self.failovers += bool(before)
                    _say_follows(one.epoch, one.leader)
            if self._follower.mode == "seeking":
                self._links.beat_now()
            return actions

        self._executor.submit(hear)

    def lost_store(self, why: str) -> None:
        """Go on alone: the store has not answered for too long."""
        if self._follower.is_alone:
            return
        self.outages += 1
        then = "goes on alone" if self._follower.epoch else "starts nothing until it was there once"
        logger.warning("the store is out of reach: %s", then, extra={"error": why})
        if self._leader is not None:
            self._leave_office(self._leader)
        self._executor.submit(self._follower.lose_store)

    def learn(self, *, cut_off: bool) -> None:
        """Learn, when alone, whether others have a leader."""
        self._executor.submit(lambda now_s: self._follower.cut(off=cut_off, now_s=now_s))

    def addresses(self) -> list[str]:
        """Return where the others are reached."""
        return self._roster.addresses()

    # -- for the directory

    def _listen(self, item: Look | Owner | Told | Left | Resigned) -> None:
        """Take what is not about tickets."""
        match item:
            case Resigned():
                if item.leaves:
                    self._roster.leave(self._follower.leader)
            case Left():
                self._roster.leave(item.member)
            case Look():
                self.on_look(item.node)
            case Owner():
                self.fleet.hear_owner(item.id, item.member)
            case Told():
                self.fleet.hear_told(item.topic, item.payload)

    def standings(self) -> tuple[float, Sequence[Standing], str]:
        """Return the time, how everyone is as far as known here, and who leads."""
        now_s = self._clock.monotonic_s()
        known: Sequence[Standing] = self._follower.replicas
        if self._leader is not None:
            known = self._leader.standings(now_s)
        return now_s, known, self._follower.leader

    def say(self, item: Told | Asked) -> None:
        """Have the leader hear of something that is not about a ticket of this replica."""

        def step(_: float) -> list[Action]:
            self._follower.say(item)
            return []

        self._executor.submit(step)


def _say_follows(epoch: int, leader: str) -> None:
    logger.info("follows", extra={"epoch": epoch, "leader": leader})


async def _nobody(_: Sequence[str]) -> bool:
    return False


def exchange(follower: Follower, leader: Leader, now_s: float) -> list[Action]:
    """Let the two halves of a replica that leads talk until neither has anything to say.

    An announcement passes between them as it would between machines. From then on nothing can be
    lost, come late or come twice on this way, so what the one says is handed to the other as it
    is: at a busy gateway that leads, this is the way of every request.
    """
    me = leader.about.member
    actions: list[Action] = []
    while follower.leader == me:
        own = leader.own_half(follower.generation) if follower.mode == "coordinated" else None
        if own is not None:
            if _talk(own, follower, leader, actions, now_s):
                break
            continue
        batches = follower.take_batches()
        for batch in batches:
            leader.receive(batch, now_s)
        orders = leader.members.orders_for(me)
        if orders is not None:
            actions += follower.hear(orders, now_s)
        elif not batches:
            break
    return actions


def _talk(
    own: Member, follower: Follower, leader: Leader, actions: list[Action], now_s: float
) -> bool:
    """Hand over what there is until there is no more; False when the follower begins anew."""
    generation = follower.generation
    while follower.has_mail or own.out:
        leader.take(own, follower.take_items(), now_s)
        if own.out:
            items, own.out = own.out, []
            actions += follower.obey(items, now_s)
            if follower.generation != generation or follower.mode != "coordinated":
                return False
    return True
