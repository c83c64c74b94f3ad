"""A ticket's position: how many of its lane would run before it if nothing more arrived.

In strict order everything of a higher class in the lane runs first; inside the class each user's
entries have start tags `counter, counter + charge, ...` and run in the order of those tags; so do
the conversations of a user, inside its turns.

A newcomer is the youngest, so that counting takes one division per user. Where more than
`EXACT_MAX` wait, only every so many users are looked at. A user's entries are taken to cost alike.
`exact_place` is meant for one ticket that somebody asks for: it looks at the entries of the class
one by one, and where there are more than `EXACT_MAX` it is an approximation as well.

`owed` is the cost of what each user has waiting in the queue (`Forecast.owed`).
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from forebay.core import retries
from forebay.core.fairness import lives_in, standing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.core.events import Arrived
    from forebay.core.options import Options
    from forebay.core.records import Account, Entry, FairQueue, ParkedLine, WaitQueue

EXACT_MAX: Final = 1000
NEWCOMER_MAX: Final = 64
"""Long lines and refusals come at any rate: their places are estimated from so many users."""


class Place(NamedTuple):
    """Where an entry stands in its queue."""

    ahead: int
    """Entries of its lane that would run first if nothing more arrived."""
    distance: float = 0.0
    """From the queue's clock to the entry's tag."""
    own: float = 0.0
    """The cost of what its user has waiting before it."""
    account: Account | None = None
    """Its user's; None where that does not matter."""


def last_place(
    queue: WaitQueue,
    owed: dict[Account, float],
    account: Account | None,
    arrival: Arrived,
    options: Options,
    joined: Entry | None = None,
) -> Place:
    """Return where an entry would stand that joined now; None is the account of a new user.

    Or where `joined` stands, which is that entry, and has just joined.
    """
    counter = standing(queue, account)
    most = EXACT_MAX if joined is not None and queue.waiting <= EXACT_MAX else NEWCOMER_MAX
    mine = Place(0, counter)
    if account is not None:
        cost = owed.get(account, 0.0) - (0.0 if joined is None else joined.price)
        has_joined = joined is not None
        older, own = _own_ahead(queue, account, arrival.conversation, cost, most, has_joined)
        mine = Place(older, counter + own / arrival.weight, own, account)
    return _place(queue, owed, mine, options, most)


def exact_place(entry: Entry, owed: dict[Account, float], options: Options, newest: int) -> Place:
    """Return where a waiting entry stands; `newest` is the last number given to anything."""
    queue, account = entry.queue, entry.account
    if entry.goes_first:
        ahead = retries.ahead_of(queue.returned, entry)
        return Place(ahead + _ahead_in_other_classes(queue, ahead, options))
    if account.live <= EXACT_MAX:
        in_order = _own_in_turn(account)
        older = in_order.index(entry)
        own = sum(other.price for other in in_order[:older])
    else:
        older = _own_by_age(entry, newest)
        own = owed[account] * older / account.live
    tag = account.counter + own / account.weight
    if queue.waiting <= EXACT_MAX:
        ahead = retries.count(queue.returned) + in_turn(queue).index(entry)
    elif options.fairness == "fifo":
        ahead = _by_age(entry, queue.heap[0][1], newest, queue.waiting)
    else:
        return _place(queue, owed, Place(older, tag, own, account), options, EXACT_MAX)
    ahead += _ahead_in_other_classes(queue, ahead, options)
    return Place(ahead, tag - queue.clock, own, account)


def parked_place(
    line: ParkedLine, entry: Entry, options: Options, *, youngest: bool
) -> tuple[int, Place]:
    """Return how many of its line come before a parked entry, and where it stands with these.

    Those go before it, too, that are within their rates.
    """
    before = line.waiting - 1
    if entry.goes_first:
        before = retries.ahead_of(line.returned, entry)
    elif not youngest and line.waiting <= EXACT_MAX:
        before = retries.count(line.returned) + in_turn(line).index(entry)
    ahead = entry.queue.waiting + before
    return before, Place(ahead + _ahead_in_other_classes(entry.queue, ahead, options))


