"""Bounds that all keys share, and how much of each one key may take.

The rule is the dynamic threshold of shared-memory switches (Choudhury and Hahne, "Dynamic queue
length thresholds for shared-memory packet switches", IEEE/ACM Transactions on Networking 6(2),
1998): who holds some already takes one more only while that is less than `RATIO` times what is
free. So the first greedy key gets RATIO / (RATIO + 1) of all places, the next as much of the rest,
and so on: of N places, about log N to the base RATIO + 1 greedy keys find some. A key that holds
none takes any place that is free. What is held is never taken back: each holder gives back its own.

The rule needs no limit per key, and wastes a fifth while only one key wants any. With one key in
force, or without keys, there is nobody to share with, and all places may be taken.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

RATIO: Final = 4
RETRY_AFTER_S: Final = 60.0  # sessions and streams are held for long


def may_take(held: int, taken: int, places: int, owners: int) -> bool:
    """Say whether a key that holds so many may take one more of the places that keys share.

    `taken` counts those of all keys; `owners` is how many have a key that is in force.

    >>> [may_take(held, held, 1000, owners=2) for held in (799, 800)]
    [True, False]
    >>> may_take(0, 999, 1000, owners=2), may_take(0, 1000, 1000, owners=2)
    (True, False)
    >>> may_take(999, 999, 1000, owners=1)
    True
    """
    free = places - taken
    return free > 0 and (owners < 2 or held < RATIO * free)


class SharedBound(NamedTuple):
    """A number of places that is one for all keys: 0 if a setting has their number."""

    what: str  # what takes a place, in the plural
    code: str  # of the error where there is none
    places: int = 0


SESSIONS: Final = SharedBound("sessions", "too_many_sessions")
QUEUED_JOBS: Final = SharedBound("queued jobs of this type", "job_queue_full")
JOB_STREAMS: Final = SharedBound("streams of job events", "too_many_connections", 1000)
PAGE_STREAMS: Final = SharedBound("viewers of this gateway", "too_many_connections", 100)
# Bounds what unfinished uploads may take of the disk, too.
UPLOADS: Final = SharedBound("uploads", "too_many_connections", 32)
# All of them. Each gateway counts its own, its workers together, but queued jobs for all gateways.
SHARED_BOUNDS: Final = (SESSIONS, QUEUED_JOBS, JOB_STREAMS, PAGE_STREAMS, UPLOADS)


class Places:
    """The places of one bound, by the owner ids of the keys that hold them."""

    def __init__(self, bound: SharedBound, places: int = 0) -> None:
        self.bound = bound
        self._places = places or bound.places
        self.held: Counter[str] = Counter()

    def refusal(self, owner: str, owners: int) -> str:
        """Return why an owner may take no more, "" where it may; `owners` are in force."""
        places, held, taken = self._places, self.held[owner], self.held.total()
        if may_take(held, taken, places, owners):
            return ""
        if owners < 2:
            return f"there are {places} {self.bound.what} already"
        rest = "leaves the rest to others" if taken < places else "none is free"
        return f"this key holds {held} of {places} {self.bound.what}, and {rest}"

    def take(self, owner: str) -> None:
        self.held[owner] += 1

    def give_back(self, owner: str) -> None:
        self.held -= Counter((owner,))  # who holds none any more is forgotten

    @contextmanager
    def held_by(self, owner: str) -> Iterator[None]:
        """Hold a place for an owner."""
        self.take(owner)
        try:
            yield
        finally:
            self.give_back(owner)
