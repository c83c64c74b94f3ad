"""What must be true of every decision, as far as it can be seen from outside.

Each rule is a function of the mirror that returns nothing or raises `AssertionError` with a
sentence. The numbers are the invariants of the policy: 2 leases, 3 no idle slot, 5 classes,
8 deadlines, 9 places kept, 12 bounds, 14 order of arrival.
"""

from __future__ import annotations

from collections import Counter
from math import floor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.core.actions import Reject, Route
    from forebay.core.events import Arrived
    from forebay.core.options import Options
    from forebay.testing.simulation.mirror import Mirror, SeenNode, SeenTicket

MINUTE_S = 60.0
TOLERANCE_S = 1e-6
"""Sums of floats differ in their last digits; no duration of interest is this short."""


def may_start(mirror: Mirror, options: Options, ticket: SeenTicket, action: Route) -> None:
    """Check everything about one start."""
    node = mirror.nodes.get(action.node)
    assert node is not None, f"{action} goes to a node that nobody reported"
    _node_is_fit(mirror, ticket, node)
    _ticket_is_due(mirror, ticket, action)
    assert not mirror.is_gated(ticket), f"{action.id} starts, but its key has no room for it"
    _nobody_is_passed_over(mirror, options, ticket, node)


def _node_is_fit(mirror: Mirror, ticket: SeenTicket, node: SeenNode) -> None:
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


def _ticket_is_due(mirror: Mirror, ticket: SeenTicket, action: Route) -> None:
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
    mirror: Mirror, options: Options, ticket: SeenTicket, node: SeenNode
) -> None:
    rivals = [one for one in mirror.waits_for(node) if one.arrived.id not in mirror.starting]
    for rival in rivals:
        if rival.lane == ticket.lane and rival.rank == ticket.rank and not options.aging_s:
            assert not _was_first(rival, ticket, options) or mirror.is_held(rival), (
                f"{ticket.arrived.id} starts before {rival.arrived.id}, whose turn it was"
            )
    least = _rank_at_best(ticket, options, mirror.now_s)
    for rival in rivals:
        if rival.arrived.job or (node.swaps and rival.lane != ticket.lane):
            continue  # the swap rule orders lanes; inside a lane, classes keep their order
        before = _rank_at_worst(rival, options, mirror.now_s) < least
        before = ticket.arrived.job or (before and options.class_order == "strict")
        assert not before or mirror.is_held(rival), (
            f"{ticket.arrived.id} starts while {rival.arrived.id} of a higher class waits"
        )


def _was_first(rival: SeenTicket, ticket: SeenTicket, options: Options) -> bool:
    """Say whether a rival of the same class and lane should have gone first.

    Returned ones come before all others, the oldest first (invariant 9); the others in order of
    arrival where one conversation, or everybody, is served first come, first served (invariant 14).
    Shares of users and of conversations are for the oracle of the fairness tests.
    """
    if rival.arrived.job != ticket.arrived.job:
        return False
    if rival.returned != ticket.returned:
        return rival.returned
    one_talk = _talk_of(rival) == _talk_of(ticket)
    in_order = one_talk or options.fairness == "fifo"
    return rival.order < ticket.order and (in_order or rival.returned)


def _talk_of(ticket: SeenTicket) -> tuple[str, str]:
    return ticket.arrived.user, ticket.arrived.conversation


def _rank_at_best(ticket: SeenTicket, options: Options, now_s: float) -> int:
    """Return the highest class that age can have given it."""
    if not options.aging_s:
        return ticket.rank
    intervals = floor((ticket.total_wait_s(now_s) + TOLERANCE_S) / options.aging_s)
    return max(0, ticket.rank - intervals)


def _rank_at_worst(ticket: SeenTicket, options: Options, now_s: float) -> int:
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
        waiting = [one for one in mirror.waits_for(node) if not mirror.is_held(one)]
        if waiting and node.swaps:
            hot = {lease.arrived.model for lease in node.leases.values()}
            if any(one.arrived.model not in hot for one in mirror.would_use(node)):
                waiting = [t for t in waiting if not node.leases and not t.arrived.job]
        first = next((ticket.arrived.id for ticket in waiting), None)
        assert first is None, f"{node.name} has a free slot while {first} waits for it"


def nothing_is_overdue(mirror: Mirror) -> None:
    """Check invariant 8 from the other side: who has waited too long is told at once."""
    first_s = mirror.first_deadline_s()
    if first_s is None or first_s > mirror.now_s - TOLERANCE_S:
        return
    late = next(ticket for ticket in mirror.all_waiting() if ticket.deadline_s() == first_s)
    raise AssertionError(
        f"{late.arrived.id} still waits at {mirror.now_s}, after its deadline {first_s}"
    )


