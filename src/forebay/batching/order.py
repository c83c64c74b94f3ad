"""The order of service: by priority, between users, by arrival.

`fifo` serves each priority in order of arrival. `round_robin` shares each priority between the
users that wait in it, by size: start-time fair queueing. A priority has a virtual time, which is
the start of what was served last. A user's next request starts where that user's last one ended,
but not before now, and the earliest start is served first. So a user that has had much waits
until the others have had as much, and one that was idle comes in at the present, without a claim
on the past.

What it promises: of two users that both have requests waiting all the time, neither is ahead of
the other by more than the largest request of each, in the estimator's unit. Only what is served
counts: a request that is cancelled or removed costs its user nothing, one that is put back gives
back what it cost. (A request passed over because it does not fit lets the others go ahead, up to
`max_skips` calls; see `line.py`.)

Cost: O(log n). Each user of a priority has a heap by arrival, and one heap holds the first request
of each. In `fifo` everybody counts as one user.
"""

from collections import defaultdict
from heapq import heapify, heappop, heappush

from forebay.batching.request import Ticket

SLACK = 64
"""Dead entries that are never worth a clean-up."""
IDLE_USERS_MAX = 10_000
"""Users without a waiting request whose share is remembered; beyond, the smallest are forgotten."""


class UserLine:
    """What one user has waiting in one priority, by arrival."""

    __slots__ = ("end", "first", "start", "tickets")

    def __init__(self) -> None:
        self.tickets: list[tuple[int, Ticket]] = []
        self.first: Ticket | None = None  # the one that stands in the order for this user,
        self.start = 0.0  # with this start
        self.end = 0.0  # of what was served last, in virtual time


class ServiceOrder:
    """Tickets, first to be served first. The caller holds the lock of the queue."""

    __slots__ = ("_firsts", "_is_fair", "_lines", "_now")

    def __init__(self, *, fair: bool) -> None:
        self._is_fair = fair
        self._lines: dict[tuple[int, str], UserLine] = {}
        self._firsts: list[tuple[int, float, int, Ticket]] = []
        self._now: defaultdict[int, float] = defaultdict(float)  # virtual time, by priority

    def push(self, ticket: Ticket) -> None:
        """Put a ticket in its place; one that was served and comes back gets its cost back."""
        line = self._lines.get(self._key(ticket))
        if line is None:
            line = self._lines[self._key(ticket)] = UserLine()
        if ticket.is_charged:
            ticket.is_charged = False
            line.end -= _cost(ticket)
        heappush(line.tickets, (ticket.sequence, ticket))
        if line.first is None or ticket.sequence < line.first.sequence:
            self._stand(line)

    def pop(self) -> Ticket | None:
        """Take the first ticket out; the caller reports whether it was served or passed over."""
        while self._firsts:
            entry = heappop(self._firsts)
            if self._stands(*entry):
                ticket = entry[3]
                line = self._lines[self._key(ticket)]
                heappop(line.tickets)
                line.first = None
                return ticket
        return None

    def served(self, ticket: Ticket) -> None:
        """Charge the user of a ticket that `pop` gave."""
        line = self._lines[self._key(ticket)]
        start = max(self._now[ticket.priority], line.end)
        self._now[ticket.priority] = start
        line.end = start + _cost(ticket)
        ticket.is_charged = True
        self._stand(line)
        if not self._firsts:  # nobody waits: nobody is behind
            self._lines.clear()
            self._now.clear()

    def skipped(self, ticket: Ticket) -> None:
        """Let the next of the user stand in for one that is dead, or pushed back later."""
        self._stand(self._lines[self._key(ticket)])

    def sweep(self) -> None:
        """Forget the dead, and users that have nothing waiting and nothing to pay back."""
        for key, line in list(self._lines.items()):
            line.tickets = [entry for entry in line.tickets if entry[1].request is not None]
            heapify(line.tickets)
            line.first = None
            if not line.tickets and line.end <= self._now[key[0]]:
                del self._lines[key]
        idle = sorted(
            (line.end - self._now[key[0]], key)
            for key, line in self._lines.items()
            if not line.tickets
        )
        for _, key in idle[: max(0, len(idle) - IDLE_USERS_MAX)]:
            del self._lines[key]
        self._firsts = []
        for line in self._lines.values():
            self._stand(line)

    @property
    def kept(self) -> int:
        """Return how many entries are in memory, dead ones included."""
        return len(self._firsts) + sum(1 + len(line.tickets) for line in self._lines.values())

    def _key(self, ticket: Ticket) -> tuple[int, str]:
        return ticket.priority, ticket.user if self._is_fair else ""

    def _stand(self, line: UserLine) -> None:
        """Put the first of a user into the order."""
        if not line.tickets:
            return
        sequence, ticket = line.tickets[0]
        line.first = ticket
        line.start = max(self._now[ticket.priority], line.end)
        heappush(self._firsts, (-ticket.priority, line.start, sequence, ticket))
        if len(self._firsts) > 2 * len(self._lines) + SLACK:
            self._firsts = [entry for entry in self._firsts if self._stands(*entry)]
            heapify(self._firsts)

    def _stands(self, _: int, start: float, __: int, ticket: Ticket) -> bool:
        line = self._lines.get(self._key(ticket))
        return line is not None and line.first is ticket and line.start == start


def _cost(ticket: Ticket) -> int:
    return max(ticket.memory_bytes, 1)
