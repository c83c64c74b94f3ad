"""How much may wait: exact bounds, checked and taken in one step, each in O(1).

Counted are live requests that wait; jobs are outside.
An entry that returns to its place counts again but is never refused: it was admitted once, so the
count may pass the bound by what was running, and newcomers are refused until it is below.

When it is full, one entry may have to make room: the newest of the largest holder in the lowest
class, and one whose stream was answered already only after all others of that holder. `when_full`
says for whom: with `class` for a newcomer of a higher class, with `displace` also for one of the
same class whose user holds at least two places fewer than that holder, with `reject` for nobody.
With `reject` a line full of the lowest class turns the highest away; with `class` one script can
keep others of its class out. If one place is not enough, for bytes or count, the newcomer is
refused. Holders are kept in buckets by how many places they hold, so that the largest is known in
O(1): a count only ever moves to the neighbouring bucket.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from forebay.core.records import SWEEP_SLACK

if TYPE_CHECKING:
    from forebay.core.actions import RejectCode
    from forebay.core.events import Arrived
    from forebay.core.options import Options
    from forebay.core.records import Entry, User


class Holders:
    """The users of one class by the number of places they hold."""

    def __init__(self) -> None:
        self.held: dict[User, int] = {}
        self._buckets: dict[int, dict[User, None]] = {}
        self._last: dict[User, list[tuple[bool, int, Entry]]] = {}
        """Each user's entries as a heap: whether its stream was answered, and the newest first."""
        self.largest = 0

    def count(self, entry: Entry, change: int) -> None:
        """Count an entry that takes a place (1), or gives it back (-1)."""
        user, buckets = entry.user, self._buckets
        before = self.held.get(user, 0)
        held = before + change
        if before:
            del buckets[before][user]
        if held:
            buckets.setdefault(held, {})[user] = None
            self.held[user] = held
        else:
            del self.held[user], self._last[user]
        if before and not buckets[before]:
            del buckets[before]
        if held > self.largest or (before == self.largest and before not in buckets):
            self.largest = held
        if change > 0:
            last = self._last.setdefault(user, [])
            if len(last) > 2 * held + SWEEP_SLACK:
                last[:] = [item for item in last if _holds(item[2], entry.queue.rank)]
                heapify(last)
            heappush(last, (False, -entry.seq, entry))

    def last_of_largest(self, rank: int, now_s: float) -> Entry:
        """Return who makes room of the largest holder; of several, the first to hold so many."""
        user = next(iter(self._buckets[self.largest]))
        last = self._last[user]
        while True:
            answered, _, entry = last[0]
            if not _holds(entry, rank):
                heappop(last)
            elif now_s >= entry.answered_at_s and not answered:
                heapreplace(last, (True, -entry.seq, entry))
            else:
                return entry


def _holds(entry: Entry, rank: int) -> bool:
    return entry.state == "waiting" and entry.queue.rank == rank


class Bounds:
    """What waits now, and whether one more may."""

    def __init__(self, options: Options) -> None:
        ranks = len(options.priorities)
        self.options = options  # lower ones, once they are changed, drain
        self.waiting = 0
        self.guests = 0  # of these, outside `max_size`
        self.bytes = 0
        self.by_rank = [0] * ranks
        self._holders = None if options.when_full == "reject" else [Holders() for _ in range(ranks)]

    def lets_wait(self, arrival: Arrived) -> RejectCode | None:
        """Say why something like that never waits, or None when it does."""
        options = self.options
        if not options.enabled or options.max_size == 0:
            return "queue_disabled"
        if arrival.stream and not options.queue_streams:
            return "stream_not_queued"
        return None

    def refusal(
        self, arrival: Arrived, user: User | None, *, as_guest: bool = False
    ) -> RejectCode | None:
        """Say why one more may not wait, or None when it may.

        A guest waits for a job to end: it may where nobody else does, and outside `max_size`.
        """
        options = self.options
        code = None if as_guest else self.lets_wait(arrival)
        if code is not None:
            return code
        if options.per_user_max and user is not None and user.waiting >= options.per_user_max:
            return "user_queue_full"
        is_full = not as_guest and self.waiting - self.guests >= options.max_size
        if is_full or self.bytes + arrival.size_bytes > options.bytes_max:
            return "queue_full"
        return None

    def victim(self, arrival: Arrived, rank: int, user: User | None, now_s: float) -> Entry | None:
        """Return the entry that must make room for a newcomer when full, or None to refuse it."""
        if self._holders is None or self.waiting == self.guests:
            return None
        lowest = max(other for other, held in enumerate(self._holders) if held.largest)
        holders = self._holders[lowest]
        if lowest < rank:
            return None
        own = holders.held.get(user, 0) if user is not None else 0
        if lowest == rank and (self.options.when_full == "class" or holders.largest - own < 2):
            return None
        if self.waiting - self.guests - 1 >= self.options.max_size:
            return None
        entry = holders.last_of_largest(lowest, now_s)
        if self.bytes - entry.arrival.size_bytes + arrival.size_bytes > self.options.bytes_max:
            return None
        return entry

    def count(self, entry: Entry, change: int) -> None:
        """Count a live request that begins to wait (1), or waits no more (-1)."""
        rank = entry.queue.rank
        self.waiting += change
        self.by_rank[rank] += change
        self.bytes += change * entry.arrival.size_bytes
        entry.user.waiting += change
        if entry.guest:
            self.guests += change
            entry.queue.lane.guests += change
        elif self._holders is not None:
            self._holders[rank].count(entry, change)