def _by_age(entry: Entry, first: int, newest: int, waiting: int) -> int:
    """Return how many of those that wait came before an entry, if all came at one rate."""
    return round((waiting - 1) * (entry.seq - first) / max(1, newest - first))


def _own_by_age(entry: Entry, newest: int) -> int:
    """Return about how many of its user's entries go before one, where there are many."""
    account, turns = entry.account, entry.account.turns
    if turns is None:
        return _by_age(entry, account.entries[0][0], newest, account.live)
    turn = turns.accounts[entry.arrival.conversation]
    older = _by_age(entry, turn.entries[0][0], newest, turn.live)
    return min(account.live - 1, (older + 1) * turns.backlogged - 1)


def _place(
    queue: WaitQueue, owed: dict[Account, float], mine: Place, options: Options, users_max: int
) -> Place:
    """Return the place of one whose tag is at `distance`, behind so many of its own."""
    ahead, tag, own, account = mine
    if options.fairness == "fifo":
        here = account.live if account is not None else 0
        ahead += queue.waiting - retries.count(queue.returned) - here
    elif queue.backlogged > 1 or not ahead:
        ahead += _others_ahead(queue, owed, account, tag, users_max)
    ahead += retries.count(queue.returned)
    if queue.rank or options.class_order != "strict":
        ahead += _ahead_in_other_classes(queue, ahead, options)
    return Place(ahead, tag - queue.clock, own, account)


def _others_ahead(
    queue: WaitQueue, owed: dict[Account, float], mine: Account | None, tag: float, users_max: int
) -> int:
    """Count entries of other users whose tag is at most this one: a tie goes to the older."""
    ahead, heap = 0.0, queue.heap
    step = 1 + len(heap) // (users_max + 1)
    for _, _, push, account in heap if step == 1 else heap[::step]:
        if push == account.push and account is not mine:
            before = (tag - account.counter) * account.weight
            if before >= 0.0:
                if account in owed and before < owed[account]:
                    ahead += before * account.live // owed[account] + 1.0
                else:
                    ahead += account.live
    ahead *= step
    return int(ahead) if ahead < queue.waiting else queue.waiting


def _backlogged(queue: FairQueue) -> Iterator[Account]:
    return (account for _, _, push, account in queue.heap if push == account.push and account.live)


def in_turn(queue: FairQueue) -> list[Entry]:
    """Return the live entries in the order in which they run if nothing more comes."""
    places: list[tuple[tuple[float, int], Entry]] = []
    for account in _backlogged(queue):
        weight = (account.parent or account).weight
        tag, place = account.counter, (account.counter, -1)
        for entry in _own_in_turn(account):
            place = max(place, (tag, entry.seq))  # what is free may be older than who goes before
            places.append((place, entry))
            tag += entry.price / weight
    places.sort(key=itemgetter(0))
    return [entry for _, entry in places]


def _own_in_turn(account: Account) -> list[Entry]:
    if account.turns is not None:
        return in_turn(account.turns)
    live = [item for item in account.entries if lives_in(item[1], account)]
    return [entry for _, entry in sorted(live)]


def _own_ahead(
    queue: WaitQueue, account: Account, conversation: str, cost: float, exact_max: int, joined: bool
) -> tuple[int, float]:
    """Return how many entries of its user go before a newcomer, and what they cost.

    `cost` is what all others of its user do, and `joined` whether it stands among them already.
    """
    live, turns = account.live - joined, account.turns
    if live == 0 or (turns is None and not conversation):
        return live, cost if live else 0.0
    each = cost / live
    if turns is None:
        older = _passed(-queue.burst, live, each / account.weight)
        return older, older * each
    mine = turns.accounts.get(conversation)
    older = mine.live - joined if mine is not None else 0
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
    ahead = sum([other.waiting for other in queue.lane.queues[: queue.rank]])
    if options.class_order == "strict" or queue.rank == len(options.priorities):
        return ahead
    # Weighted: until its own turn each other class gets its share of turns.
    weight = options.weight_of(queue.rank)
    return sum(
        min(other.waiting, round((own + 1) * options.weight_of(other.rank) / weight))
        for other in queue.lane.queues[:-1]
        if other is not queue
    )
