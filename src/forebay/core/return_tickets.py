"""Return tickets: a rejected request keeps its arrival number for its next attempt.

A refusal for lack of room gives its caller a text that nobody can guess. Shown again for the same
user, key, model and class, it is worth the arrival number of the first attempt, once: among the
user's own entries, and where users are level, the entry stands where it would have stood. It
reserves no room, and the time outside does not count as waiting. It also remembers when its turn
was expected, so that who finds no room again need not be told what newcomers wait.

**Bound.** At most `max_size` are alive, a tenth of them of one user; beyond that none is given.
Whoever comes back spends one before it gets the next, so a full table keeps newcomers out, not
those who hold one. Each operation is O(log n).
"""

from __future__ import annotations

from hashlib import blake2b
from heapq import heapify, heappop, heappush
from math import ceil, inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from forebay.core.events import Arrived

RETRY_AFTER_S_MIN: Final = 1.0
RETRY_AFTER_S_MAX: Final = 120.0
"""The stock SDKs do not wait longer than two minutes."""
RETRY_AFTER_S_UNMEASURED: Final = 2.0
"""The delay while nothing has been measured."""
JITTER: Final = 0.2
"""Callers that were rejected together must not retry together."""
SHARE_PER_USER: Final = 10
"""One user may have this part of all tickets, and always one."""
SWEEP_SLACK: Final = 64
"""Spent tickets that the heap always tolerates."""


def retry_delay_s(measured_s: float | None, jitter: float) -> float:
    """Return the delay that a caller is told, for a jitter between -1 and 1.

    >>> retry_delay_s(10.0, 1.0), retry_delay_s(None, 0.0), retry_delay_s(0.1, -1.0)
    (12.0, 2.0, 1.0)
    """
    base_s = RETRY_AFTER_S_UNMEASURED if measured_s is None else measured_s
    return min(RETRY_AFTER_S_MAX, max(RETRY_AFTER_S_MIN, base_s * (1.0 + JITTER * jitter)))


class ReturnTicket:
    """What one of them is worth, to whom, and until when."""

    __slots__ = ("key", "models", "rank", "seq", "turn_s", "until_s", "user")

    def __init__(
        self, arrival: Arrived, rank: int, seq: int, turn_s: float, until_s: float
    ) -> None:
        self.user = arrival.user
        self.key = arrival.key
        self.models = _models(arrival)
        self.rank = rank
        self.seq = seq
        self.turn_s = turn_s  # when its turn was expected
        self.until_s = until_s

    def is_of(self, arrival: Arrived, rank: int) -> bool:
        mine = (self.user, self.key, self.models, self.rank)
        return mine == (arrival.user, arrival.key, _models(arrival), rank)


class ReturnTickets:
    """Those that are alive."""

    __slots__ = ("_alive", "_ends", "_given", "_held", "_secret")

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._alive: dict[str, ReturnTicket] = {}
        self._held: dict[str, int] = {}  # how many are alive, by user
        self._ends: list[tuple[float, str]] = []  # heap; may hold spent ones
        self._given = 0

    def __len__(self) -> int:
        return len(self._alive)

    def give(
        self,
        arrival: Arrived,
        rank: int,
        seq: int,
        wait_s: float | None,
        now_s: float,
        max_size: int,
    ) -> str:
        """Return a new ticket for that number, or "" where there are as many as may be.

        `wait_s` is how long it would wait if there were room. The ticket lasts twice as long as the
        longest delay that its caller may be told.
        """
        self._drop_expired(now_s)
        user = arrival.user
        held = self._held.get(user, 0)
        if len(self._alive) >= max_size or held >= max(1, max_size // SHARE_PER_USER):
            return ""
        self._given += 1
        text = blake2b(b"%d" % self._given, key=self._secret, digest_size=16).hexdigest()
        turn_s = inf if wait_s is None else now_s + wait_s
        until_s = now_s + 2 * ceil(retry_delay_s(wait_s, 1.0))
        self._alive[text] = ReturnTicket(arrival, rank, seq, turn_s, until_s)
        self._held[user] = held + 1
        heappush(self._ends, (until_s, text))
        return text

    def take(self, arrival: Arrived, rank: int, now_s: float) -> int:
        """Spend the ticket that an arrival shows; return its number, or 0 if it is worth none."""
        ticket = self._shown(arrival, rank, now_s)
        if ticket is None:
            return 0
        self._drop(arrival.return_ticket)
        return ticket.seq

    def until_turn_s(self, arrival: Arrived, rank: int, now_s: float) -> float:
        """Return how long it is until the turn that the ticket of an arrival was given for.

        It is 0 once that is over, and infinite where nothing is known, or the ticket worth nothing.
        """
        ticket = self._shown(arrival, rank, now_s)
        return inf if ticket is None else max(0.0, ticket.turn_s - now_s)

    def _shown(self, arrival: Arrived, rank: int, now_s: float) -> ReturnTicket | None:
        ticket = self._alive.get(arrival.return_ticket)
        if ticket is None or now_s >= ticket.until_s or not ticket.is_of(arrival, rank):
            return None
        return ticket

    def _drop_expired(self, now_s: float) -> None:
        ends = self._ends
        while ends and ends[0][0] <= now_s:
            text = heappop(ends)[1]
            if text in self._alive:
                self._drop(text)
        if len(ends) > 2 * len(self._alive) + SWEEP_SLACK:
            self._ends = [(ticket.until_s, text) for text, ticket in self._alive.items()]
            heapify(self._ends)

    def _drop(self, text: str) -> None:
        user = self._alive.pop(text).user
        left = self._held[user] - 1
        if left:
            self._held[user] = left
        else:
            del self._held[user]


def _models(arrival: Arrived) -> tuple[str, ...]:
    """Return what stands for the model asked for, whichever of its fallbacks was settled on."""
    return arrival.fallbacks or (arrival.model,)