def a_timer_is_set(mirror: Mirror, next_deadline_s: float | None) -> None:
    """Check that a tick is asked for in time: the next deadline, the end of a rest."""
    first_s = mirror.first_deadline_s()
    for node in mirror.nodes.values():
        rests = node.is_up() and node.rest_until_s > mirror.now_s
        if rests and len(node.leases) < node.slots and next(mirror.waits_for(node), None):
            first_s = node.rest_until_s if first_s is None else min(first_s, node.rest_until_s)
    if first_s is not None:
        assert next_deadline_s is not None, f"no tick is asked for, but {first_s} is due"
        assert next_deadline_s <= first_s + TOLERANCE_S, (
            f"a tick is asked for at {next_deadline_s}, after {first_s}, which is due"
        )


def the_bounds_hold(mirror: Mirror, options: Options, ticket: SeenTicket) -> None:
    """Check invariant 12 after a ticket was admitted; only admissions can break it."""
    arrived = ticket.arrived
    if arrived.key_running_max:
        held = mirror.held_by_key[arrived.key]
        assert held <= arrived.key_running_max, f"{held} unfinished of one key"
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


def the_rate_holds(starts_s: list[float], per_minute: int) -> None:
    """Check that a key never starts more than one bucket, and what refills it meanwhile."""
    for place, since_s in enumerate(starts_s):
        most = per_minute * (1.0 + (starts_s[-1] - since_s) / MINUTE_S)
        started = len(starts_s) - place
        assert started <= most + TOLERANCE_S, f"{started} starts since {since_s}, not {most}"


# Whether a refusal was deserved: a bound that is one too tight is as wrong as one too loose

CAPACITY_CODES = frozenset(
    {"queue_full", "queue_disabled", "stream_not_queued", "deadline_unreachable"}
)
"""Refusals that a free slot would have avoided."""


def is_deserved(
    mirror: Mirror, options: Options, newcomer: SeenTicket, action: Reject, stopping: bool
) -> None:
    """Check that a newcomer was refused for a reason that holds."""
    arrived = newcomer.arrived
    if action.code == "shutting_down":
        assert stopping, f"{arrived.id} is told of a shutdown that nobody asked for"
        return
    if action.code == "queue_full" and _line_is_too_long(mirror, options, arrived, action):
        return
    reason = REASONS.get(action.code)
    assert reason is not None, f"{arrived.id} is refused with the unknown code {action.code}"
    assert reason(mirror, options, arrived, action), (
        f"{arrived.id} is refused with {action.code}, which is not so"
    )
    own_bound = action.code == "user_queue_full" and not _is_key_full(mirror, arrived)
    if action.code in CAPACITY_CODES or own_bound:
        _no_slot_was_free(mirror, arrived)
    if action.code == "queue_full":
        nobody_could_give_way(mirror, options, newcomer)


def _line_is_too_long(mirror: Mirror, options: Options, arrived: Arrived, action: Reject) -> bool:
    """Say whether it may have been refused for the length of the line; estimates are not judged."""
    own_s = arrived.max_wait_s
    if (
        not action.reasons
        or arrived.job
        or arrived.patient
        or (own_s is not None and own_s < options.wait_s_max)
    ):
        return False
    is_up = any(node.is_up() for node in mirror.nodes_of((arrived.model, arrived.family)))
    told = options.refuses_long_lines and is_up and "would wait about" in action.reasons[0]
    return told and (action.estimate_s or 0.0) > 2.0 * options.wait_s_max > 0.0


def _no_slot_was_free(mirror: Mirror, arrived: Arrived) -> None:
    if arrived.key in mirror.paced:
        return  # it may not use one
    for node in mirror.nodes_of((arrived.model, arrived.family)):
        assert node.swaps or not node.is_usable(mirror.now_s), (
            f"{arrived.id} is refused though {node.name} has a free slot"
        )


def _queue_full(mirror: Mirror, options: Options, arrived: Arrived, _: Reject) -> bool:
    too_heavy = mirror.waiting_bytes + arrived.size_bytes > options.bytes_max
    stranded = mirror.strands_too_many((arrived.model, arrived.family), options.max_size)
    full = mirror.inside() >= options.max_size
    return not arrived.job and (full or too_heavy or stranded)


def _user_queue_full(mirror: Mirror, options: Options, arrived: Arrived, _: Reject) -> bool:
    held = mirror.waiting_by_user[arrived.user]
    is_user_full = not arrived.job and 0 < options.per_user_max <= held
    return is_user_full or _is_key_full(mirror, arrived)


def _is_key_full(mirror: Mirror, arrived: Arrived) -> bool:
    cap = arrived.key_running_max
    return not arrived.job and 0 < cap <= mirror.held_by_key[arrived.key]


