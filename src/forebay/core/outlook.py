"""How long one waits, or would wait that came now: what is told, and what is refused for it.

`newcomer` is the one answer to the latter. At the door it is compared with the caller's own limit
(`deadline_unreachable`) and with the operator's (the line that is too long), and who finds no room
is told by it when to come again. It looks at no more than some users, since refusals may come at
any rate, and changes nothing.

Who was refused before has its old number, so it waits no longer than until the turn that it was
expected to have then.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from forebay.core import positions
from forebay.core.dispatch import earliest_s
from forebay.core.positions import Place

if TYPE_CHECKING:
    from forebay.core.events import Arrived
    from forebay.core.records import Claim, Entry, Lane, WaitQueue
    from forebay.core.tickets import Book

RATE_P90: Final = 1.2
"""A key's rate is known, but not what the answers before it will take of it."""
SURELY: Final = 1.5
"""Who is promised more than that of its own limit is refused: half of the promises are too long."""
AGAIN_MIN: Final = 0.5
"""Of a newcomer's wait; so long is anyone told to stay away."""
TOO_LONG: Final = 2.0
"""Of the operator's limit: who would wait longer is refused, since few of these would be served."""
MEASURED_MIN: Final = 20
"""Waits of a lane that must have been measured before it refuses anyone for its length."""


class Outlook(NamedTuple):
    """Where one stands that waits, and how long it will take; None where that is not known."""

    position: int
    header_s: float | None = None
    p50_s: float | None = None
    p90_s: float | None = None


class Newcomer(NamedTuple):
    """How long one would wait that came now."""

    ahead: int
    """Those of its lane that would run before it."""
    served_s: float | None
    """What serving these takes on the slots of the lane, and nothing else."""
    p50_s: float | None
    turn_s: float
    """How long it is until the turn for which it was refused before; infinite where it was not."""

    def least_s(self) -> float | None:
        """Return the median wait, if not its old turn comes earlier."""
        return None if self.p50_s is None else min(self.p50_s, self.turn_s)


def newcomer(book: Book, arrival: Arrived, queue: WaitQueue) -> Newcomer:
    """Return how long an arrival would wait that joined a queue now."""
    user = book.users.known.get(arrival.user)
    account = user.accounts.get(queue) if user is not None else None
    owed = book.forecast.owed(queue)
    place = positions.newcomer_place(queue, owed, account, arrival, book.options)
    kept = book.kept_of(arrival) if book.returns.kept else None
    turn_s = inf if kept is None else max(0.0, kept.turn_s - book.now_s)
    estimate = book.forecast.when(queue, place, book.now_s)
    if estimate is None:
        return Newcomer(place.ahead, None, None, turn_s)
    return Newcomer(place.ahead, estimate.header_s, estimate.p50_s, turn_s)


def come_again_s(book: Book, arrival: Arrived, lane: Lane) -> float | None:
    """Return how long one that finds no room would wait if there were, with its number.

    Room comes free one by one, and not only for those whose turn is over: they are not told to
    come at shorter and shorter intervals, since callers give up after a number of attempts.
    """
    p50_s, turn_s = newcomer(book, arrival, lane.queues[book.rank_of(arrival)])[2:]
    return None if p50_s is None else min(p50_s, max(p50_s * AGAIN_MIN, turn_s))


def beyond_own_limit_s(book: Book, arrival: Arrived, lane: Lane, own_s: float) -> float | None:
    """Return the wait where it is surely longer than its caller will wait; else None.

    Where no node has its model in memory that is the earliest turn which it can have.
    """
    queue = lane.queues[book.rank_of(arrival)]
    found = newcomer(book, arrival, queue)
    earliest = earliest_s(book, queue)
    if earliest is None:
        wait_s = found.least_s()
        return wait_s if wait_s is not None and wait_s > SURELY * own_s else None
    rounds = found.ahead // lane.slots
    wait_s = min(earliest + rounds * (lane.times.quantile_s(0.5) or 0.0), found.turn_s)
    return wait_s if wait_s > own_s else None


def beyond_the_limit_s(book: Book, arrival: Arrived, lane: Lane) -> float | None:
    """Return the wait where the line is too long for the operator's limit; else None.

    Only what runs ahead in its own lane counts: where a node may be busy with other models, what it
    takes to serve those, too. Where no node has the model in memory it is None.
    """
    limit_s = TOO_LONG * book.options.wait_s_max
    queue = lane.queues[book.rank_of(arrival)]
    if not 0.0 < limit_s < inf or book.forecast.measured(lane) < MEASURED_MIN:
        return None
    found = newcomer(book, arrival, queue)
    wait_s = found.least_s()
    if wait_s is None or found.served_s is None or wait_s <= limit_s:
        return None
    swaps = any(not node.holds_all for node in lane.nodes.values())
    if swaps and (found.served_s <= limit_s or earliest_s(book, queue) is not None):
        return None
    return wait_s


def outlook(book: Book, entry: Entry) -> Outlook:
    """Return where an entry stands that waits, and how long it will."""
    claim = entry.claim
    if claim is not None and claim.parked:
        return _parked(book, entry, claim, youngest=False)
    place = _place(book, entry)
    estimate = book.forecast.when(entry.queue, place, book.now_s, entry)
    if estimate is None:
        return Outlook(place.ahead + 1)
    return Outlook(place.ahead + 1, estimate.header_s, estimate.p50_s, estimate.p90_s)


def promise(book: Book, entry: Entry, *, youngest: bool) -> Outlook:
    """Return the same for one that has just begun to wait; what it is told is remembered."""
    claim = entry.claim
    if claim is not None and claim.parked:
        return _parked(book, entry, claim, youngest=True)
    if entry.goes_first or not youngest:
        place = _place(book, entry)
    else:
        place = positions.youngest_place(entry, book.forecast.owed(entry.queue), book.options)
    estimate = book.forecast.promise(entry, place, book.now_s)
    if estimate is None:
        return Outlook(place.ahead + 1)
    return Outlook(place.ahead + 1, estimate.header_s, estimate.p50_s, estimate.p90_s)


def _place(book: Book, entry: Entry) -> Place:
    owed = book.forecast.owed(entry.queue)
    return positions.exact_place(entry, owed, book.options, book.charging.price, book.seq)


def _parked(book: Book, entry: Entry, claim: Claim, *, youngest: bool) -> Outlook:
    """Return the outlook of a parked entry: what its rate takes, or its lane if that is longer."""
    line = claim.line
    assert line is not None
    before = positions.parked_before(line, entry, book.charging.price, youngest=youngest)
    ahead = positions.ahead_of_parked(entry, before, book.options)
    wait_s = book.rates.wait_s(entry, before + (line.offer is not None), book.now_s)
    estimate = book.forecast.when(entry.queue, Place(ahead), book.now_s)
    p50_s, p90_s, header_s = estimate[:3] if estimate is not None else (0.0, 0.0, 0.0)
    return Outlook(
        ahead + 1, max(header_s, wait_s), max(p50_s, wait_s), max(p90_s, RATE_P90 * wait_s)
    )
