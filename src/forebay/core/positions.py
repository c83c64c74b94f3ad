"""A ticket's position: how many of its lane would run before it if nothing more arrived.

In strict order everything of a higher class in the lane runs first; inside the class each user's
entries have start tags `counter, counter + charge, ...` and run in the order of those tags.

A newcomer is the youngest, so that counting takes one division per user; above `EXACT_MAX` waiting
entries, in weighted order, and where costs differ, it is an approximation.
`exact_ahead` looks at every entry of the class and is meant for one ticket that somebody asks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from forebay.core.entries import Entry
    from forebay.core.fairness import Account, WaitQueue
    from forebay.core.options import Options

EXACT_MAX = 1000


def ahead_of_newcomer(
    queue: WaitQueue, mine: Account | None, older: int, tag: float, unit: float, options: Options
) -> int:
    """Count what runs before the youngest entry of a queue; it may have joined already or not.

    `mine` is its user's account, `older` how many of the user's entries wait already, `tag` where
    it starts in the queue's virtual time, and `unit` a typical charge before weights.
    """
    if queue.backlogged == 1 and older:
        own = older  # nobody else's
    elif queue.waiting > EXACT_MAX:
        own = min(queue.waiting - 1, (older + 1) * queue.backlogged - 1)
    else:
        own = older + _others_ahead(queue, mine, tag, unit)
    own += queue.returned.count
    if queue.rank == 0 and options.class_order == "strict":
        return own
    return own + _ahead_in_other_classes(queue, own, options)


def exact_ahead(entry: Entry, options: Options, charge: Callable[[Entry], float]) -> int:
    """Count what runs before a waiting entry, looking at each; `charge` says what one costs."""
    queue = entry.queue
    if entry.goes_first:
        own = queue.returned.ahead_of(entry)
    elif queue.waiting > EXACT_MAX:
        older = sum(1 for seq, _ in entry.account.entries if seq < entry.seq)
        own = min(queue.waiting - 1, (older + 1) * queue.backlogged - 1)
    else:
        own = queue.returned.count + _ahead_by_tags(queue, entry, charge)
    return own + _ahead_in_other_classes(queue, own, options)


def _backlogged(queue: WaitQueue) -> Iterator[Account]:
    return (account for _, _, push, account in queue.heap if push == account.push and account.live)


def _others_ahead(queue: WaitQueue, mine: Account | None, tag: float, unit: float) -> int:
    """Count entries of other users whose tag is at most this one: a tie goes to the older."""
    ahead = 0
    for _, _, push, account in queue.heap:
        if push == account.push and account is not mine:
            before = (tag - account.counter) * account.weight
            if before >= 0.0:
                live = account.live
                ahead += int(before / unit) + 1 if before < live * unit else live
    return ahead


def _ahead_by_tags(queue: WaitQueue, entry: Entry, charge: Callable[[Entry], float]) -> int:
    tags: list[tuple[float, int]] = []
    mine = (0.0, 0)
    for account in _backlogged(queue):
        tag = account.counter
        live = [
            (seq, other)
            for seq, other in account.entries
            if other.state == "waiting" and other.account is account
        ]
        for seq, other in sorted(live, key=lambda item: item[0]):
            if other is entry:
                mine = (tag, seq)
            tags.append((tag, seq))
            tag += charge(other) / account.weight
    return sum(1 for place in tags if place < mine)


def _ahead_in_other_classes(queue: WaitQueue, own: int, options: Options) -> int:
    ahead = 0
    for other in queue.lane.queues[: queue.rank]:
        ahead += other.waiting
    if options.class_order == "strict" or queue.rank == len(options.priorities):
        return ahead
    # Weighted: until its own turn each other class gets its share of turns.
    weight = options.weight_of(queue.rank)
    return sum(
        min(other.waiting, round((own + 1) * options.weight_of(other.rank) / weight))
        for other in queue.lane.queues[:-1]
        if other is not queue
    )
