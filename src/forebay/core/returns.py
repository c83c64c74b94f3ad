"""Coming back: a request that found no room keeps its arrival number for its next attempt.

Clients retry by themselves, with the same body. So what is refused for lack of room is remembered
by its user, key, models, class and `Arrived.digest`, and the same request takes its old number
when it comes again, once: among the user's own entries, and where users are level, the entry stands
where it would have stood. A waiting request whose client went away is remembered in the same way.
Nothing is reserved, and the time outside does not count as waiting. It is also remembered when its
turn was expected, so that who finds no room again need not be told what newcomers wait.

**Bound.** At most `max_size` are kept, a tenth of them of one user; beyond that nobody new is. Who
is refused again replaces what was kept of it, so a full table keeps newcomers out, not those who
are in it. What is out of date is dropped in the order in which it was kept, so it may count for
longer than it is worth, but never for more than two minutes. Each operation is O(1).

**What it does not do.** Two bodies of one user may have the same digest: one may then get the
other's number, never that of somebody else.
"""

from __future__ import annotations

from collections import OrderedDict
from math import ceil, inf
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from forebay.core.events import Arrived

RETRY_AFTER_S_MIN: Final = 1.0
RETRY_AFTER_S_MAX: Final = 60.0
"""Some clients heed no longer delay."""
RETRY_AFTER_S_UNMEASURED: Final = 2.0
"""The delay while nothing has been measured."""
JITTER: Final = 0.2
"""Callers that were rejected together must not retry together."""
SHARE_PER_USER: Final = 10
"""One user may have this part of what is kept, and always one."""


def retry_delay_s(measured_s: float | None, jitter: float) -> float:
    """Return the delay that a caller is told, for a jitter between -1 and 1.

    >>> retry_delay_s(10.0, 1.0), retry_delay_s(None, 0.0), retry_delay_s(0.1, -1.0)
    (12.0, 2.0, 1.0)
    """
    base_s = RETRY_AFTER_S_UNMEASURED if measured_s is None else measured_s
    return min(RETRY_AFTER_S_MAX, max(RETRY_AFTER_S_MIN, base_s * (1.0 + JITTER * jitter)))


class Identity(NamedTuple):
    """By what a request is known again."""

    user: str
    key: str
    models: tuple[str, ...]
    rank: int
    digest: int


class Kept(NamedTuple):
    """What is kept of one request."""

    seq: int
    turn_s: float
    """When its turn was expected."""
    until_s: float


def identity_of(arrival: Arrived, rank: int) -> Identity | None:
    """Return by what an arrival is known again; whichever of its fallbacks was settled on."""
    if arrival.digest is None:
        return None
    models = arrival.fallbacks or (arrival.model,)
    return Identity(arrival.user, arrival.key, models, rank, arrival.digest)


class Returns:
    """The arrival numbers of those who may come back."""

    def __init__(self) -> None:
        self.kept: OrderedDict[Identity, Kept] = OrderedDict()  # kept longest first
        self._held: dict[str, int] = {}  # how many are kept, by user

    def find(self, who: Identity | None, now_s: float) -> Kept | None:
        """Return what is kept of a request."""
        kept = None if who is None else self.kept.get(who)
        return kept if kept is not None and now_s < kept.until_s else None

    def keep(
        self, who: Identity, seq: int, wait_s: float | None, now_s: float, max_size: int
    ) -> None:
        """Keep the number of one that must go, unless as many are kept as may be.

        `wait_s` is how long it would wait if there were room. The number is kept twice as long as
        the longest delay that the caller may be told.
        """
        self.drop(who)
        while self.kept and next(iter(self.kept.values())).until_s <= now_s:
            self.drop(next(iter(self.kept)))
        held = self._held.get(who.user, 0)
        if len(self.kept) < max_size and held < max(1, max_size // SHARE_PER_USER):
            self._held[who.user] = held + 1
            until_s = now_s + 2 * ceil(retry_delay_s(wait_s, 1.0))
            self.kept[who] = Kept(seq, inf if wait_s is None else now_s + wait_s, until_s)

    def drop(self, who: Identity) -> None:
        """Keep a number no longer; harmless where none is kept."""
        if self.kept.pop(who, None) is not None:
            self._held[who.user] -= 1
            if not self._held[who.user]:
                del self._held[who.user]
