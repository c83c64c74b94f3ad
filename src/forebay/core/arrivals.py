"""The decision on arrival: `Route`, `Wait(reason, estimate)` or `Reject(code, reasons)`.

1. *Model*: of several, one that can run now, else one that a node is up for, else one that a node
   will soon be up for.
2. *Node*: where none has a slot for it, refuse what none will have in time; `_unroutable` says why.
   What takes no slot at all is only counted.
3. *Key*: refuse what is over its key's cap, and let what is over its rate wait (5).
4. *Slot*: start where one is free, unless a better node is worth waiting for.
5. *Job*: wait, outside the bounds.
6. *Key*: refuse what its rate, or the prompts that wait at its cap, keep from starting in time.
7. *Time*: refuse what will not wait.
8. *Room*: refuse what finds none, unless one that waits makes room.
9. *Line*: refuse what would only wait to die, at its own limit or at the operator's.
10. Displace who makes room, and wait.
"""

from __future__ import annotations

from itertools import chain
from math import inf, isnan
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from forebay.core import outlook
from forebay.core.actions import NO_ROOM, RETURNABLE, Reject, Wait
from forebay.core.charging import expected
from forebay.core.dispatch import fill_open
from forebay.core.gates import may_be_held
from forebay.core.nodes import would_open
from forebay.core.placement import GAIN_S, Start, choose, usable
from forebay.core.rates import charge_claim, is_full, owed_up_to
from forebay.core.records import NOWHERE, Claim
from forebay.errors import InvariantBroken

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.core.actions import RejectCode, WaitReason
    from forebay.core.events import Arrived, Resumed
    from forebay.core.records import Entry, Lane, Node, WaitQueue
    from forebay.core.tickets import Book

REASONS: dict[str, str] = {
    "queue_full": "queue is full: all nodes are busy",
    "user_queue_full": "this user or key has reached its limit of waiting or running requests",
    "queue_disabled": "all nodes are busy and the queue is off",
    "stream_not_queued": "all nodes are busy and streams are not queued",
    "deadline_unreachable": "the estimated wait is longer than the caller will wait",
    "model_not_found": "no node has this model",
    "route_not_supported": "the model is known, but not in this API family",
    "model_loading": "every node of this model is still loading or starting",
    "no_node": "every node of this model is offline",
    "rate_limited": "the key is over its rate for longer than the request may wait",
    "shutting_down": "the gateway is shutting down",
}

NEVER_WAITS: Final = ("queue_disabled", "stream_not_queued")
"""Refusals of those who may not wait, whatever the room; but live calls come before jobs."""

WEIGHT_MIN, WEIGHT_MAX = 0.000001, 1000000.0
"""Beyond these a share means nothing, and charges over weights would not stay finite."""


def decide(book: Book, arrival: Arrived) -> None:
    """Route an arrival, let it wait, or refuse it."""
    if (
        arrival.id in book.entries
        or arrival.weight != 1.0
        or arrival.max_wait_s is not None
        or arrival.fallbacks
    ):
        validate(book, arrival)
        arrival = choose_model(book, arrival)  # 1
    lane = book.cluster.lanes.get((arrival.model, arrival.family))
    if lane is None or not lane.slots or book.stopping:  # 2
        lane = _lane_worth_waiting_for(book, arrival, lane)
        if lane is None:
            return
    # 3
    if (arrival.key_running_max or book.paced) and _is_settled_by_key(book, arrival, lane):
        return
    if book.cluster.open:  # 4
        queue = lane.queues[book.rank_of(arrival)]
        node = choose(book.cluster, queue, arrival, NOWHERE, book.now_s)
        if node is not None and len(lane.nodes) > 1 and _is_held(book, arrival, queue, node):
            _enqueue(book, arrival, lane)
            return
        if node is not None:
            book.start(book.accept(arrival, lane, queue), node)
            return
    _wait_or_refuse(book, arrival, lane)


