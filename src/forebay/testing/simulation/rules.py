"""What must be true of every decision, as far as it can be seen from outside.

Each rule is a function of the mirror that returns nothing or raises `AssertionError` with a
sentence. The numbers are the invariants of the policy: 2 leases, 3 no idle slot, 5 classes,
8 deadlines, 9 places kept, 12 bounds, 14 order of arrival.
"""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.core.actions import Route
    from forebay.core.options import Options
    from forebay.testing.simulation.mirror import Mirror, NodeSeen, Ticket

TOLERANCE_S = 1e-6
"""Sums of floats differ in their last digits; no duration of interest is this short."""


def may_start(mirror: Mirror, options: Options, ticket: Ticket, action: Route) -> None:
    """Check everything about one start."""
    node = mirror.nodes.get(action.node)
    assert node is not None, f"{action} goes to a node that nobody reported"
    _node_is_fit(mirror, ticket, node)
    _ticket_is_due(mirror, ticket, action)
    _nobody_is_passed_over(mirror, options, ticket, node)


def _node_is_fit(mirror: Mirror, ticket: Ticket, node: NodeSeen) -> None:
    name, now_s = node.name, mirror.now_s
    assert not node.removed, f"{ticket.arrived.id} starts on {name}, which was removed"
    assert node.state == "online", f"{ticket.arrived.id} starts on {name}, which is {node.state}"
    assert now_s >= node.rest_until_s, f"{ticket.arrived.id} starts on {name}, which rests"
    assert node.serves(ticket.lane), f"{name} does not serve {ticket.lane}"
    assert len(node.leases) < node.slots, (
        f"{name} has {node.slots} slots and {len(node.leases)} leases, and is given one more"
    )
    assert name not in ticket.excluded, f"{ticket.arrived.id} returns to {name}, barred"
    if node.swaps:
        running = {lease.arrived.model for lease in node.leases.values()}
        assert len(running | {ticket.arrived.model}) <= node.loaded_max, (
            f"{name} runs {sorted(running)} and is sent {ticket.arrived.model} as well"
        )


def _ticket_is_due(mirror: Mirror, ticket: Ticket, action: Route) -> None:
    request_id, now_s = ticket.arrived.id, mirror.now_s
    assert ticket.state in ("new", "waiting"), f"{request_id} starts while {ticket.state}"
    deadline_s = ticket.deadline_s()
    assert deadline_s is None or now_s <= deadline_s + TOLERANCE_S, (
        f"{request_id} starts at {now_s}, after its deadline {deadline_s}"
    )
    assert action.attempt == ticket.attempt + 1, f"{request_id} is at attempt {ticket.attempt + 1}"
    assert action.queued == ticket.queued, f"{request_id}: queued should be {ticket.queued}"
    assert action.predicted_s == ticket.promised_s, f"{request_id} was told {ticket.promised_s}"
    waited_s = ticket.total_wait_s(now_s)
    assert abs(action.waited_s - waited_s) <= TOLERANCE_S, (
        f"{request_id} waited {waited_s}, not {action.waited_s}"
    )


def _nobody_is_passed_over(
    mirror: Mirror, options: Options, ticket: Ticket, node: NodeSeen
) -> None:
    rivals = [rival for rival in mirror.waits_for(node) if rival is not ticket]
    if not rivals:
        return
    for rival in rivals:
        if rival.lane == ticket.lane and rival.rank == ticket.rank and not options.aging_s:
            assert not _was_first(rival, ticket, options), (
                f"{ticket.arrived.id} starts before {rival.arrived.id}, whose turn it was"
            )
    if node.swaps:  # the swap rule orders lanes; inside a lane, classes keep their order
        rivals = [rival for rival in rivals if rival.lane == ticket.lane]
    if ticket.arrived.job:
        live = next((rival.arrived.id for rival in rivals if not rival.arrived.job), None)
        assert live is None, f"job {ticket.arrived.id} starts while {live} waits"
    elif options.class_order == "strict":
        least = _rank_at_best(ticket, options, mirror.now_s)
        for rival in rivals:
            assert rival.arrived.job or _rank_at_worst(rival, options, mirror.now_s) >= least, (
                f"{ticket.arrived.id} starts while {rival.arrived.id} of a higher class waits"
            )


