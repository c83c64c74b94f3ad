"""The fleet's totals over all leaders: a new leader continues from the last that it heard.

How requests have ended (served, failed, expired) is counted by the replica that had them, for they
also end while there is no leader. Each replica sends how many there were in its life, so that what
is sent twice counts once; the leader keeps the latest of everyone and passes all on. Of a replica
that dies, what it had not sent yet is lost.
"""

import operator
from collections.abc import Callable, Container, Mapping

from msgspec.structs import replace

from forebay.coordination.protocol.messages import Endings
from forebay.core import NO_ROOM, Arrived, Finished, Observed, Scheduler, Snapshot, Totals

NOTHING = Endings()
REMEMBERED_MAX = 100
"""Former replicas that are remembered by name: should one come back, it is not counted twice."""
OTHERS = ""
"""The name under which older ones are added up."""


def count_ending(endings: Endings, event: object) -> Endings:
    """Count the end of one request: a `Finished`, or an expiry."""
    if not isinstance(event, Finished):
        return Endings(endings.served, endings.failed, endings.expired + 1)
    served, failed = endings.served + event.ok, endings.failed + (not event.ok)
    return Endings(served, failed, endings.expired)


def with_endings(totals: Totals, known: Mapping[str, Endings]) -> Totals:
    """Return totals with the endings of all replicas."""
    return replace(
        totals,
        served=sum(one.served for one in known.values()),
        failed=sum(one.failed for one in known.values()),
        expired=sum(one.expired for one in known.values()),
    )


class FleetTotals:
    """What one leader adds to the totals of those before it."""

    __slots__ = ("_uncounted_rejections", "accepted_again", "cancelled_again", "carried", "endings")

    def __init__(self) -> None:
        self.carried = Totals()
        self.endings: dict[str, Endings] = {}  # by member
        self.accepted_again = 0  # announced, so counted by another core already
        self.cancelled_again = 0  # forgotten only to be announced anew
        self._uncounted_rejections: dict[str, int] = {}  # deferred, and decided about again

    def uncount_rejection(self, arrival: Arrived, code: str) -> None:
        """Take a deferred rejection out of the count, if it is in there."""
        if arrival.patient and code in NO_ROOM:
            return
        self._uncounted_rejections[code] = self._uncounted_rejections.get(code, 0) + 1

    def end(self, member: str, event: object) -> None:
        """Count an ending before its replica reports it with the next heartbeat."""
        self.endings[member] = count_ending(self.endings.get(member, NOTHING), event)

    def add_more(self, member: str, count: int, *, ok: bool) -> None:
        """Count requests that were accepted and ended elsewhere, like one that the core has."""
        self.accepted_again -= count
        known = self.endings.get(member, NOTHING)
        served, failed = (count, 0) if ok else (0, count)
        self.endings[member] = Endings(known.served + served, known.failed + failed, known.expired)

    def update(self, member: str, endings: Endings, present: Container[str]) -> None:
        """Take a replica's own count."""
        if endings == NOTHING:
            return  # or it is a version that does not count
        self.endings.pop(member, None)
        self.endings[member] = endings
        gone = [name for name in self.endings if name and name not in present]
        for name in gone[: max(0, len(gone) - REMEMBERED_MAX)]:
            one, rest = self.endings.pop(name), self.endings.get(OTHERS, NOTHING)
            self.endings[OTHERS] = Endings(
                one.served + rest.served, one.failed + rest.failed, one.expired + rest.expired
            )

    def all(self, now: Totals) -> Totals:
        """Return the totals, given those of this leader's core."""
        return with_endings(self._counted(now), self.endings)

    def _counted(self, now: Totals) -> Totals:
        return added(
            self.carried,
            replace(
                now,
                accepted=now.accepted - self.accepted_again,
                cancelled=now.cancelled - self.cancelled_again,
                rejected={
                    code: count - self._uncounted_rejections.get(code, 0)
                    for code, count in now.rejected.items()
                },
            ),
        )


class KnownTotals:
    """What one replica knows of the totals, whoever leads."""

    def __init__(self) -> None:
        self.totals = Totals()
        self.own = Endings()
        """Of this replica's own requests."""
        self._by_member: dict[str, Endings] = {}  # as the leader said last

    def count(self, ending: object) -> None:
        """Count the end of one of this replica's requests."""
        self.own = count_ending(self.own, ending)

    def learn(self, totals: Totals, endings: Mapping[str, Endings]) -> None:
        """Take what a leader has counted."""
        self.totals = highest(self.totals, totals)
        self._by_member = dict(endings)

    def endings(self, member: str) -> dict[str, Endings]:
        """Return how many requests have ended in which way, by member; `member` is this replica."""
        return {**self._by_member, member: self.own}

    def shown(self, totals: Totals, member: str) -> Totals:
        """Return the totals of a snapshot; they never go down."""
        seen = highest(self.totals, totals)
        self.totals = highest(seen, with_endings(seen, self.endings(member)))
        return self.totals


def observed(scheduler: Scheduler, now_s: float) -> Snapshot:
    """Return the snapshot of a core."""
    (*_, seen) = scheduler.handle(Observed(), now_s)
    assert isinstance(seen, Snapshot)
    return seen


def added(before: Totals, now: Totals) -> Totals:
    """Return the sum of each count."""
    return _combined(before, now, operator.add)


def highest(before: Totals, now: Totals) -> Totals:
    """Return the higher one of each count: a count that was shown must never go down.

    A new leader continues from what it heard last, which others may have seen grow since.
    """
    return _combined(before, now, max)


def _combined(before: Totals, now: Totals, combine: Callable[[int, int], int]) -> Totals:
    counts = {
        name: combine(getattr(before, name), getattr(now, name))
        for name in Totals.__struct_fields__
        if name != "rejected"
    }
    rejected = {
        code: combine(before.rejected.get(code, 0), now.rejected.get(code, 0))
        for code in {**before.rejected, **now.rejected}
    }
    return Totals(**counts, rejected=rejected)