def better_on_loan(book: Book, arrival: Arrived, names: Iterable[str]) -> tuple[str, float]:
    """Return the node with idle slots on loan that an arrival had better wait for, if any.

    And how much sooner it ends there than where it would start now; "" and 0.0 without one.
    """
    cluster = book.cluster
    lane = cluster.lanes.get((arrival.model, arrival.family))
    if lane is None:
        return "", 0.0
    lent = {
        name: lane.nodes[name] for name in names
        if name in lane.nodes and name not in cluster.open
        and would_open(lane.nodes[name], book.now_s)
    }  # fmt: skip
    queue = lane.queues[book.rank_of(arrival)]
    able = usable(cluster, queue, arrival, NOWHERE, {**cluster.open, **lent})
    start = Start(cluster, queue, arrival, NOWHERE, book.now_s)
    there = start.best(able) if able else None
    if there is None or there.name not in lent:
        return "", 0.0
    here = choose(cluster, queue, arrival, NOWHERE, book.now_s)
    if here is not None:
        gain_s = start.cost_s(here) - start.cost_s(there)
    elif cluster.affinities.get(arrival.affinity) == there.name:
        gain_s = inf  # it has to wait for a loan in any case
    else:
        gain_s = float(there.prefixes.cached_tokens(arrival)) * start.token_s
    return (there.name, gain_s) if gain_s > GAIN_S else ("", 0.0)


def resume(book: Book, event: Resumed) -> None:
    """Take over a ticket of another core, with its old place and age; nobody is told.

    A core is soft state: whoever has the requests can build it again. What ran holds its lease,
    even beyond the slots: nothing more starts there until it drains.
    """
    validate(book, event.arrival)
    arrival = event.arrival if event.node else choose_model(book, event.arrival)
    lane = book.cluster.lane(arrival.model, arrival.family)
    entry = book.accept(arrival, lane)
    if event.seq:
        entry.seq = event.seq
        book.seq = max(book.seq, event.seq)
    entry.queued = entry.counted = event.waited_s > 0.0 or not event.node
    entry.waited_s = event.waited_s
    if entry.room is None or not arrival.patient:  # else some of it may have stood still
        entry.wait_left_s -= event.waited_s
    entry.promotes_in_s -= event.waited_s
    entry.attempt = event.attempt
    entry.answered_at_s -= event.waited_s + event.ran_s
    if event.excluded:
        entry.excluded = frozenset(event.excluded)
    if event.node:
        _resume_lease(book, entry, event)
    else:
        book.wait(entry)
        fill_open(book, lane, entry)


def _resume_lease(book: Book, entry: Entry, event: Resumed) -> None:
    node = book.cluster.find(event.node)
    book.charging.charge(entry, node)
    if entry.claim is not None:
        book.rates.resume(entry.claim, runs=True)
    if event.lent and node.lent:
        node.lent -= 1
        entry.lent = True
    book.lease(entry, node)
    entry.since_s = book.now_s - event.ran_s


def _is_settled_by_key(book: Book, arrival: Arrived, lane: Lane) -> bool:
    """Refuse it, or let it wait, because of the limits of its key; False: it is within them."""
    cap = arrival.key_running_max
    if cap and not (arrival.job or arrival.patient):
        room = book.paced.get(arrival.key)
        if room is not None and room.held >= cap:
            refuse(book, arrival, "user_queue_full", lane)
            return True
    claim, rank = book.rates.claim_of(arrival, lane, book.options), book.rank_of(arrival)
    if claim is None:
        return False
    in_line = (lane.queues[rank], claim.gated) in claim.rate.lines
    if not in_line and book.rates.may_start(claim, (rank, book.seq + 1), book.now_s):
        return False
    _wait_or_refuse(book, arrival, lane)
    return True