def _queue_disabled(mirror: Mirror, options: Options, arrived: Arrived, _: Reject) -> bool:
    if arrived.job or (options.enabled and options.max_size > 0):
        return False
    return not mirror.finds_a_job((arrived.model, arrived.family))


def _stream_not_queued(mirror: Mirror, options: Options, arrived: Arrived, _: Reject) -> bool:
    if not arrived.stream or options.queue_streams:
        return False
    return not mirror.finds_a_job((arrived.model, arrived.family))


def never_waits(options: Options, arrived: Arrived) -> bool:
    """Say whether something like that waits for nothing but the end of a job."""
    off = not options.enabled or options.max_size == 0
    return not arrived.job and (off or (arrived.stream and not options.queue_streams))


def _deadline_unreachable(_: Mirror, __: Options, arrived: Arrived, action: Reject) -> bool:
    limit_s = arrived.max_wait_s
    if limit_s is None:
        return False
    return limit_s <= 0.0 or (action.estimate_s is not None and action.estimate_s > limit_s)


def _is_not_served(mirror: Mirror, _: Options, arrived: Arrived, __: Reject) -> bool:
    return not mirror.is_up((arrived.model, arrived.family))


def _rate_limited(_: Mirror, options: Options, arrived: Arrived, action: Reject) -> bool:
    return not arrived.job and arrived.key in options.key_limits and bool(action.retry_after_s)


REASONS: dict[str, Callable[[Mirror, Options, Arrived, Reject], bool]] = {
    "queue_full": _queue_full,
    "user_queue_full": _user_queue_full,
    "queue_disabled": _queue_disabled,
    "stream_not_queued": _stream_not_queued,
    "deadline_unreachable": _deadline_unreachable,
    "model_not_found": _is_not_served,
    "route_not_supported": _is_not_served,
    "model_loading": _is_not_served,
    "no_node": _is_not_served,
    "rate_limited": _rate_limited,
}


def displacement_is_right(
    mirror: Mirror, options: Options, victim: SeenTicket, newcomer: SeenTicket
) -> None:
    """Check that a waiter was put out as the policy says.

    The lowest class waiting gives way; in it, the largest holder; of its entries, the newest. With
    aging the classes cannot be seen from outside.
    """
    assert options.when_full != "reject", f"{victim.arrived.id} loses its place"
    assert not victim.arrived.job, f"job {victim.arrived.id} loses a place it does not have"
    if options.aging_s:
        return
    lowest, held = _largest_holders(mirror)
    assert victim.rank == lowest, f"{victim.arrived.id} gives way before a lower class"
    assert _may_displace(mirror, options, newcomer), (
        f"{newcomer.arrived.id} has no right to displace {victim.arrived.id}"
    )
    mine = [
        ticket for ticket in _live(mirror, lowest) if ticket.arrived.user == victim.arrived.user
    ]
    assert len(mine) == max(held.values()), f"{victim.arrived.user} is not the largest holder"
    newest = max(mine, key=lambda ticket: ticket.order)
    assert newest is victim, f"{newest.arrived.id} is newer than {victim.arrived.id}"


def nobody_could_give_way(mirror: Mirror, options: Options, newcomer: SeenTicket) -> None:
    """Check that a newcomer was not refused where it should have displaced a waiter."""
    own_s = newcomer.arrived.max_wait_s
    if options.wait_s_max <= 0.0 or (own_s is not None and own_s <= 0.0):
        return  # who may not wait takes nobody's place
    if options.when_full == "reject" or options.aging_s or not mirror.inside():
        return
    if mirror.strands_too_many(newcomer.lane, options.max_size):
        return
    only_by_one = mirror.inside() == options.max_size
    fits = mirror.waiting_bytes + newcomer.arrived.size_bytes <= options.bytes_max
    assert not (only_by_one and fits and _may_displace(mirror, options, newcomer)), (
        f"{newcomer.arrived.id} is refused, though it may displace another"
    )


def _may_displace(mirror: Mirror, options: Options, newcomer: SeenTicket) -> bool:
    lowest, held = _largest_holders(mirror)
    if newcomer.rank != lowest or options.when_full == "class":
        return newcomer.rank < lowest
    return max(held.values()) - held.get(newcomer.arrived.user, 0) >= 2


def _largest_holders(mirror: Mirror) -> tuple[int, Counter[str]]:
    """Return the lowest class that waits, and how many places of it each user holds."""
    waiting = (ticket for ticket in mirror.all_waiting() if not ticket.guest)
    lowest = max(ticket.rank for ticket in waiting if not ticket.arrived.job)
    return lowest, Counter(ticket.arrived.user for ticket in _live(mirror, lowest))


def _live(mirror: Mirror, rank: int) -> list[SeenTicket]:
    waiting = (t for t in mirror.all_waiting() if not t.guest)
    return [t for t in waiting if t.rank == rank and not t.arrived.job]