def _was_first(rival: Ticket, ticket: Ticket, options: Options) -> bool:
    """Say whether a rival of the same class and lane should have gone first.

    Returned ones come before all others, the oldest first (invariant 9); the others in order of
    arrival where one user, or everybody, is served first come, first served (invariant 14).
    """
    if rival.arrived.job != ticket.arrived.job:
        return False
    if rival.returned != ticket.returned:
        return rival.returned
    in_order = rival.arrived.user == ticket.arrived.user or options.fairness == "fifo"
    return rival.order < ticket.order and (in_order or rival.returned)


def _rank_at_best(ticket: Ticket, options: Options, now_s: float) -> int:
    """Return the highest class that age can have given it."""
    if not options.aging_s:
        return ticket.rank
    intervals = floor((ticket.total_wait_s(now_s) + TOLERANCE_S) / options.aging_s)
    return max(0, ticket.rank - intervals)


def _rank_at_worst(ticket: Ticket, options: Options, now_s: float) -> int:
    """Return the class that it has at least."""
    if not options.aging_s or ticket.state != "waiting":
        return ticket.rank
    waited_s = now_s - ticket.waiting_since_s
    intervals = max(0, floor((waited_s - TOLERANCE_S) / options.aging_s))
    return max(0, ticket.rank - intervals)


def no_slot_is_idle(mirror: Mirror) -> None:
    """Check invariant 3: no free slot while something waits that could use it.

    A node that swaps models may hold a slot for a swap, but not while it does nothing at all and a
    live request waits, and not when all that waits for it wants a model that is running there.
    """
    for node in mirror.nodes.values():
        if not node.is_usable(mirror.now_s):
            continue
        waiting = list(mirror.waits_for(node))
        if waiting and node.swaps:
            hot = {lease.arrived.model for lease in node.leases.values()}
            if any(ticket.arrived.model not in hot for ticket in waiting):
                waiting = [t for t in waiting if not node.leases and not t.arrived.job]
        first = next((ticket.arrived.id for ticket in waiting), None)
        assert first is None, f"{node.name} has a free slot while {first} waits for it"


def nothing_is_overdue(mirror: Mirror) -> None:
    """Check invariant 8 from the other side: who has waited too long is told at once."""
    for ticket in mirror.all_waiting():
        deadline_s = ticket.deadline_s()
        assert deadline_s is None or deadline_s > mirror.now_s - TOLERANCE_S, (
            f"{ticket.arrived.id} still waits at {mirror.now_s}, after its deadline {deadline_s}"
        )


def a_timer_is_set(mirror: Mirror, next_deadline_s: float | None) -> None:
    """Check that a tick is asked for in time: the next deadline, the end of a rest."""
    due_s = [ticket.deadline_s() for ticket in mirror.all_waiting()]
    for node in mirror.nodes.values():
        rests = node.is_up() and node.rest_until_s > mirror.now_s
        if rests and len(node.leases) < node.slots and next(mirror.waits_for(node), None):
            due_s.append(node.rest_until_s)
    first_s = min((at_s for at_s in due_s if at_s is not None), default=None)
    if first_s is not None:
        assert next_deadline_s is not None, f"no tick is asked for, but {first_s} is due"
        assert next_deadline_s <= first_s + TOLERANCE_S, (
            f"a tick is asked for at {next_deadline_s}, after {first_s}, which is due"
        )


def the_bounds_hold(mirror: Mirror, options: Options, ticket: Ticket) -> None:
    """Check invariant 12 after a ticket was admitted; only admissions can break it."""
    arrived = ticket.arrived
    if arrived.key_running_max:
        unfinished = mirror.unfinished_by_key[arrived.key]
        assert unfinished <= arrived.key_running_max, f"{unfinished} unfinished of one key"
    if ticket.state != "waiting" or arrived.job:
        return
    if not ticket.guest:
        assert options.enabled, "the queue is off"
        assert not arrived.stream or options.queue_streams, "streams are not queued"
        assert mirror.inside() <= options.max_size, f"{mirror.inside()} wait"
    assert mirror.waiting_bytes <= options.bytes_max, f"{mirror.waiting_bytes} bytes wait"
    if options.per_user_max:
        held = mirror.waiting_by_user[arrived.user]
        assert held <= options.per_user_max, f"{arrived.user} has {held} waiting"