def _is_refused_by_rate(book: Book, arrival: Arrived, lane: Lane | None) -> bool:
    """Refuse at once what its key's rate does not let start within its wait limit.

    One that may not wait at all has no time, nor has one without a lane, which takes no slot and
    uses no tokens.
    """
    rate = book.paced.get(arrival.key)
    if rate is None:
        return False
    tokens = 0.0 if lane is None else expected(lane, arrival, book.options)
    ahead = owed_up_to(rate, book.rank_of(arrival))  # those of its key that wait go first
    wait_s = book.rates.bucket_wait_s(rate, tokens, book.now_s, ahead)
    may_wait = lane is not None and book.bounds.lets_wait(arrival) is None
    limit_s = book.limit_s(arrival) if may_wait else 0.0
    if wait_s == 0.0 or wait_s < limit_s:  # what would start at its limit expires then
        return False
    refuse(book, arrival, "rate_limited", lane, wait_s)
    return True


def choose_model(book: Book, arrival: Arrived) -> Arrived:
    """Settle on a model: one with a free slot, else one that a node is up for.

    Else one that a node will soon be up for.
    """
    if not arrival.fallbacks:
        return arrival
    rank = book.rank_of(arrival)
    up = soon = ""
    for model in (arrival.model, *arrival.fallbacks):
        lane = book.cluster.lanes.get((model, arrival.family))
        if lane is None or not lane.is_up:
            if not soon and book.cluster.outlook(lane, book.now_s) is not None:
                soon = model
        elif choose(book.cluster, lane.queues[rank], arrival, NOWHERE, book.now_s) is not None:
            return replace(arrival, model=model)
        else:
            up = up or model
    return replace(arrival, model=up or soon or arrival.model)


def validate(book: Book, arrival: Arrived) -> None:
    """Raise for an arrival that is a bug of the caller, before it changes anything."""
    if arrival.id in book.entries:
        raise InvariantBroken(f"ticket {arrival.id!r} already exists")
    if not WEIGHT_MIN <= arrival.weight <= WEIGHT_MAX:
        raise InvariantBroken(
            f"ticket {arrival.id!r}: weight must be between {WEIGHT_MIN} and {WEIGHT_MAX:.0f}"
        )
    if arrival.max_wait_s is not None and isnan(arrival.max_wait_s):
        raise InvariantBroken(f"ticket {arrival.id!r}: max_wait_s must be a number")


def refuse(
    book: Book,
    arrival: Arrived,
    code: RejectCode,
    lane: Lane | None,
    wait_s: float | None = None,
    words: str = "",
) -> None:
    """Refuse an arrival; nothing of it is kept."""
    if not arrival.job and (not arrival.patient or code not in NO_ROOM):
        book.tally.rejected[code] += 1  # a job that gets no slot is still queued
    if wait_s is None and lane is not None:
        wait_s = outlook.come_again_s(book, arrival, lane)
    if lane is not None and not lane.listed:
        book.cluster.forget_if_unused(lane)
    words = words or (_why_no_node(book, lane) if code == "no_node" else REASONS[code])
    if code in RETURNABLE:
        book.keep_number(arrival, book.arrival_number(arrival), wait_s)
    rate = book.paced[arrival.key] if code == "rate_limited" else None
    status = None if rate is None else book.rates.status(rate, book.now_s)
    book.actions.append(Reject(arrival.id, code, (words,), wait_s, wait_s, status))


def reason(book: Book, entry: Entry) -> WaitReason:
    """Say why an entry waits."""
    claim = entry.claim
    if claim is not None and claim.parked:
        if claim.gated and is_full(claim.rate, entry.queue.rank):
            return "key"
        if claim.rate.limits:
            return "rate"
    if entry.hold is not None:
        return "better_node"
    lane, excluded = entry.queue.lane, entry.excluded
    open_nodes = book.cluster.open
    if open_nodes and any(name in open_nodes and name not in excluded for name in lane.nodes):
        return "turn"
    if lane.is_up:
        return "busy"
    return book.cluster.outlook(lane, book.now_s) or "offline"


