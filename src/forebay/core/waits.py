"""The estimate of one wait: from its place, the pace of its queue, and what came of earlier ones.

The raw estimate is the larger of two: those ahead taken into the slots one by one, at the measured
pace (`forebay.core.pace`), and, where users take turns, the time until the queue's clock reaches
the entry's tag (`forebay.core.backlogs`), since later arrivals of others go first. The second is
at most twice what the clock's own speed says, and at most 1.5 x the longest wait there has lately
been or that is going on: no queue gets much longer than it has been, all at once. Promised is the
raw estimate as corrected by `forebay.core.promises`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from forebay.core.estimates import RESIDUALS_MAX

if TYPE_CHECKING:
    from forebay.core.fairness import Account, WaitQueue

SPAN_S: Final = 120.0
"""The pace is that of the last two minutes, or of twice the wait if that is longer."""
UNMEASURED: Final = 10.0
"""So many starts at the mean service time are taken as seen before the first."""
FAR_ROUNDS: Final = 8
"""After so many rounds of the slots it no longer matters how long what runs now has run."""
CLOCK_MOST: Final = 2.0
LONGEST_MOST: Final = 1.5
RAW_MIN_S: Final = 0.001


class Place(NamedTuple):
    """Where an entry stands in its queue."""

    ahead: int
    """Entries of its queue that would run first if nothing more arrived."""
    ahead_in_all: int
    """The same with the classes above."""
    distance: float = 0.0
    """From the queue's clock to the entry's tag."""
    own: float = 0.0
    """The cost of what its user has waiting before it."""
    account: Account | None = None
    """Its user's; None where it does not matter."""


Estimate: TypeAlias = tuple[float, float, float, float, int]
"""p50, p90, the header's number; then the raw estimate and its kind, for `Promises.learn`."""


def estimate(queue: WaitQueue, place: Place, now_s: float) -> Estimate | None:
    """Return how long the wait from here on will be; None while nothing has been measured."""
    lane = queue.lane
    mean_s = lane.times.mean_s()
    if mean_s is None:
        return None
    raw_s = _raw_s(queue, place, mean_s, now_s)
    kind, p50_s, p90_s = queue.promises.correct(raw_s, place.own > 0.0)
    header_s = place.ahead_in_all * float(f"{mean_s:.3g}") / (lane.slots or 1)
    return p50_s, p90_s, round(header_s, 6), raw_s, kind  # 10 x 1.1 is 11, not a bit more


def _raw_s(queue: WaitQueue, place: Place, mean_s: float, now_s: float) -> float:
    lane, pace = queue.lane, queue.pace
    slots, ahead = lane.slots or 1, place.ahead
    span_s = 2.0 * mean_s * ahead / slots
    work_s, starts, charged, travel = pace.last(span_s if span_s > SPAN_S else SPAN_S)
    each_s = (work_s + UNMEASURED * mean_s) / (starts + UNMEASURED)
    if len(lane.running) > RESIDUALS_MAX or ahead > FAR_ROUNDS * slots:
        elapsed_s: list[float] = []
    else:
        elapsed_s = [now_s - entry.since_s for entry in lane.running.values()]
    free_s = lane.times.free_s
    raw_s = free_s(ahead % slots, slots, elapsed_s, mean_s) + ahead // slots * each_s
    if place.ahead_in_all > ahead:  # of classes above, which need not wait for this one's share
        ahead = place.ahead_in_all
        above_s = free_s(ahead % slots, slots, elapsed_s, mean_s) + ahead // slots * mean_s
        raw_s = above_s if above_s > raw_s else raw_s
    account = place.account
    if account is not None and place.distance > 0.0 and travel > 0.0:
        oldest_s = now_s - account.head().since_s if account.live else 0.0
        most_s = min(
            LONGEST_MOST * max(oldest_s, queue.promises.longest_s()),
            CLOCK_MOST * place.distance * work_s / (travel * slots),
        )
        if most_s > raw_s:
            capacity = slots * charged / (starts * each_s)
            flow_s = queue.backlogs.reach_s(place, account, capacity, most_s, pace.busy_s)
            raw_s = flow_s if flow_s > raw_s else raw_s
    return raw_s if raw_s > RAW_MIN_S else RAW_MIN_S
