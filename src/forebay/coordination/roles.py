"""The roles of one replica: always a follower, sometimes the leader as well; no I/O.

It elects nobody: what the store answers to a heartbeat says who leads, and from then on for how
long. Where the store is out of reach, a replica leads itself on its own share of the slots.

A leader's own requests pass between its two roles in memory: a single replica works as if it had no
store.
"""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING

from forebay.coordination.follower.follower import USABLE, Follower
from forebay.coordination.follower.loan_reports import LoanReports
from forebay.coordination.follower.share import Share
from forebay.coordination.leader.leader import Leader
from forebay.coordination.membership import Roster
from forebay.coordination.store.port import Registration
from forebay.core import OptionsChanged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from forebay.coordination.protocol.messages import About, MemberStatus, Orders, ReplicaBatch
    from forebay.coordination.store.port import StoreReply
    from forebay.core import Action, Arrived, Event, Options

logger = logging.getLogger("forebay.coordination")


class Roles:
    """What one replica is to the others, and hears from them."""

    def __init__(
        self,
        about: About,
        options: Options,
        lease_s: float,
        rename: Callable[[Arrived], Arrived],
    ) -> None:
        """`rename` gives an arrival the id by which it is known among replicas."""
        self.about = about
        self.follower = Follower(about, options, lease_s, LoanReports(rename))
        self.leader: Leader | None = None
        """Of all replicas, or of this one alone."""
        self.roster = Roster(about, lease_s)
        self.failovers = 0
        self.on_step_down: Callable[[], None] = lambda: None
        """Called when it must ask the store who leads."""
        self._lease_s = lease_s
        self._leads_until_s = 0.0
        self._led_epoch = 0  # an epoch is led once: leading again needs a new one

    def introduce(self, about: About) -> None:
        self.about = self.follower.about = about
        self.roster.introduce(about)

    # -- what it is

    @property
    def is_alone(self) -> bool:
        """Whether it leads itself, because the store is out of reach."""
        return self.follower.share is not None

    @property
    def leads(self) -> bool:
        return self.leader is not None and not self.is_alone

    @property
    def epoch(self) -> int:
        return self.follower.epoch

    def registration(self, *, may_lead: bool) -> Registration:
        """Return what the next heartbeat tells the store."""
        return Registration(self.about, self.token(), max(self.epoch, self._led_epoch), may_lead)

    def token(self) -> str:
        """Return the fencing token of this leader, `epoch:member`; empty when it does not lead."""
        return f"{self.leader.epoch}:{self.about.member}" if self.leads and self.leader else ""

    def statuses(self, now_s: float) -> tuple[MemberStatus, ...]:
        """Return the status of every replica as far as known here."""
        if self.leader is not None and not self.is_alone:
            return self.leader.statuses(now_s)
        return self.follower.replicas

    # -- steps

    def run(self, step: Callable[[float], list[Action]], now_s: float) -> list[Action]:
        """Take a step, then pass messages between the two roles until there are none."""
        self.check_lease(now_s)
        actions = step(now_s)
        if self.leader is not None:
            self._exchange(self.leader, actions, now_s)
        return actions

    def _exchange(self, leader: Leader, actions: list[Action], now_s: float) -> None:
        """Hand items over as they are: nothing can be lost, delayed or repeated here."""
        follower, me = self.follower, self.about.member
        while follower.leader == me:
            items, orders = follower.outbox.take(), leader.members.take_own()
            if items:
                leader.receive_own(items, now_s)
            elif not orders:
                break
            actions += follower.apply(orders, now_s)
        for error in leader.errors:
            logger.error("invalid event from a replica", extra={"error": str(error)})
        leader.errors.clear()

    def post(self, event: Event, now_s: float) -> list[Action]:
        """Take an event of this replica."""
        if isinstance(event, OptionsChanged) and self.leader is not None:
            share = self.follower.share
            options = event.options if share is None else share.of_options(event.options)
            self.leader.change_options(options, now_s)
        return self.follower.post(event, now_s)

    def tick(self, now_s: float) -> list[Action]:
        """Do what is due."""
        if self.leader is not None:
            self.leader.tick(now_s)
        return self.follower.tick(now_s)

    def next_deadline_s(self) -> float | None:
        """Return when to `tick` if nothing else happens."""
        own_s = self.follower.next_deadline_s()
        due_s = self.leader.next_deadline_s() if self.leader is not None else None
        return own_s if due_s is None else due_s if own_s is None else min(due_s, own_s)

    # -- from the other replicas

    def take_batches(self) -> list[ReplicaBatch]:
        """Take what goes to the leader, where that is another replica."""
        return self.follower.take_batches() if self.leader is None else []

    def take_orders(self, now_s: float) -> list[tuple[str, Orders]]:
        """Take what goes to the other replicas, where this one leads."""
        self.check_lease(now_s)
        return self.leader.members.take_orders() if self.leader is not None else []

    def has_outgoing(self) -> bool:
        """Say whether messages wait to be sent to other replicas."""
        if self.leader is not None:
            return self.leader.members.has_outgoing()
        return bool(self.follower.outbox.items)

    def receive_batches(self, batches: Sequence[ReplicaBatch], now_s: float) -> list[Action]:
        for batch in batches:
            if self.leader is not None and batch.member != self.about.member:
                self.leader.receive(batch, now_s)
        return []

    def receive_orders(self, orders: Sequence[Orders], now_s: float) -> list[Action]:
        actions: list[Action] = []
        for one in orders:
            before = self.epoch
            if self.leader is not None and one.epoch > self.leader.epoch:
                self.step_down("a later leader has been elected", now_s)
            actions += self.follower.receive(one, now_s)
            if self.epoch != before:
                self._note_leader(before)
        return actions

    def _note_leader(self, before: int) -> None:
        """Log a new leader that this replica follows, and count it if there was one before."""
        self.failovers += bool(before) and before != self.epoch
        leader = self.follower.leader
        if leader != self.about.member:
            logger.info("following a new leader", extra={"epoch": self.epoch, "leader": leader})

    # -- who leads

    def take_reply(self, reply: StoreReply, asked_s: float, now_s: float) -> list[Action]:
        """Act on the reply to a heartbeat sent at `asked_s`."""
        follower, leads = self.follower, reply.leader == self.about.member
        if self.is_alone:
            self._end_leadership(now_s)
        self._take_lease(reply, asked_s, now_s)
        if not reply.leader or (leads and self.leader is None):
            follower.seek(now_s)  # there is no leader, or this one was elected too late to lead
        elif (self.epoch, follower.leader) != (reply.epoch, reply.leader):
            before = self.epoch
            follower.join(reply.epoch, reply.leader, now_s)
            self._note_leader(before)
        elif not leads and now_s >= follower.stamp_s + self._lease_s:  # it may have forgotten us
            follower.join(reply.epoch, reply.leader, now_s)
        follower.send_heartbeat(now_s)
        if self.leader is not None:
            self.leader.balance(now_s)
            self.leader.tick(now_s)
        return []

    def _take_lease(self, reply: StoreReply, asked_s: float, now_s: float) -> None:
        leads, leader = reply.leader == self.about.member, self.leader
        if leader is not None and (not leads or reply.epoch != leader.epoch):
            self.step_down("another gateway holds the lease", now_s)
        if leads:
            self._leads_until_s = asked_s + USABLE * self._lease_s
            if self._led_epoch < reply.epoch and now_s < self._leads_until_s:
                self._become_leader(reply, now_s)

    def _become_leader(self, reply: StoreReply, now_s: float) -> None:
        follower = self.follower
        expected = self.roster.expected(follower.replicas, now_s)
        self._led_epoch = reply.epoch
        self._lead(
            Leader(self.about, reply.epoch, follower.options, self._lease_s, expected), now_s
        )
        logger.info("became leader", extra={"epoch": reply.epoch, "replicas": len(reply.members)})

    def _lead(self, leader: Leader, now_s: float) -> None:
        self.leader = leader
        counts = self.follower.counts
        leader.begin(counts.totals, counts.endings(self.about.member), now_s)

    def check_lease(self, now_s: float) -> None:
        """Step down when the lease was not renewed for two thirds of its length."""
        if self.leader is not None and now_s >= self._leads_until_s:
            self.step_down("the lease was not renewed in time", now_s)

    def step_down(self, why: str, now_s: float) -> None:
        """End the leadership: it is, or may be, another's."""
        if self.leader is None:
            return
        if self.leads:
            logger.warning("lost leadership", extra={"epoch": self.epoch, "why": why})
        self._end_leadership(now_s)
        self.on_step_down()

    def resign(self, now_s: float) -> list[tuple[str, Orders]]:
        """End the leadership in order; return its last orders."""
        leader = self.leader
        if leader is None or self.is_alone:
            return []
        leaves = self.follower.stopping and not self.follower.tickets
        leader.resign(leaves=leaves, now_s=now_s)
        orders = leader.members.take_orders()
        logger.info("resigned leadership", extra={"epoch": leader.epoch})
        self._end_leadership(now_s)
        return orders

    def _end_leadership(self, now_s: float) -> None:
        assert self.leader is not None
        self.follower.counts.learn(self.leader.totals(), self.leader.endings)
        self.leader = None
        self.follower.seek(now_s)

    # -- without the store

    def lead_itself(self, now_s: float) -> list[Action]:
        """Decide for this replica alone, by its own share of the slots."""
        if self.leader is not None:
            self._end_leadership(now_s)
        follower, me = self.follower, self.about.member
        known = (*follower.members, *(one.about.member for one in follower.replicas))
        # One that never met the others knows no share.
        share = Share(me, known, cut_off=not self.epoch)
        options = share.of_options(follower.options)
        self._lead(Leader(self.about, self.epoch, options, self._lease_s, (), share.of_node), now_s)
        self._leads_until_s = inf
        follower.seek(now_s)
        follower.join(self.epoch, me, now_s, share)
        return []

    def set_cut_off(self, others_go_on: bool, now_s: float) -> list[Action]:
        """Note, while alone, whether other replicas have a leader: then its share is nothing."""
        share, cut_off = self.follower.share, others_go_on or not self.epoch
        if share is not None and self.leader is not None and share.cut_off != cut_off:
            share.cut_off = cut_off
            self.leader.decisions.change_shares(now_s)
        return []