def _lane_worth_waiting_for(book: Book, arrival: Arrived, lane: Lane | None) -> Lane | None:
    """Return where an arrival should wait that no node can take now, or None: it is refused."""
    if not arrival.model:  # it takes no slot, and there is no line for it
        rate = book.paced.get(arrival.key)
        if not _is_refused_by_rate(book, arrival, None):
            if rate is not None:
                charge_claim(rate, Claim(rate, 0.0, gated=False), 1, 0.0, book.now_s)
            book.actions.append(Reject(arrival.id, "counted"))
        return None
    code = _unroutable(book, arrival, lane)
    if code is not None:
        refuse(book, arrival, code, lane)
        return None
    if lane is None or not lane.listed:
        lane = book.cluster.lane(arrival.model, arrival.family)
        lane.is_unlisted = True  # it is there for as long as a node may have the model
    return lane


def _unroutable(book: Book, arrival: Arrived, lane: Lane | None) -> RejectCode | None:
    """Say why waiting for a node that is up would be of no use, or may not be."""
    if book.stopping:
        return "shutting_down"
    known = lane is not None and bool(lane.listed)
    if known and (arrival.job or (lane is not None and lane.is_up)):
        return None
    reason = book.cluster.outlook(lane, book.now_s)
    if reason is None:
        return "no_node" if known or book.cluster.unreported else unknown(book, arrival.model)
    if arrival.job or (book.limit_s(arrival) > 0.0 and book.bounds.lets_wait(arrival) is None):
        return None
    return "no_node" if reason == "offline" else "model_loading"


def unknown(book: Book, model: str) -> RejectCode:
    """Say what is wrong with a model that no node has in the family asked for."""
    lanes = book.cluster.lanes.values()
    known = any(lane.model == model and bool(lane.listed) for lane in lanes)
    return "route_not_supported" if known else "model_not_found"


def _why_no_node(book: Book, lane: Lane | None) -> str:
    """Name the nodes that were never heard of: most likely their address is wrong."""
    nodes = chain(lane.listed.values() if lane is not None else (), book.cluster.unreported)
    silent = ", ".join(dict.fromkeys(node.name for node in nodes if node.is_new))
    return f"{REASONS['no_node']}; no answer yet from: {silent}" if silent else REASONS["no_node"]


def _wait_or_refuse(book: Book, arrival: Arrived, lane: Lane) -> None:
    """Let it wait, unless it will not, may not, or would only wait to die."""
    own_s = arrival.max_wait_s
    if arrival.job:  # 5
        _enqueue(book, arrival, lane)
        return
    if book.paced and _is_refused_by_rate(book, arrival, lane):  # 6
        return
    room = book.paced.get(arrival.key) if arrival.patient and arrival.key_running_max else None
    if room is not None and room.calls >= arrival.key_running_max:  # more would keep others out
        refuse(book, arrival, "user_queue_full", lane)
        return
    if own_s is not None and own_s <= 0.0 < book.options.wait_s_max:  # 7
        refuse(book, arrival, "deadline_unreachable", lane)
        return
    code, victim = _find_room(book, arrival, lane)  # 8
    if code is not None:
        refuse(book, arrival, code, lane)
        return
    if lane.is_up and _is_hopeless(book, arrival, lane):  # 9; a load may be shorter than others
        return
    if victim is not None:  # 10
        lane.unfinished += 1  # one that no node lists must not end with its last waiter
        book.end(victim, "reject")
        book.keep_number(victim.arrival, victim.seq, None)
        refuse(book, victim.arrival, "queue_full", victim.queue.lane)
        lane.unfinished -= 1
    _enqueue(book, arrival, lane)


def _enqueue(book: Book, arrival: Arrived, lane: Lane) -> None:
    newest = book.seq
    entry = book.accept(arrival, lane)
    if entry.wait_left_s <= 0.0 and not arrival.job:  # the operator's limit is zero
        book.expire([entry])
        return
    entry.guest = not arrival.job and book.bounds.lets_wait(arrival) is not None
    book.wait(entry)
    before = len(book.actions)
    parked = entry.claim is not None and entry.claim.parked
    if not parked:
        fill_open(book, lane, entry)  # a node that must swap models first may still take it
    if entry.state == "waiting":
        entry.queued = True
        entry.counted = True
        book.tally.enqueued += 1
        position, told = outlook.outlook(book, entry, youngest=entry.seq > newest)
        entry.promised, claim = told, entry.claim
        header_s, p50_s, p90_s = told[:3] if told is not None else (None, None, None)
        wait = Wait(
            entry.id, reason(book, entry), position, header_s, p50_s, p90_s,
            entry.seq, None if claim is None else book.rates.status(claim.rate, book.now_s),
        )  # fmt: skip
        book.actions.insert(before, wait)


