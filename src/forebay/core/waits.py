"""The estimate of one wait, from its position, the pace of its queue and earlier outcomes.

The raw estimate is the larger of two. First, those ahead taken into the slots one by one, for as
long as their sizes say (`forebay.core.sizes`), and all of that stretched: below other classes by
what these leave (`forebay.core.demand`), else by how much slower the queue moves than that
(`forebay.core.pace`). What the classes above take is overtaking, and the last part of a round,
which is until one of those ends that run now, is overtaken like the others.
Second, where users take turns, the time until the queue's clock reaches the entry's tag
(`forebay.core.backlogs`), since later arrivals of others go first; at most twice what the clock's
own speed says, and at most 2.2 x the longest wait there has lately been or that is going on: no
queue gets much longer than it has been, all at once. It is trusted in part: the traffic that is
forecast mostly ebbs or swells before it has all come, so that a forecast of four times the first
comes true about three times. Where a third of the first or more is what classes above will ask for,
one forecast on top of the other is mostly too long, and the first alone too short: there it is
their geometric mean. Promised is the raw estimate as corrected by `forebay.core.promises`, unless
it is the first with such a third: there the outcomes of earlier waits tell what was asked for then,
and the estimate what is asked for now.
"""

from __future__ import annotations

from math import floor, sqrt
from typing import TYPE_CHECKING, Final, TypeAlias

from forebay.core.estimates import MEDIAN
from forebay.core.fairness import best, head_of
from forebay.core.lanes import listing, waiting_above
from forebay.core.records import NEVER_S

if TYPE_CHECKING:
    from forebay.core.records import Account, Lane, WaitQueue
    from forebay.core.sizes import Size

SPAN_S: Final = 300.0
"""The pace is that of the last five minutes, or of twice the wait if that is longer."""
LOADING_P90: Final = 1.5
"""Loads of one model take about the same each time, but a file may have left the disk's cache."""
UNMEASURED: Final = 10.0
"""So many starts at the mean service time are taken as seen before the first."""
FAR: Final = 8
"""After so many mean services it no longer matters how long what runs now has run."""
SHARED: Final = 1.5
"""A class whose starts are so much further apart than services shares the slots with others."""
CLOCK_MOST: Final = 2.0
LONGEST_MOST: Final = 2.2
SHARED_LONGEST_MOST: Final = 1.5
FORECAST_LEVEL: Final = 1.25
FORECAST_POWER: Final = 0.6
"""A forecast of x times what is ahead counts as 1.25 * x^0.6 times, as waits turned out."""
RAW_MIN_S: Final = 0.001
UNBOUNDED_S: Final = 1e9
TINY: Final = 1e-9
HUGE: Final = 1e15


Place: TypeAlias = "tuple[int, float, float, Account | None]"
"""Where an entry stands in its queue, as a plain tuple, because one is made for every arrival.

Entries of its lane that would run first if nothing more arrived; the distance from the queue's
clock to the entry's tag; the cost of what its user has waiting before it; and the user's account,
or None where it does not matter.
"""
Estimate: TypeAlias = tuple[float, float, float, float, int]
"""p50, p90, the header's number; then the raw estimate and its kind, for `Promises.learn`."""


def estimate(queue: WaitQueue, place: Place, now_s: float, mine: Size | None) -> Estimate | None:
    """Return how long the wait from here on will be; None while nothing has been measured."""
    lane = queue.lane
    mean_s = lane.times.mean_s()
    if mean_s is None:
        return None
    raw_s, forecast = _raw_s(queue, place, mean_s, now_s, mine)
    kind, p50_s, p90_s = queue.promises.correct(raw_s, place[2] > 0.0, forecast)
    header_s = place[0] * _three_digits(mean_s) / (lane.slots or 1)
    header_s = floor(header_s * 1e6 + 0.5) / 1e6  # 10 x 1.1 is 11, not a bit more
    return p50_s, p90_s, header_s, raw_s, kind


def _three_digits(value: float) -> float:
    """Return a number to three significant digits; formatting it takes twenty times as long.

    >>> [_three_digits(value) for value in (0.0, 0.0012345, 10.0004, 999.6, 12345.0)]
    [0.0, 0.00123, 10.0, 1000.0, 12300.0]
    """
    if not TINY < value < HUGE:
        return 0.0 if value <= TINY else value
    scale = 1.0
    while value * scale < 100.0:
        scale *= 10.0
    while value * scale >= 1000.0:
        scale /= 10.0
    return floor(value * scale + 0.5) / scale


