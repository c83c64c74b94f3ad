"""What was counted, over all leaders: a new one goes on from what the one before it said last."""

from msgspec.structs import replace

from forebay.core import NO_ROOM, Arrived, Observed, Scheduler, Snapshot, Totals


class Counts:
    """What one leader adds to what was counted before it."""

    __slots__ = ("_refused_again", "accepted_again", "cancelled_again", "carried")

    def __init__(self) -> None:
        self.carried = Totals()
        self.accepted_again = 0  # announced, so counted by another core already
        self.cancelled_again = 0  # forgotten only to be announced anew
        self._refused_again: dict[str, int] = {}  # held back, and will be answered anew

    def refuse_again(self, arrival: Arrived, code: str) -> None:
        """Take a refusal out of the count that nobody was told, if it is in there."""
        if arrival.patient and code in NO_ROOM:
            return
        self._refused_again[code] = self._refused_again.get(code, 0) + 1

    def all(self, now: Totals) -> Totals:
        """Return everything, by what the core of this leader has counted."""
        return added(
            self.carried,
            replace(
                now,
                accepted=now.accepted - self.accepted_again,
                cancelled=now.cancelled - self.cancelled_again,
                rejected={
                    code: count - self._refused_again.get(code, 0)
                    for code, count in now.rejected.items()
                },
            ),
        )


def observed(scheduler: Scheduler, now_s: float) -> Snapshot:
    """Return what a core has to show."""
    (*_, seen) = scheduler.handle(Observed(), now_s)
    assert isinstance(seen, Snapshot)
    return seen


def added(before: Totals, now: Totals) -> Totals:
    """Return two counts added up."""
    rejected = dict(before.rejected)
    for code, count in now.rejected.items():
        rejected[code] = rejected.get(code, 0) + count
    return Totals(
        accepted=before.accepted + now.accepted,
        enqueued=before.enqueued + now.enqueued,
        served=before.served + now.served,
        failed=before.failed + now.failed,
        expired=before.expired + now.expired,
        cancelled=before.cancelled + now.cancelled,
        returned=before.returned + now.returned,
        swaps=before.swaps + now.swaps,
        rejected=rejected,
    )


def highest(before: Totals, now: Totals) -> Totals:
    """Return the higher one of each count: who has shown one must never show less.

    A new leader goes on from what it heard last, which others may have seen grow since.
    """
    rejected = {
        code: max(before.rejected.get(code, 0), now.rejected.get(code, 0))
        for code in {**before.rejected, **now.rejected}
    }
    return Totals(
        accepted=max(before.accepted, now.accepted),
        enqueued=max(before.enqueued, now.enqueued),
        served=max(before.served, now.served),
        failed=max(before.failed, now.failed),
        expired=max(before.expired, now.expired),
        cancelled=max(before.cancelled, now.cancelled),
        returned=max(before.returned, now.returned),
        swaps=max(before.swaps, now.swaps),
        rejected=rejected,
    )
