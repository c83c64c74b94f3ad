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
from forebay.core.records import Estimate
from forebay.core.returns import identity_of

if TYPE_CHECKING:
    from forebay.core.events import Arrived
    from forebay.core.records import Entry, Lane, WaitQueue
    from forebay.core.tickets import Book

RATE_P90: Final = 1.2
"""A key's rate is known, but not what the answers before it will take of it."""
SURE_OFF: Final = 4.0
"""So far from the line's mean services no promise is that refuses anybody."""
SURELY: Final = 1.5
"""Who is promised more than that of its own limit is refused: half of the promises are too long."""
AGAIN_MIN: Final = 0.5
"""Of a newcomer's wait; so long is anyone told to stay away."""
TOO_LONG: Final = 2.0
"""Of the operator's limit: who would wait longer is refused, since few of these would be served."""
MEASURED_MIN: Final = 20
"""Waits of a lane that must have been measured before it refuses anyone for its length."""


class Newcomer(NamedTuple):
    """How long one would wait that came now."""

    ahead: int
    """Those of its lane that would run before it."""
    served_s: float
    """What serving these takes on the slots of the lane, and nothing else."""
    p50_s: float
    turn_s: float
    """How long it is until the turn for which it was refused before; infinite where it was not."""

    def least_s(self) -> float:
        """Return the median wait, if not its old turn comes earlier."""
        return min(self.p50_s, self.turn_s)


def newcomer(book: Book, arrival: Arrived, queue: WaitQueue) -> Newcomer | None:
    """Return how long an arrival would wait that joined a queue now, if that is known."""
    user = book.users.known.get(arrival.user)
    account = user.accounts.get(queue) if user is not None else None
    owed = book.forecast.owed(queue)
    place = positions.last_place(queue, owed, account, arrival, book.options)
    estimate = book.forecast.when(queue, place, book.now_s)
    if estimate is None:
        return None
    kept = book.returns.find(identity_of(arrival, queue.rank), book.now_s)
    turn_s = inf if kept is None else max(0.0, kept.turn_s - book.now_s)
    return Newcomer(place.ahead, estimate.header_s, estimate.p50_s, turn_s)


def come_again_s(book: Book, arrival: Arrived, lane: Lane) -> float | None:
    """Return how long one that finds no room would wait if there were, with its number.

    Room comes free one by one, and not only for those whose turn is over: they are not told to
    come at shorter and shorter intervals, since callers give up after a number of attempts.
    """
    found = newcomer(book, arrival, lane.queues[book.rank_of(arrival)])
    return None if found is None else min(found.p50_s, max(found.p50_s * AGAIN_MIN, found.turn_s))


def beyond_own_limit_s(book: Book, arrival: Arrived, lane: Lane, own_s: float) -> float | None:
    """Return the wait where it is surely longer than its caller will wait; else None.

    Where no node has its model in memory that is the earliest turn which it can have.
    """
    queue = lane.queues[book.rank_of(arrival)]
    found, wait_s = newcomer(book, arrival, queue), earliest_s(book, queue)
    if wait_s is None:
        wait_s, own_s = 0.0 if found is None else found.least_s(), SURELY * own_s
    elif found is not None:
        rounds = found.ahead // lane.slots
        wait_s = min(wait_s + rounds * (lane.times.quantile_s(0.5) or 0.0), found.turn_s)
    return wait_s if wait_s > own_s else None


def beyond_the_limit_s(book: Book, arrival: Arrived, lane: Lane) -> float | None:
    """Return the wait where the line is too long for the operator's limit; else None.

    Only what runs ahead in its own lane counts: where a node may be busy with other models, what it
    takes to serve those, too. Where no node has the model in memory it is None.
    """
    limit_s = TOO_LONG * book.options.wait_s_max
    if arrival.patient or not book.options.refuses_long_lines or not 0.0 < limit_s < inf:
        return None
    served_s = lane.waiting * (lane.times.mean_s() or 0.0) / (lane.slots or 1)
    if served_s * SURE_OFF < limit_s or book.forecast.measured(lane) < MEASURED_MIN:
        return None  # mostly, so that nothing more is asked of a short line
    queue = lane.queues[book.rank_of(arrival)]
    found = newcomer(book, arrival, queue)
    if found is None or found.least_s() <= limit_s:
        return None
    swaps = any(not node.holds_all for node in lane.nodes.values())
    if swaps and (found.served_s <= limit_s or earliest_s(book, queue) is not None):
        return None
    return found.least_s()


def outlook(book: Book, entry: Entry, *, youngest: bool = False) -> tuple[int, Estimate | None]:
    """Return the position of one that waits, and how long it will, if that is known.

    The youngest, which has just begun to wait, is looked for at the end only.
    """
    claim, queue, options = entry.claim, entry.queue, book.options
    if claim is not None and claim.parked:
        line = claim.line
        assert line is not None
        before, place = positions.parked_place(line, entry, options, youngest=youngest)
        wait_s = book.rates.wait_s(entry, before + (line.offer is not None), book.now_s)
        told = book.forecast.when(queue, place, book.now_s) or Estimate(0.0, 0.0, 0.0)
        return place.ahead + 1, Estimate(  # what its rate takes, or its lane if that is longer
            max(told.header_s, wait_s), max(told.p50_s, wait_s), max(told.p90_s, RATE_P90 * wait_s)
        )
    owed = book.forecast.owed(queue)
    if youngest and not entry.goes_first:
        place = positions.last_place(queue, owed, entry.account, entry.arrival, options, entry)
    else:
        place = positions.exact_place(entry, owed, options, book.seq)
    return place.ahead + 1, book.forecast.when(queue, place, book.now_s, entry)
