"""What was counted, over all leaders: a new one goes on from what the one before it said last.

How requests have ended (served, failed, expired) is counted by the replica that had them, for they
also end while nobody leads, or alone. Each replica says how many there were in its life, so that
what is said twice counts once; the leader knows the last word of everyone, and passes all on. Of a
replica that dies, what it had not said yet is lost with it.
"""

from collections.abc import Container, Mapping

from msgspec.structs import replace

from forebay.coordination.protocol.messages import Endings
from forebay.core import NO_ROOM, Arrived, Finished, Observed, Scheduler, Snapshot, Totals

NOTHING = Endings()
REMEMBERED_MAX = 100
"""Replicas of before that are known by name: should one come back, it is not counted twice."""
OTHERS = ""
"""The name of all those before them together."""


def one_more(endings: Endings, event: object) -> Endings:
    """Count how one request has ended: by a `Finished`, or because it waited for too long."""
    if not isinstance(event, Finished):
        return Endings(endings.served, endings.failed, endings.expired + 1)
    served, failed = endings.served + event.ok, endings.failed + (not event.ok)
    return Endings(served, failed, endings.expired)


def with_endings(totals: Totals, known: Mapping[str, Endings]) -> Totals:
    """Return totals with what all replicas together have ended."""
    return replace(
        totals,
        served=sum(one.served for one in known.values()),
        failed=sum(one.failed for one in known.values()),
        expired=sum(one.expired for one in known.values()),
    )


class Counts:
    """What one leader adds to what was counted before it."""

    __slots__ = ("_refused_again", "accepted_again", "cancelled_again", "carried", "endings")

    def __init__(self) -> None:
        self.carried = Totals()
        self.endings: dict[str, Endings] = {}  # by member
        self.accepted_again = 0  # announced, so counted by another core already
        self.cancelled_again = 0  # forgotten only to be announced anew
        self._refused_again: dict[str, int] = {}  # held back, and will be answered anew

    def refuse_again(self, arrival: Arrived, code: str) -> None:
        """Take a refusal out of the count that nobody was told, if it is in there."""
        if arrival.patient and code in NO_ROOM:
            return
        self._refused_again[code] = self._refused_again.get(code, 0) + 1

    def end(self, member: str, event: object) -> None:
        """Count an ending before its replica says so with the next sign of life."""
        self.endings[member] = one_more(self.endings.get(member, NOTHING), event)

    def hear(self, member: str, endings: Endings, present: Container[str]) -> None:
        """Take a replica's own word."""
        if endings == NOTHING:
            return  # or it is of a version that does not count
        self.endings.pop(member, None)
        self.endings[member] = endings
        gone = [name for name in self.endings if name and name not in present]
        for name in gone[: max(0, len(gone) - REMEMBERED_MAX)]:
            one, rest = self.endings.pop(name), self.endings.get(OTHERS, NOTHING)
            self.endings[OTHERS] = Endings(
                one.served + rest.served, one.failed + rest.failed, one.expired + rest.expired
            )

    def all(self, now: Totals) -> Totals:
        """Return everything, by what the core of this leader has counted."""
        return with_endings(self._counted(now), self.endings)

    def _counted(self, now: Totals) -> Totals:
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