def _find_room(book: Book, arrival: Arrived, lane: Lane) -> tuple[RejectCode | None, Entry | None]:
    """Return why one more may not wait, or else who makes room for it, if anybody must."""
    user = book.users.known.get(arrival.user)
    code = book.bounds.refusal(arrival, user)
    if code in (None, "queue_full") and not lane.is_up and _strands_too_many(book):
        return "queue_full", None
    if code == "queue_full" and book.limit_s(arrival) > 0.0:
        victim = book.bounds.victim(arrival, book.rank_of(arrival), user, book.now_s)
        return (code if victim is None else None), victim
    if code in NEVER_WAITS and _finds_a_job(book, lane):
        code = book.bounds.refusal(arrival, user, as_guest=True)
    return code, None


def _is_hopeless(book: Book, arrival: Arrived, lane: Lane) -> bool:
    """Refuse at once what would wait longer than its caller will, or the operator lets it."""
    own_s, limit_s = arrival.max_wait_s, book.options.wait_s_max
    if own_s is not None and own_s < limit_s:
        wait_s = outlook.beyond_own_limit_s(book, arrival, lane, own_s)
        if wait_s is not None:
            refuse(book, arrival, "deadline_unreachable", lane, wait_s)
    else:
        wait_s = outlook.beyond_the_limit_s(book, arrival, lane)
        if wait_s is not None:
            times = f"would wait about {_about(wait_s)}, the limit is {_about(limit_s)}"
            refuse(book, arrival, "queue_full", lane, wait_s, f"queue is full: {times}")
    return wait_s is not None


def _is_held(book: Book, arrival: Arrived, queue: WaitQueue, node: Node) -> bool:
    """Say whether one that could start should rather wait for a better node."""
    if book.limit_s(arrival) <= 0.0 or not may_be_held(book, arrival, queue.rank):
        return False
    start = Start(book.cluster, queue, arrival, NOWHERE, book.now_s)
    if start.hold_for(node, 0.0) is None:
        return False
    return book.bounds.refusal(arrival, book.users.known.get(arrival.user)) is None


def _finds_a_job(book: Book, lane: Lane) -> bool:
    """Say whether a job has a slot that it could use, and nobody else waits for that slot.

    Those who may wait for jobs in any slot of these nodes are counted against them all.
    """
    jobs = sum(
        book.entries[ticket].arrival.job
        for node in lane.nodes.values()
        if node.state == "online"
        for ticket in node.leases
    )
    if not jobs or not book.bounds.guests:
        return jobs > 0
    rivals = (other for other in book.cluster.lanes.values() if other.guests)
    return jobs > sum(one.guests for one in rivals if not lane.nodes.keys().isdisjoint(one.nodes))


def _strands_too_many(book: Book) -> bool:
    """Say whether half of the places are taken by those who wait for nodes that are not up.

    While others are up, the other half is for them.
    """
    half = max(1, book.options.max_size // 2)
    if book.bounds.waiting < half:
        return False
    lanes = book.cluster.lanes.values()
    stranded = sum(lane.waiting for lane in lanes if not lane.is_up)
    return stranded >= half and any(lane.is_up for lane in lanes)


def _about(seconds: float) -> str:
    """Say how long something is, for people.

    >>> [_about(seconds) for seconds in (0.5, 60.0, 185.0)]
    ['0.5 s', '60 s', '3 min']
    """
    return f"{seconds:.3g} s" if seconds < 120.0 else f"{seconds / 60.0:.0f} min"