def _raw_s(
    queue: WaitQueue, place: Place, mean_s: float, now_s: float, mine: Size | None
) -> tuple[float, bool]:
    """Return the raw estimate, and whether nothing counts but what the classes above ask for."""
    ahead, distance, _, account = place
    lane = queue.lane
    slots = lane.slots or 1
    span_s = 2.0 * mean_s * ahead / slots
    above = waiting_above(queue) if queue.rank else 0
    work_s, expected_s, starts, charged, travel, grown = queue.pace.last(
        span_s if span_s > SPAN_S else SPAN_S, slots, above, now_s, busy=queue.waiting > 0
    )
    mean_s = mean_s if mean_s > TINY else TINY
    usual, each_s = lane.times.slowness(), lane.times.sizes().each_waiting_s(queue.rank, mine)
    each_s = each_s if each_s > TINY else TINY
    left = lane.demand.left(queue, slots, mean_s, now_s) if queue.rank else None
    if left is not None:
        slowness = usual / left
    else:
        # What the classes above have grown by will be served before this one gets as much again.
        net_s = expected_s + UNMEASURED * mean_s - grown * each_s
        slowness = (work_s + UNMEASURED * usual * mean_s) / (net_s if net_s > mean_s else mean_s)
    sure_s = _sure_s(lane, ahead, slots, usual * each_s, now_s)
    raw_s = sure_s * slowness / usual
    shared = slowness > SHARED * usual and queue.rank > 0
    forecast = shared and left is not None
    if shared:
        raw_s = max(sure_s, min(raw_s, _longest_s(queue, account, now_s, SHARED_LONGEST_MOST)))
    raw_s = raw_s if raw_s > RAW_MIN_S else RAW_MIN_S
    if distance > 0.0 and travel > 0.0 and account is not None:
        most_s = CLOCK_MOST * distance * work_s / (travel * slots)
        if most_s > raw_s:
            most_s = min(most_s, _longest_s(queue, account, now_s, LONGEST_MOST))
        if most_s > raw_s:
            waiting = queue.waiting - queue.returned.count
            cost = queue.backlogs.owed / waiting if waiting > 0 else charged / starts
            capacity = slots * cost / (slowness * each_s)
            usual_cost = cost * lane.demand.came_per_s(queue, now_s)
            per_s = queue.backlogs.per_s(queue.pace.busy_s, usual_cost)
            flow_s = queue.backlogs.reach_s(
                distance, ahead * cost, account, capacity, most_s, per_s
            )
            if flow_s > raw_s:
                factor = FORECAST_LEVEL * (flow_s / raw_s) ** FORECAST_POWER
                raw_s *= sqrt(factor) if forecast else factor
                forecast = False
    return raw_s, forecast


def _sure_s(lane: Lane, ahead: int, slots: int, each_s: float, now_s: float) -> float:
    """Return how long those ahead take if all slots are theirs, and nobody else comes."""
    mean_s = lane.times.mean_s() or 0.0
    rounds, index = divmod(ahead, slots)
    rounds_s = rounds * each_s
    if rounds_s > FAR * mean_s:
        return rounds_s + mean_s * (index + MEDIAN) / slots
    return rounds_s + lane.times.free_s(index, slots, lane.running, now_s)


def _longest_s(queue: WaitQueue, account: Account | None, now_s: float, factor: float) -> float:
    """Return the longest wait to reckon with, by those of late and those that are going on."""
    longest_s = queue.promises.longest_s()
    if longest_s <= 0.0:  # no wait has ended yet: as long as the lane has been seen to run
        longest_s = queue.lane.demand.known_s(now_s)
    oldest = head_of(account) if account is not None and account.live else best(queue)
    if oldest is not None and now_s - oldest.since_s > longest_s:
        longest_s = now_s - oldest.since_s
    return factor * longest_s if longest_s > 0.0 else UNBOUNDED_S


def wait_s(
    lane: Lane, queue: WaitQueue, place: Place, now_s: float, mine: Size | None = None
) -> Estimate | None:
    """Return how long one would wait at a place in a queue of this lane.

    `mine` is its own size, where it is counted among those that wait.
    """
    if not lane.is_up:
        return _wait_for_loading_s(lane, place[0], now_s)
    return estimate(queue, place, now_s, mine)


def _wait_for_loading_s(lane: Lane, ahead: int, now_s: float) -> Estimate | None:
    """Return the same where a node is loading: until it is ready, then those ahead."""
    at_s, slots = NEVER_S, 1
    for node in listing(lane):
        if node.ready_at_s is not None and node.ready_at_s < at_s:
            at_s, slots = node.ready_at_s, max(1, node.slots)
    if at_s == NEVER_S:
        return None
    left_s = max(0.0, at_s - now_s)
    wait_s = left_s + ahead / slots * (lane.times.mean_s() or 0.0)
    return wait_s, wait_s * LOADING_P90, wait_s, 0.0, 0


def last_wait_s(lane: Lane, rank: int, now_s: float) -> Estimate | None:
    """Return the wait of one that came last in a class, behind all there and above."""
    ahead = 0
    for queue in lane.queues[: rank + 1]:
        ahead += queue.waiting
    return wait_s(lane, lane.queues[rank], (ahead, 0.0, 0.0, None), now_s)


def newcomer_wait_s(lane: Lane, now_s: float) -> Estimate | None:
    """Return the wait of one that came last, behind all that wait in the lane."""
    waiting, longest = 0, lane.queues[0]
    for queue in lane.queues[:-1]:
        waiting += queue.waiting
        if queue.waiting > longest.waiting:
            longest = queue
    return wait_s(lane, longest, (waiting, 0.0, 0.0, None), now_s)
