"""The life of a ticket: accept, wait, start, return, end. Every path goes through these.

`lease` takes a lease and `release` gives it back, `wait` lets an entry wait and `move` elsewhere,
and `end` closes a ticket; each is called with the state it requires and changes it by the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core import memory, nodes, retries
from forebay.core.actions import Expire, Route
from forebay.core.bounds import Bounds
from forebay.core.charging import Charging, expected
from forebay.core.cluster import Cluster
from forebay.core.fairness import account_of
from forebay.core.forecast import Forecast
from forebay.core.lines import Lines
from forebay.core.rates import Rates
from forebay.core.records import NEVER_S, Entry
from forebay.core.returns import Returns, identity_of
from forebay.core.states import after
from forebay.core.tally import Tally
from forebay.core.timers import TimerQueue
from forebay.core.users import Users
from forebay.errors import InvariantBroken

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.core.actions import Action, ExpireCode
    from forebay.core.cluster import Reaches
    from forebay.core.events import Arrived
    from forebay.core.options import Options
    from forebay.core.records import Lane, Node, WaitQueue
    from forebay.core.states import Cause


def total_wait_s(entry: Entry, now_s: float) -> float:
    """Return how long an entry has waited in all."""
    if entry.state == "waiting":
        return entry.waited_s + now_s - entry.since_s
    return entry.waited_s


class Book:
    """Everything unfinished, and where it stands."""

    def __init__(self, options: Options, first_seq: int, reaches: Reaches | None) -> None:
        self.options = options
        self.job_rank = len(options.priorities)
        self.ranks = {name: rank for rank, name in enumerate(options.priorities)}
        self.cluster = Cluster(options, reaches)
        self.timers = TimerQueue()
        self.forecast = Forecast()
        self.lines = Lines(self.job_rank + 1, self.forecast)
        self.bounds = Bounds(options)
        self.charging = Charging(options)
        self.users = Users(options.idle_users_max)
        self.returns = Returns()
        self.tally = Tally()
        self.rates = Rates(self.cluster, self.lines, self.timers, self.tally, self.job_rank)
        self.rates.change(options.key_limits, 0.0)
        self.paced = self.rates.keys  # keys with limits; asked for every arrival
        self.entries: dict[str, Entry] = {}  # everything unfinished, by id
        self.actions: list[Action] = []  # what the event at hand has led to so far
        self.seq = first_seq
        self.now_s = 0.0
        self.stopping = False
        self.waiting_jobs = 0

    def rank_of(self, arrival: Arrived) -> int:
        """Return the class of an arrival; jobs have one of their own, below all others."""
        if arrival.job:
            return self.job_rank
        rank = self.ranks.get(arrival.priority)
        return self.options.normal_rank() if rank is None else rank

    def limit_s(self, arrival: Arrived) -> float:
        """Return how long an arrival may wait: its caller may only shorten the operator's limit."""
        own_s, limit_s = arrival.max_wait_s, self.options.wait_s_max
        return limit_s if own_s is None or own_s > limit_s else own_s

    def accept(self, arrival: Arrived, lane: Lane, queue: WaitQueue | None = None) -> Entry:
        """Open a ticket, in a queue that is known already or is found by its class."""
        if self.returns.kept:
            seq = self.arrival_number(arrival)
        else:
            self.seq = seq = self.seq + 1
        user = self.users.arrive(arrival.user)
        entry = Entry(arrival, seq, user, self.now_s)
        entry.queue = queue = queue or lane.queues[self.rank_of(arrival)]
        entry.account = account_of(queue, user, arrival.weight)
        self.charging.set_price(entry)
        lane.unfinished += 1
        if self.options.aging_s and 0 < queue.rank < self.job_rank:
            entry.promotes_in_s = self.options.aging_s
        own_s, limit_s = arrival.max_wait_s, self.options.wait_s_max  # `limit_s`, without the call
        entry.wait_left_s = limit_s if own_s is None or own_s > limit_s else own_s
        self.entries[entry.id] = entry
        self.tally.accepted += 1
        if arrival.key_running_max:
            entry.room = self.rates.enter(arrival)
        if self.paced:
            entry.claim = self.rates.claim_of(arrival, lane, self.options)
        return entry

    def arrival_number(self, arrival: Arrived) -> int:
        """Return the number that was kept of an arrival's last attempt, else the next one."""
        who = identity_of(arrival, self.rank_of(arrival))
        kept = self.returns.find(who, self.now_s)
        if who is not None and kept is not None:
            self.returns.drop(who)
            return kept.seq
        self.seq += 1
        return self.seq

    def keep_number(self, arrival: Arrived, seq: int, retry_after_s: float | None) -> None:
        """Let one that must go keep its number; those of patient owners wait elsewhere."""
        who = identity_of(arrival, self.rank_of(arrival))
        if who is not None and not arrival.patient:
            self.returns.keep(who, seq, retry_after_s, self.now_s, self.options.max_size)

    def start(self, entry: Entry, node: Node) -> None:
        now_s, queue, arrival = self.now_s, entry.queue, entry.arrival
        if waited := entry.state == "waiting":
            self._stop_waiting(entry)
        claim = entry.claim
        rate = None if claim is None else self.rates.start(entry, claim, now_s)
        self.charging.charge(entry, node)
        if waited:
            self.forecast.started(entry, now_s)
        queue.unserved_since_s = now_s
        keeps_memory = node.holds_all and not node.loads  # nothing to load, nothing being loaded
        entry.since_s = now_s if keeps_memory else self._note_model(entry, node)
        self.lease(entry, node)
        entry.attempt += 1
        if arrival.affinity:
            self.cluster.note_affinity(arrival.affinity, node)
        if entry.prefix:
            self.tally.prefix_tokens += sum(arrival.prefix_tokens)
            self.tally.prefix_hit_tokens += entry.cached_tokens
            saved_s = float(entry.cached_tokens) * queue.lane.prefill.token_s()
            self.tally.prefix_saved_s += saved_s
        if queue.rank != self.job_rank:
            self.tally.waits.append(entry.waited_s)
        promised_s = entry.promised.p50_s if entry.promised is not None else None
        route = Route(
            entry.id, node.name, entry.queued, entry.waited_s, entry.attempt, promised_s,
            arrival.model if arrival.fallbacks else "", entry.seq, entry.cached_tokens, rate,
        )  # fmt: skip
        self.actions.append(route)

    def _note_model(self, entry: Entry, node: Node) -> float:
        """Keep track of a node's memory; return when the entry's service begins: after the load."""
        model = entry.queue.lane.model
        loads = not memory.is_warm(node, model)
        draining = node.swap_target is not None
        since_s = memory.note_dispatch(node, entry, model, self.now_s)
        self.tally.swaps += loads
        if loads or draining:  # others may have waited for this model, or for the drain
            self.lines.stale[node.name] = node
        return since_s

    def lease(self, entry: Entry, node: Node) -> None:
        """Take a slot of the node for an entry, even beyond its slots."""
        if entry.node is not None:
            raise InvariantBroken(f"{entry.id} already holds a lease")
        queue = entry.queue
        if len(queue.lane.nodes) > 1:  # else nobody can wait for a better one
            nodes.idle_share(node, self.now_s)
            entry.others = float(len(node.leases))
        node.leases[entry.id] = queue.lane.model
        entry.node = node
        node.used_at = self.seq = self.seq + 1
        if node.on_trial:
            self.cluster.count_trial(node, queue.lane.model)
        if node.room is not None:
            node.room.start(entry.id, expected(queue.lane, entry.arrival, self.options))
        if len(node.leases) + node.lent >= node.slots:  # `has_room`, without the call
            self.cluster.open.pop(node.name, None)
        queue.lane.running[entry.id] = entry
        queue.running += 1
        if entry.prefix:
            entry.cached_tokens = node.prefixes.cached_tokens(entry.arrival)
            node.prefixes.note(entry.prefix, self.options.prefix_blocks)
        entry.state = after(entry.state, "route")

    def release(self, entry: Entry) -> Node:
        """Give the entry's slot back; fill the node afterwards."""
        node = entry.node
        if node is None:
            raise InvariantBroken(f"{entry.id} holds no lease")
        if len(entry.queue.lane.nodes) > 1:
            nodes.idle_share(node, self.now_s)
        if node.leases.pop(entry.id, None) is None:
            raise InvariantBroken(f"{entry.id} gave back a lease it does not hold")
        entry.node = None
        if node.on_trial:
            self.cluster.count_trial(node, entry.queue.lane.model)
        if node.room is not None:
            node.room.end(entry.id)
        if entry.lent:
            entry.lent = False
            node.lent += 1
        del entry.queue.lane.running[entry.id]
        entry.queue.running -= 1
        return node

    def wait(self, entry: Entry, cause: Cause = "wait") -> None:
        """Let an entry wait: a new one, or one that ran, at its old place, here or elsewhere."""
        entry.state = after(entry.state, cause)
        entry.since_s, claim = self.now_s, entry.claim
        since_s, first = self.now_s, cause == "return" or entry.attempt > 0
        if not first:
            since_s -= entry.waited_s  # of what ran the queue was served
        elif claim is not None and not claim.charged:  # it ran in another core
            self.rates.resume(claim, runs=False)
        self._join(entry, since_s, first=first)
        stands_still = claim is not None and claim.parked and claim.gated
        if entry.queue.rank != self.job_rank and not stands_still:
            entry.deadline_s = self.now_s + entry.wait_left_s
        self.timers.arm(entry)
        if cause == "return" and claim is not None:
            self.rates.come_back(claim, self.now_s)

    def promote(self, entry: Entry) -> None:
        rank, aging_s = entry.queue.rank - 1, self.options.aging_s
        entry.promotes_in_s += aging_s if aging_s and rank else NEVER_S
        if aging_s:
            self.move(entry, entry.queue.lane.queues[rank])

    def move(self, entry: Entry, queue: WaitQueue) -> None:
        """Let a waiting entry stand in another queue, at its old place and age."""
        before, first = entry.queue.lane, entry.goes_first or entry.charged_on is not None
        looks_anew = queue.lane is not before or (entry.claim is not None and entry.claim.parked)
        queue.lane.unfinished += 1
        self._leave(entry)
        entry.queue = queue
        entry.account = account_of(queue, entry.user, entry.arrival.weight)
        self._join(entry, entry.since_s, first=first)
        if looks_anew:  # one of the nodes may be open
            self.lines.stale.update(queue.lane.nodes)
        self.timers.arm(entry)
        if entry.claim is not None:
            self.rates.offer(entry.claim.rate, self.now_s)
        before.unfinished -= 1
        self.cluster.forget_if_unused(before)

    def _join(self, entry: Entry, since_s: float, *, first: bool) -> None:
        """Let an entry stand in its queue, or parked."""
        self._count(entry, 1)
        if entry.claim is None or not self.rates.parks(entry, self.now_s):
            self.lines.join(entry, since_s, self.now_s, first=first)

    def _leave(self, entry: Entry) -> None:
        """Take out one that waits, wherever it stands."""
        if entry.claim is None or not self.rates.leave_line(entry, entry.claim, self.now_s):
            self.lines.leave(entry)
        self._count(entry, -1)

    def _count(self, entry: Entry, change: int) -> None:
        """Count one that begins to wait (1), or waits no more (-1); jobs are outside the bounds."""
        if entry.queue.rank == self.job_rank:
            self.waiting_jobs += change
            return
        self.bounds.count(entry, change)
        if (room := entry.room) is not None:
            room.calls += change
            if not room.calls:
                self.rates.offer(room, self.now_s)

    def _stop_waiting(self, entry: Entry) -> None:
        """Take out one that waits no more, and stop its clock."""
        self._leave(entry)
        if entry.hold is not None:
            retries.forget_hold(entry)
        entry.guest = False  # should it come back, it waits like anyone
        entry.wake_s = NEVER_S
        waited_s = self.now_s - entry.since_s
        entry.waited_s += waited_s
        entry.wait_left_s -= waited_s
        entry.promotes_in_s -= waited_s

    def change_options(self, options: Options) -> None:
        """Take over new limits; lower bounds drain."""
        self.options = options
        self.cluster.options = options
        for lane in self.cluster.lanes.values():
            for queue in lane.queues:
                queue.burst = options.queue_burst()
        self.bounds.options = options
        self.charging = Charging(options)
        self.rates.change(options.key_limits, self.now_s)
        self.users.idle_max = options.idle_users_max

    def end(self, entry: Entry, cause: Cause) -> None:
        """Close a ticket that holds no lease, wherever it stands."""
        queue, waited = entry.queue, entry.state == "waiting"
        entry.state = after(entry.state, cause)
        if waited:
            self._stop_waiting(entry)
            if entry.claim is not None:
                self.rates.refund(entry.claim, 0, self.now_s)
            self.charging.refund(entry)
        lane = queue.lane
        lane.unfinished -= 1
        del self.entries[entry.id]
        self.users.leave(entry.user)
        if entry.room is not None:
            self.rates.exit(entry, entry.room, self.now_s)
        if not lane.listed:
            self.cluster.forget_if_unused(lane)

    def expire(self, entries: Iterable[Entry]) -> None:
        """End and answer them; nothing else starts before all are out of the way."""
        for entry in entries:
            self.end(entry, "expire")
        waits: dict[Lane, float | None] = {}
        for entry in entries:
            lane = entry.queue.lane
            if lane not in waits:
                waits[lane] = self.forecast.last_in_lane_s(lane, self.now_s)
            self.tally.expired += 1
            self.actions.append(
                Expire(entry.id, self._why_expired(lane), entry.waited_s, waits[lane])
            )

    def _why_expired(self, lane: Lane) -> ExpireCode:
        if lane.is_up:
            return "queue_timeout"
        reason = self.cluster.outlook(lane, self.now_s)
        return "model_loading" if reason in ("loading", "starting") else "no_node"
