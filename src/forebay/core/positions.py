"""A ticket's position: how many of its lane would run before it if nothing more arrived.

In strict order everything of a higher class in the lane runs first; inside the class each user's
entries have start tags `counter, counter + charge, ...` and run in the order of those tags; so do
the conversations of a user, inside its turns.

A newcomer is the youngest, so that counting takes one division per user; above `EXACT_MAX` waiting
entries, in weighted order, and where costs differ, it is an approximation.
`exact_place` looks at every entry of the class and is meant for one ticket that somebody asks for.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final

from forebay.core import retries
from forebay.core.fairness import head_of, lives_in, standing
from forebay.core.lanes import waiting_above

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from forebay.core.events import Arrived
    from forebay.core.options import Options
    from forebay.core.records import Account, Entry, FairQueue, ParkedLine, WaitQueue
    from forebay.core.waits import Place

EXACT_MAX: Final = 1000
ORDER_MIN: Final = 64
"""Shorter backlogs are sorted again each time."""


def newcomer_place(
    queue: WaitQueue, account: Account | None, arrival: Arrived, options: Options
) -> Place:
    """Return where an entry would stand that joined now; None is the account of a new user."""
    counter = standing(queue, account)
    if account is None:
        return _place(queue, None, 0, 0.0, counter, options)
    older, own = _own_ahead(queue, account, arrival.conversation)
    return _place(queue, account, older, own, counter + own / arrival.weight, options)


def refused_place(
    queue: WaitQueue, account: Account | None, arrival: Arrived, options: Options
) -> Place:
    """Return about where one would stand that finds no room: in O(log), it may come at any rate."""
    older, own = 0, 0.0
    if account is not None:
        older, own = _own_ahead(queue, account, arrival.conversation, exact_max=0)
    distance = standing(queue, account) + own / arrival.weight - queue.clock
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
    older, own = _own_ahead(entry.queue, account, entry.arrival.conversation, entry)
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
    older, own = _before(entry, charge)
    tag = account.counter + own / account.weight
    if queue.waiting <= EXACT_MAX:
        ahead = queue.returned.count + in_turn(queue, charge).index(entry)
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
    return in_turn(line, charge).index(entry)


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


def _backlogged(queue: FairQueue) -> Iterator[Account]:
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


def in_turn(queue: FairQueue, charge: Callable[[Entry], float]) -> list[Entry]:
    """Return the live entries in the order in which they run if nothing more comes."""
    places: list[tuple[tuple[float, int], Entry]] = []
    for account in _backlogged(queue):
        weight = (account.parent or account).weight
        tag, place = account.counter, (account.counter, -1)
        for entry in _own_in_turn(account, charge):
            place = max(place, (tag, entry.seq))  # what is free may be older than who goes before
            places.append((place, entry))
            tag += charge(entry) / weight
    places.sort(key=itemgetter(0))
    return [entry for _, entry in places]


def _own_in_turn(account: Account, charge: Callable[[Entry], float]) -> list[Entry]:
    if account.turns is not None:
        return in_turn(account.turns, charge)
    live = [item for item in account.entries if lives_in(item[1], account)]
    return [entry for _, entry in sorted(live)]


def _own_ahead(
    queue: WaitQueue,
    account: Account,
    conversation: str,
    joined: Entry | None = None,
    exact_max: int = EXACT_MAX,
) -> tuple[int, float]:
    """Return how many entries of its user go before a newcomer, and what they cost.

    `joined` is the newcomer, where it stands among them already.
    """
    live, owed = account.live, account.owed
    if joined is not None:
        live, owed = live - 1, owed - joined.price
    turns = account.turns
    if live == 0 or (turns is None and account.conversation == conversation):
        return live, owed if live else 0.0
    each = owed / live
    if turns is None:
        older = _passed(-queue.burst - account.lead, live, each / account.weight)
        return older, older * each
    mine = turns.accounts.get(conversation)
    older = mine.live - (joined is not None) if mine is not None else 0
    if live > exact_max:
        older = min(live, (older + 1) * turns.backlogged - 1)
        return older, older * each
    tag = standing(turns, mine) + older * each / account.weight
    for other in _backlogged(turns):
        if other is not mine:
            older += _passed(tag - other.counter, other.live, each / account.weight)
    return older, older * each


def _passed(distance: float, live: int, each: float) -> int:
    """Count those of an account that go before a newcomer's tag, from its counter on."""
    if distance < 0.0:
        return 0
    return min(live, int(distance / each) + 1) if each > 0.0 else live


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


def _before(entry: Entry, charge: Callable[[Entry], float]) -> tuple[int, float]:
    """Return how many of its user's entries go before one, and what these cost.

    Who asks about one entry is likely to ask about others, as a list of requests does: of a
    long backlog the order is kept until it changes.
    """
    account = entry.account
    order = account.order
    if order is None:
        order, own = {}, 0.0
        for older, other in enumerate(_own_in_turn(account, charge)):
            order[other] = older, own
            own += other.price
        if account.live >= ORDER_MIN:
            account.order = order
    return order[entry]
