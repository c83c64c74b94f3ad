"""The scheduler's state, and the methods that change it. Every path goes through these.

`lease` takes a lease and `release` gives it back, `enqueue` and `dequeue` change what waits, and
`end` closes a ticket; each is called with the state it requires and changes it by the table.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from forebay.core.actions import Expire, Route
from forebay.core.bounds import Bounds
from forebay.core.charging import Charging
from forebay.core.cluster import Cluster
from forebay.core.dispatch import Dispatch
from forebay.core.entries import Entry, Users
from forebay.core.options import FROZEN_WHILE_RUNNING
from forebay.core.rates import Claim, Rates
from forebay.core.return_tickets import ReturnTickets
from forebay.core.snapshot import RECENT, Totals
from forebay.core.timers import TimerQueue
from forebay.errors import InvariantBroken, NotAllowed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.core.actions import Action, ExpireCode
    from forebay.core.cluster import Reaches
    from forebay.core.events import Arrived
    from forebay.core.fairness import WaitQueue
    from forebay.core.lanes import Lane
    from forebay.core.nodes import Node
    from forebay.core.options import Options
    from forebay.core.states import Cause
    from forebay.core.waits import Estimate


class Tally:
    """Plain integers that the scheduler adds to; a snapshot copies them."""

    __slots__ = (
        "accepted", "cancelled", "enqueued", "expired", "failed", "prefix_hit_tokens",
        "prefix_saved_s", "prefix_tokens", "rate_waits", "rejected", "returned", "served",
        "service", "swaps", "waits",
    )  # fmt: skip

    def __init__(self) -> None:
        self.accepted = self.enqueued = self.served = self.failed = 0
        self.expired = self.cancelled = self.returned = self.swaps = 0
        self.rate_waits = 0
        self.prefix_tokens = self.prefix_hit_tokens = 0
        self.prefix_saved_s = 0.0
        self.rejected: dict[str, int] = {}
        self.waits: deque[float] = deque(maxlen=RECENT)
        self.service: deque[float] = deque(maxlen=RECENT)

    def reject(self, code: str) -> None:
        """Count one refusal; codes are ours, so their number is bounded."""
        self.rejected[code] = self.rejected.get(code, 0) + 1

    def note_prefix(self, arrival: Arrived, cached_tokens: int, token_s: float) -> None:
        """Count the tokens of a prompt that starts where it could find some of them cached."""
        self.prefix_tokens += sum(arrival.prefix_tokens)
        self.prefix_hit_tokens += cached_tokens
        self.prefix_saved_s += float(cached_tokens) * token_s

    def totals(self) -> Totals:
        return Totals(
            accepted=self.accepted,
            enqueued=self.enqueued,
            served=self.served,
            failed=self.failed,
            expired=self.expired,
            cancelled=self.cancelled,
            returned=self.returned,
            swaps=self.swaps,
            rate_waits=self.rate_waits,
            rejected=dict(self.rejected),
            prefix_tokens=self.prefix_tokens,
            prefix_hit_tokens=self.prefix_hit_tokens,
            prefix_saved_s=self.prefix_saved_s,
        )


class Book:
    """Everything unfinished, and where it stands."""

    __slots__ = (
        "actions", "bounds", "charging", "choose", "cluster", "dispatch", "entries",
        "job_rank", "now_s", "options", "paced", "ranks", "rates", "reaches", "return_tickets",
        "seq", "stopping", "tally", "timers", "users", "waiting_jobs",
    )  # fmt: skip

    def __init__(
        self,
        options: Options,
        first_seq: int = 0,
        reaches: Reaches | None = None,
        secret: bytes = b"",
    ) -> None:
        self.options = options
        self.job_rank = len(options.priorities)
        self.ranks = {name: rank for rank, name in enumerate(options.priorities)}
        self.cluster = Cluster(options)
        self.reaches = reaches or _everywhere
        self.choose = self.cluster.choose if reaches is None else self._choose_within
        self.timers = TimerQueue()
        self.dispatch = Dispatch(options, self.timers)
        self.bounds = Bounds(options)
        self.charging = Charging(options)
        self.users = Users(options.idle_users_max)
        self.return_tickets = ReturnTickets(secret)
        self.tally = Tally()
        self.rates = Rates(self.cluster, self.dispatch, self.timers, self.tally, self.job_rank)
        self.rates.change(options.key_limits, 0.0)
        self.paced = self.rates.paced  # keys with limits; asked for every arrival
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

    def accept(self, arrival: Arrived, lane: Lane, queue: WaitQueue | None = None) -> Entry:
        """Open a ticket, in a queue that is known already or is found by its class."""
        if arrival.return_ticket:
            seq = self.arrival_number(arrival)
        else:
            self.seq = seq = self.seq + 1
        user = self.users.arrive(arrival.user)
        entry = Entry(arrival, seq, user, self.now_s)
        entry.queue = queue = queue or lane.queues[self.rank_of(arrival)]
        entry.account = queue.account_of(user, arrival.weight)
        lane.unfinished += 1
        entry.promotes_in_s = self.options.aging_s
        own_s, limit_s = arrival.max_wait_s, self.options.wait_s_max
        entry.wait_left_s = limit_s if own_s is None or own_s > limit_s else own_s
        self.entries[entry.id] = entry
        self.tally.accepted += 1
        rate, gated = self.paced.get(arrival.key) if self.paced else None, False
        if arrival.key_running_max:
            entry.room = room = self.rates.enter(arrival, self.now_s)
            gated = arrival.job or arrival.patient
            if gated:
                rate = room
            else:
                room.held += 1
        if rate is not None:
            entry.claim = Claim(rate, self.charging.tokens_of(lane, arrival), gated)
        return entry

    def arrival_number(self, arrival: Arrived) -> int:
        """Return the number that a return ticket keeps, else the next one."""
        if arrival.return_ticket:
            seq = self.return_tickets.take(arrival, self.rank_of(arrival), self.now_s)
            if seq:
                return seq
        self.seq += 1
        return self.seq

    def give_return_ticket(self, arrival: Arrived, seq: int, retry_after_s: float | None) -> str:
        """Let one that found no room keep its number; its owner may keep it here all the same."""
        if arrival.patient:
            return ""
        return self.return_tickets.give(
            arrival, self.rank_of(arrival), seq, retry_after_s, self.now_s, self.options.max_size
        )

    def start(self, entry: Entry, node: Node) -> None:
        now_s, queue, arrival = self.now_s, entry.queue, entry.arrival
        claim = entry.claim
        rate = None if claim is None else self.rates.start(entry, claim, now_s)
        if entry.state == "waiting":
            self._stop_waiting(entry)
            self.charging.charge(entry, node)
            queue.pace.count_start(queue, entry, now_s)
        else:
            self.charging.charge(entry, node)
        queue.unserved_since_s = now_s
        keeps_memory = node.holds_all and not node.loads  # nothing to load, nothing being loaded
        entry.since_s = now_s if keeps_memory else self._note_model(entry, node)
        self.lease(entry, node)
        entry.attempt += 1
        if arrival.affinity:
            self.cluster.note_affinity(arrival.affinity, node)
        if entry.prefix:
            self.tally.note_prefix(arrival, entry.cached_tokens, queue.lane.prefill.token_s())
        if queue.rank != self.job_rank:
            self.tally.waits.append(entry.waited_s)
        self.actions.append(
            Route(
                entry.id,
                node.name,
                entry.queued,
                entry.waited_s,
                entry.attempt,
                entry.p50_s,
                arrival.model if arrival.fallbacks else "",
                entry.seq,
                entry.cached_tokens,
                rate,
            )
        )

    def _note_model(self, entry: Entry, node: Node) -> float:
        """Keep track of a node's memory; return when the entry's service begins: after the load."""
        model = entry.queue.lane.model
        loads = not node.is_warm(model)
        draining = node.swap_target is not None
        since_s = node.note_dispatch(entry, model, self.now_s)
        self.tally.swaps += loads
        if loads or draining:  # others may have waited for this model, or for the drain
            self.dispatch.stale[node.name] = node
        return since_s

    def lease(self, entry: Entry, node: Node) -> None:
        """Take a slot of the node for an entry, even beyond its slots."""
        queue = entry.queue
        self.seq += 1
        node.take(entry, queue.lane.model, self.seq)
        if node.on_trial:
            self.cluster.count_trial(node, queue.lane.model)
        if node.room is not None:
            node.room.start(entry.id, self.charging.tokens_of(queue.lane, entry.arrival))
        if len(node.leases) + node.lent >= node.slots:  # `has_room`, without the call
            self.cluster.open.pop(node.name, None)
        queue.lane.running[entry.id] = entry
        queue.running += 1
        if entry.prefix:
            entry.cached_tokens = node.prefixes.cached_tokens(entry.arrival)
            node.prefixes.note(entry.prefix, self.options.prefix_blocks)
        entry.move("route")

    def release(self, entry: Entry) -> Node:
        """Give the entry's slot back; fill the node afterwards."""
        node = entry.node
        if node is None:
            raise InvariantBroken(f"{entry.id} holds no lease")
        node.give_back(entry)
        if node.on_trial:
            self.cluster.count_trial(node, entry.queue.lane.model)
        if node.room is not None:
            node.room.end(entry.id)
        if entry.lent:
            entry.lent = False
            node.lent += 1
        entry.queue.lane.end_run(entry, self.now_s)
        return node

    def _choose_within(
        self, queue: WaitQueue, arrival: Arrived, excluded: frozenset[str]
    ) -> Node | None:
        """Return the best open node that the owner of an arrival reaches, or None."""
        node = self.cluster.choose(queue, arrival, excluded)
        while node is not None and not self.reaches(arrival.id, node.name):
            excluded |= {node.name}
            node = self.cluster.choose(queue, arrival, excluded)
        return node

    def _passes_over(self, entry: Entry, node: Node) -> bool:
        """Pass over who is next on a node, but over its rate, or better off elsewhere."""
        if entry.claim is not None and self.rates.parks_head(entry, self.now_s):
            self._forget_hold(entry)
            return True
        if not self.reaches(entry.id, node.name):
            entry.unreached |= {node.name}
            self._pass_over(entry, node, frozenset({node.name}))
            return True
        return bool(entry.prefix) and self._hold(entry, node)

    def _pass_over(self, entry: Entry, node: Node, excluded: frozenset[str]) -> None:
        """Keep who is next on a node off some nodes.

        It is charged as if it ran, once, and goes first wherever else it can: it was its turn.
        """
        queue = entry.queue
        self.charging.charge(entry, node)
        self.charging.refund_class(entry, node)
        queue.take(entry)
        entry.excluded |= excluded
        queue.rejoin(entry)
        self.dispatch.note_leave(queue)

    def place_to_wait_for(
        self, arrival: Arrived, queue: WaitQueue, node: Node
    ) -> tuple[Node, float] | None:
        """Return a busy node whose cache saves more than a turn there takes, and what it saves.

        Compared with one that has a free slot; None where there is none, or it cannot be known.
        """
        lane, open_nodes = queue.lane, self.cluster.open
        service_s = lane.times.mean_s()
        if len(lane.nodes) < 2 or service_s is None or queue.rank == self.job_rank:
            return None
        token_s, least = lane.prefill.token_s(), lane.prefill.tokens_to_wait_for()
        if float(sum(arrival.prefix_tokens)) < least:
            return None
        here = node.prefixes.cached_tokens(arrival)
        best: tuple[Node, float] | None = None
        gain_s = 0.0
        for other in lane.nodes.values():
            cached = other.prefixes.cached_tokens(arrival)
            if float(cached - here) < least or not other.slots or not other.is_warm(lane.model):
                continue
            if other.state != "online" or self.now_s < other.rest_until_s:
                continue
            if other.name in open_nodes or not self.reaches(arrival.id, other.name):
                continue
            saved_s = float(cached - here) * token_s
            wait_s = float(len(other.held) + 1) * service_s / float(other.slots)
            if saved_s - wait_s > gain_s:
                best, gain_s = (other, saved_s), saved_s - wait_s
        return best

    def _hold(self, entry: Entry, node: Node) -> bool:
        """Keep who is next on a node for one that has its prompt cached; once, and not for long."""
        if entry.held_until_s or entry.attempt:
            return False
        place = self.place_to_wait_for(entry.arrival, entry.queue, node)
        if place is None or place[0].name in entry.excluded:
            return False
        other, saved_s = place
        if self.now_s + saved_s >= entry.deadline_s:
            return False  # it might time out for a cache
        entry.held_on, entry.held_until_s = other, self.now_s + saved_s
        entry.held_from = frozenset(entry.queue.lane.nodes) - entry.excluded - {other.name}
        other.held[entry] = None
        self._pass_over(entry, node, entry.held_from)
        self.timers.add(entry.held_until_s, "release", entry)
        return True

    def release_hold(self, entry: Entry) -> None:
        """Let an entry go anywhere that has waited for a cache as long as that saves."""
        returned = entry.queue.returned
        returned.remove(entry)
        self._forget_hold(entry)
        returned.add(entry)
        self.fill_open(entry.queue.lane, entry)

    def release_holds(self, node: Node) -> None:
        """Let those go anywhere that waited for a node which cannot be used now."""
        for entry in list(node.held):
            self.release_hold(entry)

    def _forget_hold(self, entry: Entry) -> None:
        if entry.held_on is not None:
            entry.held_on.held.pop(entry, None)
            entry.held_on = None
            entry.excluded -= entry.held_from

    def fill(self, node: Node, fresh: Entry | None = None) -> None:
        """Start what may start on a node, until it is full or nothing fits.

        What has waited could use no other node, or it would run there. Only a `fresh` entry, which
        has just become eligible, may still find a better one.
        """
        now_s = self.now_s
        if node.removed or not node.is_open(now_s):
            self.cluster.close(node)
            return
        while len(node.leases) + node.lent < node.slots:  # `has_room`, without the call
            entry = self.dispatch.pick(node, now_s)
            if entry is None:
                self.cluster.open[node.name] = node
                return
            claim = entry.claim
            wants = claim is not None or entry.prefix or self.reaches is not _everywhere
            if wants and self._passes_over(entry, node):  # nearly never
                continue
            better = None
            if entry is fresh or claim is not None:  # its rate may have kept it off other nodes
                self.cluster.open[node.name] = node
                if node.swap_target == entry.queue.lane.model:
                    node.swap_target = None  # it comes now, here or on a better node
                better = self.choose(entry.queue, entry.arrival, entry.excluded)
            if node.room is not None and better is None and self._lacks_memory(node, entry):
                return
            self._take_out(entry)
            self.start(entry, better or node)  # a node that is full is open no more

    def _lacks_memory(self, node: Node, entry: Entry) -> bool:
        """Close a node to all others while it has no memory for who is next there."""
        if self.cluster.fits(node, entry.queue.lane, entry.arrival):
            return False
        self.cluster.close(node)
        self.dispatch.short[node.name] = node
        return True

    def fill_stale(self) -> None:
        """Fill the nodes whose reason to keep a slot free may be gone."""
        stale = self.dispatch.stale
        while stale:
            self.fill(stale.pop(next(iter(stale))))

    def fill_open(self, lane: Lane, fresh: Entry) -> None:
        """Let the open nodes of a lane look again: something has joined it."""
        open_nodes, short = self.cluster.open, self.dispatch.short
        if open_nodes or short:
            for node in list(lane.nodes.values()):
                if node.name in open_nodes or node.name in short:
                    self.fill(node, fresh)

    def enqueue(self, entry: Entry) -> None:
        """Count an entry as waiting; jobs are outside the bounds."""
        if entry.queue.rank == self.job_rank:
            self.waiting_jobs += 1
        else:
            self.bounds.add(entry)
            if entry.room is not None:
                entry.room.calls += 1

    def count_enqueued(self, entry: Entry) -> None:
        """Count one that has to wait, on arrival or after it came back; once."""
        if not entry.counted:
            entry.counted = True
            self.tally.enqueued += 1

    def dequeue(self, entry: Entry) -> None:
        """Count an entry as no longer waiting."""
        if entry.queue.rank == self.job_rank:
            self.waiting_jobs -= 1
        else:
            self.bounds.remove(entry)
            if (room := entry.room) is not None:
                room.calls -= 1
                if not room.calls:
                    self.rates.offer(room, self.now_s)

    def join_queue(self, entry: Entry) -> None:
        """Put an entry that is counted already into its queue and start its waiting clock."""
        entry.move("wait")
        entry.price = self.charging.price(entry)
        if entry.claim is None or not self.rates.parks(entry, self.now_s):
            entry.queue.join(entry)
        self._start_clock(entry)

    def rejoin_queue(self, entry: Entry) -> None:
        """Put an entry that ran back into its old place; its waiting clock goes on."""
        entry.move("return")
        entry.queued = True
        self.enqueue(entry)
        entry.queue.rejoin(entry)
        self._start_clock(entry)

    def restore_place(self, entry: Entry) -> None:
        """Put an entry where it stood in another core; its waiting clock goes on."""
        entry.move("wait")
        if entry.attempt:
            if entry.claim is not None:
                self.rates.resume(entry.claim, runs=False)
            entry.queue.rejoin(entry)
        else:
            entry.price = self.charging.price(entry)
            if not self.rates.parks(entry, self.now_s):
                entry.queue.join(entry)
        self._start_clock(entry)

    def promote(self, entry: Entry) -> None:
        queue = entry.queue
        if not self.options.aging_s:
            return
        self._change_queue(entry, queue.lane.queues[queue.rank - 1])
        entry.promotes_in_s += self.options.aging_s
        self._arm_promotion(entry)

    def change_model(self, entry: Entry, arrival: Arrived, lane: Lane) -> None:
        """Let a waiting entry run with another of its models, at its old place and age."""
        before = entry.queue.lane
        lane.unfinished += 1
        entry.arrival = arrival
        self._change_queue(entry, lane.queues[entry.queue.rank])
        before.unfinished -= 1
        self.cluster.forget_if_unused(before)

    def _change_queue(self, entry: Entry, queue: WaitQueue) -> None:
        claim = entry.claim
        parked = claim is not None and self.rates.leave_line(entry, claim, self.now_s)
        self.dequeue(entry)
        returned = not parked and entry.queue.drop(entry)
        self.dispatch.note_leave(entry.queue)
        entry.queue = queue
        entry.account = queue.account_of(entry.user, entry.arrival.weight)
        self.enqueue(entry)
        if not self.rates.parks(entry, self.now_s):
            if returned or (parked and entry.charged_on is not None):
                queue.rejoin(entry)
            else:
                queue.join(entry)
            self.dispatch.note_join(queue, entry.since_s, self.now_s)
        if claim is not None:
            self.rates.offer(claim.rate, self.now_s)

    def check_frozen(self, options: Options) -> None:
        """Raise when new options differ in what cannot change while running."""
        for name in FROZEN_WHILE_RUNNING:
            if getattr(options, name) != getattr(self.options, name):
                raise NotAllowed(f"{name} cannot change while running: restart with the new value")

    def change_options(self, options: Options) -> None:
        """Take over new limits; lower bounds drain."""
        self.options = options
        self.cluster.change_options(options)
        self.bounds.change_options(options)
        self.dispatch.options = options
        self.charging = Charging(options)
        self.rates.change(options.key_limits, self.now_s)
        self.users.idle_max = options.idle_users_max

    def end(self, entry: Entry, cause: Cause) -> None:
        """Close a ticket that holds no lease, wherever it stands."""
        queue, waited = entry.queue, entry.state == "waiting"
        entry.waited_s = entry.total_wait_s(self.now_s)
        entry.move(cause)
        if waited:
            self.dequeue(entry)
            claim = entry.claim
            if claim is None or not claim.parked:
                queue.drop(entry)
            if claim is not None:
                self.rates.leave(entry, claim, self.now_s)
            self._forget_hold(entry)
            self.dispatch.note_leave(queue)
            self.charging.refund(entry)
        queue.lane.unfinished -= 1
        del self.entries[entry.id]
        self.users.leave(entry.user)
        if entry.room is not None:
            self.rates.exit(entry, entry.room, self.now_s)
        if not queue.lane.is_known():
            self.cluster.forget_if_unused(queue.lane)

    def expire(self, entries: Iterable[Entry]) -> None:
        """End and answer them; nothing else starts before all are out of the way."""
        for entry in entries:
            self.end(entry, "expire")
        waits: dict[Lane, Estimate | None] = {}
        for entry in entries:
            lane = entry.queue.lane
            if lane not in waits:
                waits[lane] = lane.newcomer_wait_s(self.now_s)
            wait = waits[lane]
            self.tally.expired += 1
            again_s = None if wait is None else wait[0]
            self.actions.append(Expire(entry.id, self._why_expired(lane), entry.waited_s, again_s))

    def _why_expired(self, lane: Lane) -> ExpireCode:
        if lane.is_up:
            return "queue_timeout"
        reason = self.cluster.outlook(lane, self.now_s)
        return "model_loading" if reason in ("loading", "starting") else "no_node"

    def _start_clock(self, entry: Entry) -> None:
        """Count the time from now on as waiting; jobs have all the time in the world."""
        queue = entry.queue
        if entry.claim is None or not entry.claim.parked:
            waited_s = 0.0 if entry.attempt else entry.waited_s  # what came back was served
            self.dispatch.note_join(queue, self.now_s - waited_s, self.now_s)
        entry.since_s = self.now_s
        if queue.rank == self.job_rank:
            return
        entry.deadline_s = self.now_s + entry.wait_left_s
        self.timers.add(entry.deadline_s, "deadline", entry)
        self._arm_promotion(entry)

    def _arm_promotion(self, entry: Entry) -> None:
        if self.options.aging_s and entry.queue.rank > 0:
            entry.promotes_at_s = entry.since_s + entry.promotes_in_s
            self.timers.add(entry.promotes_at_s, "promotion", entry)

    def _take_out(self, entry: Entry) -> None:
        """Take an entry out of its queue and of the count, to start it."""
        queue = entry.queue
        queue.take(entry)
        if entry.held_on is not None:
            self._forget_hold(entry)
        self.dispatch.note_leave(queue)
        self.dequeue(entry)
        if entry.guest:
            entry.guest = False  # should it come back, it waits like anyone

    def _stop_waiting(self, entry: Entry) -> None:
        waited_s = self.now_s - entry.since_s
        entry.waited_s += waited_s
        entry.wait_left_s -= waited_s
        entry.promotes_in_s -= waited_s
        queue = entry.promised_in
        if queue is not None and entry.p50_s is not None and entry.attempt == 0:
            queue.promises.learn(entry.kind, entry.raw_s, entry.p50_s, entry.waited_s)


def _everywhere(_ticket: str, _node: str) -> bool:
    return True
