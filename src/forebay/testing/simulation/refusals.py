"""Whether a refusal was deserved: a bound that is one too tight is as wrong as one too loose."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.core.actions import Reject
    from forebay.core.events import Arrived
    from forebay.core.options import Options
    from forebay.testing.simulation.mirror import Mirror, Ticket

CAPACITY_CODES = frozenset(
    {"queue_full", "queue_disabled", "stream_not_queued", "deadline_unreachable"}
)
"""Refusals that a free slot would have avoided."""


def is_deserved(
    mirror: Mirror, options: Options, newcomer: Ticket, action: Reject, stopping: bool
) -> None:
    """Check that a newcomer was refused for a reason that holds."""
    arrived = newcomer.arrived
    if action.code == "shutting_down":
        assert stopping, f"{arrived.id} is told of a shutdown that nobody asked for"
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


def _no_slot_was_free(mirror: Mirror, arrived: Arrived) -> None:
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
    return 0 < arrived.key_running_max <= mirror.unfinished_by_key[arrived.key]


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


def _may_wait(options: Options, arrived: Arrived) -> bool:
    has_time = options.wait_s_max > 0.0 and arrived.max_wait_s != 0.0
    return arrived.job or (has_time and not never_waits(options, arrived))


def _deadline_unreachable(_: Mirror, __: Options, arrived: Arrived, action: Reject) -> bool:
    limit_s = arrived.max_wait_s
    if limit_s is None:
        return False
    return limit_s <= 0.0 or (action.estimate_s is not None and action.estimate_s > limit_s)


def _model_not_found(mirror: Mirror, _: Options, arrived: Arrived, __: Reject) -> bool:
    nodes = [node for node in mirror.nodes.values() if not node.removed]
    return not any(arrived.model in node.models for node in nodes) and not mirror.unsaid()


def _route_not_supported(mirror: Mirror, _: Options, arrived: Arrived, __: Reject) -> bool:
    nodes = [node for node in mirror.nodes.values() if not node.removed]
    known = any(arrived.model in node.models for node in nodes)
    return known and not mirror.nodes_of((arrived.model, arrived.family)) and not mirror.unsaid()


def _model_loading(mirror: Mirror, options: Options, arrived: Arrived, _: Reject) -> bool:
    lane = (arrived.model, arrived.family)
    hopes = mirror.outlook(lane, options.offline_wait_s) in ("loading", "starting")
    return hopes and not mirror.is_up(lane) and not _may_wait(options, arrived)


def _no_node(mirror: Mirror, options: Options, arrived: Arrived, _: Reject) -> bool:
    lane = (arrived.model, arrived.family)
    if mirror.is_up(lane):
        return False
    if hope := mirror.outlook(lane, options.offline_wait_s):
        return hope == "offline" and not _may_wait(options, arrived)
    return bool(mirror.nodes_of(lane) or mirror.unsaid())


REASONS: dict[str, Callable[[Mirror, Options, Arrived, Reject], bool]] = {
    "queue_full": _queue_full,
    "user_queue_full": _user_queue_full,
    "queue_disabled": _queue_disabled,
    "stream_not_queued": _stream_not_queued,
    "deadline_unreachable": _deadline_unreachable,
    "model_not_found": _model_not_found,
    "route_not_supported": _route_not_supported,
    "model_loading": _model_loading,
    "no_node": _no_node,
}


def displacement_is_right(
    mirror: Mirror, options: Options, victim: Ticket, newcomer: Ticket
) -> None:
    """Check that a waiter was put out as the policy says.

    The lowest class waiting gives way; in it, the largest holder; of its entries, the newest. With
    aging the classes cannot be seen from outside.
    """
    assert options.when_full == "displace", f"{victim.arrived.id} loses its place"
    assert not victim.arrived.job, f"job {victim.arrived.id} loses a place it does not have"
    if options.aging_s:
        return
    lowest, held = _largest_holders(mirror)
    assert victim.rank == lowest, f"{victim.arrived.id} gives way before a lower class"
    assert _may_displace(mirror, newcomer), (
        f"{newcomer.arrived.id} has no right to displace {victim.arrived.id}"
    )
    mine = [
        ticket for ticket in _live(mirror, lowest) if ticket.arrived.user == victim.arrived.user
    ]
    assert len(mine) == max(held.values()), f"{victim.arrived.user} is not the largest holder"
    newest = max(mine, key=lambda ticket: ticket.order)
    assert newest is victim, f"{newest.arrived.id} is newer than {victim.arrived.id}"


def nobody_could_give_way(mirror: Mirror, options: Options, newcomer: Ticket) -> None:
    """Check that a newcomer was not refused where it should have displaced a waiter."""
    own_s = newcomer.arrived.max_wait_s
    if options.wait_s_max <= 0.0 or (own_s is not None and own_s <= 0.0):
        return  # who may not wait takes nobody's place
    if options.when_full != "displace" or options.aging_s or not mirror.inside():
        return
    if mirror.strands_too_many(newcomer.lane, options.max_size):
        return
    only_by_one = mirror.inside() == options.max_size
    fits = mirror.waiting_bytes + newcomer.arrived.size_bytes <= options.bytes_max
    assert not (only_by_one and fits and _may_displace(mirror, newcomer)), (
        f"{newcomer.arrived.id} is refused, though it may displace another"
    )


def _may_displace(mirror: Mirror, newcomer: Ticket) -> bool:
    lowest, held = _largest_holders(mirror)
    if newcomer.rank != lowest:
        return newcomer.rank < lowest
    return max(held.values()) - held.get(newcomer.arrived.user, 0) >= 2


def _largest_holders(mirror: Mirror) -> tuple[int, Counter[str]]:
    """Return the lowest class that waits, and how many places of it each user holds."""
    waiting = (ticket for ticket in mirror.all_waiting() if not ticket.guest)
    lowest = max(ticket.rank for ticket in waiting if not ticket.arrived.job)
    return lowest, Counter(ticket.arrived.user for ticket in _live(mirror, lowest))


def _live(mirror: Mirror, rank: int) -> list[Ticket]:
    waiting = (t for t in mirror.all_waiting() if not t.guest)
    return [t for t in waiting if t.rank == rank and not t.arrived.job]
