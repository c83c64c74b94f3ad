"""A ticket's position: how many of its lane would run before it if nothing more arrived.

In strict order everything of a higher class in the lane runs first; inside the class each user's
entries have start tags `counter, counter + charge, ...` and run in the order of those tags.

A newcomer is the youngest, so that counting takes one division per user; above `EXACT_MAX` waiting
entries, in weighted order, and where costs differ, it is an approximation.
`exact_place` looks at every entry of the class and is meant for one ticket that somebody asks for.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from forebay.core import retries
from forebay.core.fairness import head_of, lives_in, standing
from forebay.core.lanes import waiting_above
from forebay.core.records import Order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from forebay.core.options import Options
    from forebay.core.records import Account, Entry, ParkedLine, WaitQueue
    from forebay.core.waits import Place

EXACT_MAX: Final = 1000
ORDER_MIN: Final = 64
"""Shorter backlogs are sorted again each time."""


def newcomer_place(
    queue: WaitQueue, account: Account | None, weight: float, options: Options
) -> Place:
    """Return where an entry would stand that joined now; None is the account of a new user."""
    counter = standing(queue, account)
    if account is None:
        return _place(queue, None, 0, 0.0, counter, options)
    own = account.owed
    return _place(queue, account, account.live, own, counter + own / weight, options)


def refused_place(
    queue: WaitQueue, account: Account | None, weight: float, options: Options
) -> Place:
    """Return about where one would stand that finds no room: in O(log), it may come at any rate."""
    older, own = (account.live, account.owed) if account is not None else (0, 0.0)
    distance = standing(queue, account) + own / weight - queue.clock
    ahead = queue.waiting
    if options.fairness != "fifo" and queue.backlogs.owed > 0.0:
        others = queue.backlogs.entries_before(distance, account, ahead)
        ahead = min(ahead, older + others + queue.returned.count)
    if queue.rank or options.class_order != "strict":
        ahead += _ahead_in_other_classes(queue, ahead, options)
    return ahead, distance, own, account


def youngest_place(entry: Entry, options: Options) -> Place:
    """Return where an entry stands that has just joined."""
    account = entry.account
    older = account.live - 1
    own = account.owed - entry.price if older else 0.0
    tag = account.counter + own / account.weight
    return _place(entry.queue, account, older, own, tag, options)


def exact_place(
    entry: Entry, options: Options, charge: Callable[[Entry], float], newest: int
) -> Place:
    """Return where a waiting entry stands, looking at each.

    `charge` says what one costs, `newest` is the last sequence number given to anything.
    """
    queue, account = entry.queue, entry.account
    if entry.goes_first:
        ahead = retries.ahead_of(queue.returned, entry)
        return ahead + _ahead_in_other_classes(queue, ahead, options), 0.0, 0.0, None
    older, own = _before(account, entry.seq)
    tag = account.counter + own / account.weight
    if queue.waiting <= EXACT_MAX:
        ahead = queue.returned.count + _ahead_by_tags(queue, entry, charge)
    elif options.fairness == "fifo":
        first = min(head_of(account).seq for account in _backlogged(queue))
        passed = (entry.seq - first) / max(1, newest - first)
        ahead = round(passed * (queue.waiting - 1))
    else:
        return _place(queue, account, older, own, tag, options)
    ahead += _ahead_in_other_classes(queue, ahead, options)
    return ahead, tag - queue.clock, own, account


def parked_before(
    line: ParkedLine, entry: Entry, charge: Callable[[Entry], float], *, youngest: bool
) -> int:
    """Return how many of its line come before a parked entry."""
    if youngest or line.waiting > EXACT_MAX:
        return line.waiting - 1
    return _ahead_by_tags(line, entry, charge)


def ahead_of_parked(entry: Entry, before: int, options: Options) -> int:
    """Return how many would run before a parked entry: those may that are within their rates."""
    ahead = entry.queue.waiting + before
    return ahead + _ahead_in_other_classes(entry.queue, ahead, options)


def _place(
    queue: WaitQueue,
    account: Account | None,
    older: int,
    own: float,
    tag: float,
    options: Options,
) -> Place:
    """Return the place of a tag behind `older` entries of its user's, which cost `own`."""
    distance = tag - queue.clock
    if queue.backlogged == 1 and older:
        ahead = older  # nobody else's
    elif queue.waiting <= EXACT_MAX:
        ahead = older + _others_ahead(queue, account, tag)
    elif options.fairness == "fifo":
        ahead = queue.waiting - 1
    else:
        ahead = older + queue.backlogs.entries_before(distance, account, queue.waiting)
    ahead += queue.returned.count
    if queue.rank or options.class_order != "strict":
        ahead += _ahead_in_other_classes(queue, ahead, options)
    return ahead, distance, own, account


def _backlogged(queue: WaitQueue) -> Iterator[Account]:
    return (account for _, _, push, account in queue.heap if push == account.push and account.live)


def _others_ahead(queue: WaitQueue, mine: Account | None, tag: float) -> int:
    """Count entries of other users whose tag is at most this one: a tie goes to the older.

    Each entry of a user is taken to cost the same as the others.
    """
    ahead = 0
    for _, _, push, account in queue.heap:
        if push == account.push and account is not mine:
            before = (tag - account.counter) * account.weight
            if before >= 0.0:
                live, owed = account.live, account.owed
                ahead += live if before >= owed else int(before * live / owed) + 1
    return ahead


def _ahead_by_tags(queue: WaitQueue, entry: Entry, charge: Callable[[Entry], float]) -> int:
    tags: list[tuple[float, int]] = []
    mine = (0.0, 0)
    for account in _backlogged(queue):
        tag = account.counter
        live = [(seq, other) for seq, other in account.entries if lives_in(other, account)]
        for seq, other in sorted(live, key=lambda item: item[0]):
            if other is entry:
                mine = (tag, seq)
            tags.append((tag, seq))
            tag += charge(other) / account.weight
    return sum(1 for place in tags if place < mine)


def _ahead_in_other_classes(queue: WaitQueue, own: int, options: Options) -> int:
    ahead = waiting_above(queue)
    if options.class_order == "strict" or queue.rank == len(options.priorities):
        return ahead
    # Weighted: until its own turn each other class gets its share of turns.
    weight = options.weight_of(queue.rank)
    return sum(
        min(other.waiting, round((own + 1) * options.weight_of(other.rank) / weight))
        for other in queue.lane.queues[:-1]
        if other is not queue
    )


def _before(account: Account, seq: int) -> tuple[int, float]:
    """Return how many live entries of an account are older, and what these cost.

    Who asks about one entry is likely to ask about others, as a list of requests does: of a
    long backlog the order is kept until it changes.
    """
    order = account.order
    key = (account.live, len(account.entries), account.owed, account.counter)
    if order is None or order.key != key:
        live = sorted(
            (seq, entry.price) for seq, entry in account.entries if lives_in(entry, account)
        )
        costs = [0.0, *accumulate(price for _, price in live)]
        order = Order(key, [seq for seq, _ in live], costs)
        if account.live >= ORDER_MIN:
            account.order = order
    place = bisect_left(order.seqs, seq)
    return place, order.costs[place]
