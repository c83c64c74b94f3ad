"""The queue itself: its order, and which requests make the next batch.

Order. Higher priority first, then between users or by arrival (`order.py`). Whoever leaves from
the middle leaves a dead ticket behind, dropped when it comes up, or all at once when more than
half are dead: every operation is O(log n), counted over many.

The batch. `take(max_count, budget)` goes down the line and takes what still fits. Going on past a
request that does not fit keeps one big request from holding up everybody (head-of-line
blocking), but nothing then ensures that it is ever served: small ones can eat the memory for ever.
So there is a bound. A call that takes something behind a request which did not fit has passed it
over, and that is counted, once a call. After `max_skips` passes memory is *reserved* for it: from
then on nothing behind it is taken until it fits. With nothing new admitted behind it, what runs
finishes, the budget grows, and it is served.

What this promises:
- the batch holds at most `max_count` requests and at most `budget` bytes, in order;
- at most `max_skips` calls pass a request over (see below for one that can never fit), so at
  most `max_skips x max_count` requests overtake it; 0 means strict order. Those ahead of it, of
  higher priority or earlier, do not count;
- while nothing is reserved, no request that fits is left behind (but for `max_count`).

When it can never fit. A reservation for a request larger than any budget would hold up the line
for ever. Give the queue a `memory_limit` and none can get in: then every request that waits is
taken to be possible, and reservations hold without limit. Without one, the line learns from the
budgets it is given: a request no larger than the largest so far is possible (that much was free
once, and will be again), and its reservation holds. For one larger than every budget so far, the
reservations hold back others in at most `UNPROVEN_CALLS_MAX` calls; after that such requests are
passed over freely and hold up nobody, until a call brings a larger budget. `dequeue` asks for no
budget and delivers them in their turn.

Cost. A second heap knows the smallest request that waits, so the search ends as soon as nothing
fits: a request looked at in vain was passed over, at most `max_skips` times in its life. A batch
of k costs O(k log n), and only what was passed over is put back. (Two kinds are looked at in
each call: those passed over freely, and those that do not fit ahead of a reservation.)

What it does not do: age. Strict priority can starve the lower ones, by definition.

Not thread-safe: the queue holds its lock around every call. A token may be cancelled meanwhile;
a request whose token is cancelled is dropped when it comes up, never handed out.
"""

from heapq import heapify, heappop, heappush
from math import inf

from forebay.batching.order import SLACK, ServiceOrder
from forebay.batching.request import Request, Ticket

UNPROVEN_CALLS_MAX = 100
"""Calls that may be held back for requests larger than any budget so far: seconds of a running
engine, long enough for a slow start, short enough not to look like a hang."""


class Line:
    """Tickets in order; see the top of this module."""

    __slots__ = (
        "_by_size",
        "_dead",
        "_largest_budget",
        "_max_skips",
        "_order",
        "_unproven_calls",
        "waiting",
    )

    def __init__(
        self, max_skips: int, memory_limit: int | None = None, *, fair: bool = False
    ) -> None:
        self.waiting: dict[str, Ticket] = {}  # by id; exact, where the heaps also hold the dead
        self._order = ServiceOrder(fair=fair)
        self._dead = 0  # tickets in the order that no longer wait, at most
        self._by_size: list[tuple[int, int, Ticket]] = []
        self._max_skips = max_skips
        self._largest_budget: float = memory_limit or 0
        self._unproven_calls = 0  # held back since the largest budget last grew

    def add(self, ticket: Ticket) -> None:
        """Put a ticket in its place: behind its equals, or where it was if it comes back."""
        self.waiting[ticket.id] = ticket
        self._order.push(ticket)
        heappush(self._by_size, (ticket.memory_bytes, ticket.sequence, ticket))
        if len(self._by_size) > 2 * len(self.waiting) + SLACK:
            self._sweep()

    def pop(self) -> Request | None:
        """Take the first request out of the line; None if nobody waits."""
        ticket = self._pop_live()
        return None if ticket is None else self._hand_out(ticket)

    def next_priority(self) -> int | None:
        """Return the priority of the first request; None if nobody waits."""
        ticket = self._pop_live()
        if ticket is None:
            return None
        self._order.skipped(ticket)
        self._order.push(ticket)
        return ticket.priority

    def discard(self, ticket: Ticket) -> bool:
        """Take a ticket out of the line, wherever it stands. False if it does not wait."""
        if ticket.request is None:
            return False
        self._drop(ticket)
        self._dead += 1
        if self._dead > len(self.waiting) + SLACK:
            self._sweep()
        return True

    def drain(self) -> list[Request]:
        """Take everybody out of the line, and return them in order."""
        requests = []
        while (ticket := self._pop_live()) is not None:
            requests.append(self._drop(ticket))
            self._order.skipped(ticket)
        self._by_size.clear()
        return requests

    def take(self, max_count: int, budget: float, min_priority: int = 0) -> list[Request]:
        """Take the next batch: at most so many, at most so large together, in order."""
        if budget > self._largest_budget:
            self._largest_budget = budget
            self._unproven_calls = 0
        taken: list[Request] = []
        passed: list[Ticket] = []
        overtaken = 0  # how many of `passed` stand before the last one taken
        while len(taken) < max_count and self._smallest_bytes() <= budget:
            ticket = self._pop_live()
            if ticket is None:
                break
            if ticket.memory_bytes <= budget and ticket.priority >= min_priority:
                budget -= ticket.memory_bytes
                taken.append(self._hand_out(ticket))
                overtaken = len(passed)
            else:
                passed.append(ticket)
                self._order.skipped(ticket)
                if ticket.priority < min_priority or self._is_reserved_for(ticket):
                    break
        for ticket in passed[:overtaken]:
            ticket.skips += 1
        for ticket in passed:
            self._order.push(ticket)
        return taken

    def _is_reserved_for(self, ticket: Ticket) -> bool:
        if ticket.skips < self._max_skips:
            return False
        if ticket.memory_bytes <= self._largest_budget:
            return True
        if self._unproven_calls >= UNPROVEN_CALLS_MAX:
            return False
        self._unproven_calls += 1
        return True

    def _smallest_bytes(self) -> float:
        by_size = self._by_size
        while by_size and by_size[0][2].request is None:
            heappop(by_size)
        return by_size[0][0] if by_size else inf

    def _pop_live(self) -> Ticket | None:
        """Pop the first ticket that still waits out of the order, and leave it in `waiting`."""
        while (ticket := self._order.pop()) is not None:
            if ticket.request is not None:
                if not ticket.cancelled:
                    return ticket
                self._drop(ticket)
            self._order.skipped(ticket)
        return None

    def _hand_out(self, ticket: Ticket) -> Request:
        del self.waiting[ticket.id]
        self._order.served(ticket)
        return ticket.leave(taken=True)

    def _drop(self, ticket: Ticket) -> Request:
        del self.waiting[ticket.id]
        return ticket.leave(taken=False)

    def _sweep(self) -> None:
        """Forget the dead."""
        self._dead = 0
        self._order.sweep()
        self._by_size = [
            (ticket.memory_bytes, ticket.sequence, ticket) for ticket in self.waiting.values()
        ]
        heapify(self._by_size)
