"""How many bytes of request bodies are in memory: one budget for all requests of a server.

A body takes its whole size when its head has come (a chunked one as much as it may have), and
gives it back when its answer begins or the request ends. So a body that has begun to arrive can
always be read to its end, and bodies that hold a part each never wait for one another.

When the budget is spent, arriving bodies wait. Owners (keys, else addresses) are served in turn,
each the smallest first. An owner that holds a quarter gets more only while nobody else wants any,
and a large body only where that leaves a quarter free: others find room at once. A body that finds
nothing else in memory is always let in, however small the budget.

The last eighth is for what is in memory before anyone can say no: requests that came in one read
(`take_whole`: refused where even that is spent, so that small requests never stand behind uploads),
and what one read had brought of bodies that then had to wait. Tiny ones are not counted at all.

What it does not do: it reads no clock. Whoever waits too long, or is too slow to send what it has
room for, is turned away by the server's own deadlines.
"""

from __future__ import annotations

import asyncio
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

READ_BYTES: Final = 262_144
"""What one read of a socket may bring: so much must fit, however small the budget."""
SMALL_BYTES: Final = 4096
"""A body up to here that came in one read is not counted: it is less than what a connection itself
may take, and there is a bound on connections."""
SWEEP_SLACK: Final = 64
SERVED_AT_ONCE: Final = 16
"""Bodies let in in one turn of the event loop."""


class Charge:
    """Bytes taken from a budget; given back once, however often `release` is called."""

    __slots__ = ("_owner", "budget", "size_bytes")

    def __init__(self, budget: Budget | None, owner: str, size_bytes: int) -> None:
        self.budget = budget
        """Where it was taken; None once it has been given back."""
        self._owner = owner
        self.size_bytes = size_bytes

    @property
    def held_bytes(self) -> int:
        """What has not been given back."""
        return 0 if self.budget is None else self.size_bytes

    def shrink(self, size_bytes: int) -> None:
        """Give back what turned out not to be needed."""
        if self.budget is not None and size_bytes < self.size_bytes:
            self.budget.give_back(self._owner, self.size_bytes - size_bytes)
            self.size_bytes = size_bytes

    def joined(self, other: Charge) -> Charge:
        """Return one charge for both, which are void after it."""
        if self.budget is None:
            return other
        both = Charge(self.budget, self._owner, self.held_bytes + other.held_bytes)
        self.budget = other.budget = None
        return both

    def release(self) -> None:
        """Give everything back; may be called more than once."""
        budget, self.budget = self.budget, None
        if budget is not None and self.size_bytes:
            budget.give_back(self._owner, self.size_bytes)


NOTHING: Final = Charge(None, "", 0)
"""The charge of a request without a body."""


class BodyWaiter(Protocol):
    """Who waits for room."""

    __slots__ = ()

    def has_room(self, charge: Charge) -> None: ...


class Budget:
    """Bytes in memory, and who waits for some."""

    __slots__ = (
        "_lines", "_owned", "_places", "_scheduled", "_sequence", "limit_bytes", "parked_bytes",
        "used_bytes",
    )  # fmt: skip

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.parked_bytes = 0
        """Read already of bodies that wait for room."""
        self._owned: dict[str, int] = {}  # by owner; nobody is in it with nothing
        self._lines: dict[str, list[tuple[int, int, BodyWaiter]]] = {}  # heaps: size, order, who
        self._places: dict[BodyWaiter, tuple[int, int, str]] = {}  # order, parked bytes, owner
        self._sequence = 0
        self._scheduled = False

    @property
    def in_memory_bytes(self) -> int:
        """All bytes that are counted, those of bodies that wait for room included."""
        return self.used_bytes + self.parked_bytes

    @property
    def waiting(self) -> int:
        """How many bodies wait for room."""
        return len(self._places)

    def take(self, owner: str, size_bytes: int) -> Charge | None:
        """Return a charge of so many bytes, or None where it has to wait."""
        if self._places and self._is_behind(owner, size_bytes):
            return None
        return self._grant(owner, size_bytes) if self._fits(owner, size_bytes) else None

    def take_whole(self, owner: str, size_bytes: int) -> Charge | None:
        """Return a charge for a body that has come in one read, or None where there is no room."""
        limit, used = self.limit_bytes, self.used_bytes + size_bytes
        held = self._owned.get(owner, 0) + size_bytes
        if held > limit // 4:
            limit -= limit // 8
        if used + self.parked_bytes > limit and used + self.parked_bytes > READ_BYTES:
            return None
        if size_bytes:
            self.used_bytes = used
            self._owned[owner] = held
        return Charge(self, owner, size_bytes)

    def wait(self, waiter: BodyWaiter, owner: str, size_bytes: int, parked_bytes: int) -> bool:
        """Stand in line: `has_room` is called in a later turn of the loop; False: no more may.

        `parked_bytes` are in memory already.
        """
        if self.in_memory_bytes + parked_bytes > max(self.limit_bytes, READ_BYTES):
            return False
        self._sequence += 1
        self.parked_bytes += parked_bytes
        self._places[waiter] = (self._sequence, parked_bytes, owner)
        heappush(self._lines.setdefault(owner, []), (size_bytes, self._sequence, waiter))
        self._schedule()  # it may fit where another owner's does not
        return True

    def forget(self, waiter: BodyWaiter) -> None:
        """Leave the line; nothing happens if it is not in it."""
        place = self._places.pop(waiter, None)
        if place is None:
            return
        self.parked_bytes -= place[1]
        line = self._lines.get(place[2])
        if line is not None and len(line) > 2 * len(self._places) + SWEEP_SLACK:
            line[:] = [item for item in line if self._is_live(item)]
            heapify(line)
        self._schedule()  # who stood behind it may fit

    def give_back(self, owner: str, size_bytes: int) -> None:
        """Take bytes back; only charges call it."""
        self.used_bytes -= size_bytes
        left = self._owned[owner] - size_bytes
        if left:
            self._owned[owner] = left
        else:
            del self._owned[owner]
        if self._places:
            self._schedule()

    def change(self, limit_bytes: int) -> None:
        """Use another limit; what is in memory stays."""
        self.limit_bytes = limit_bytes
        if self._places:
            self._schedule()

    def _grant(self, owner: str, size_bytes: int) -> Charge:
        if size_bytes:
            self.used_bytes += size_bytes
            self._owned[owner] = self._owned.get(owner, 0) + size_bytes
        return Charge(self, owner, size_bytes)

    def _is_behind(self, owner: str, size_bytes: int) -> bool:
        """Say whether a newcomer must stand behind those who wait: a small one only its own."""
        line = self._lines.get(owner)
        return size_bytes > self.limit_bytes // 64 or (
            line is not None and line[0][0] <= size_bytes
        )

    def _fits(self, owner: str, size_bytes: int) -> bool:
        used, limit = self.used_bytes, self.limit_bytes
        if not used:
            return True
        free = limit // 8
        if not self._is_within_share(owner, size_bytes):
            if self._others_wait(owner):
                return False
            if size_bytes > limit // 64:
                free = limit // 4
        return used + size_bytes <= limit - free

    def _is_within_share(self, owner: str, size_bytes: int) -> bool:
        """Say whether an owner may have so much more while others want some: a quarter, or one."""
        held = self._owned.get(owner, 0)
        return not held or held + size_bytes <= self.limit_bytes // 4

    def _others_wait(self, owner: str) -> bool:
        return any(
            other != owner and self._is_within_share(other, line[0][0])
            for other, line in self._lines.items()
        )

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        """Give out what there is, to one owner after the other, some in each turn of the loop."""
        self._scheduled = False
        for owner in list(self._lines):
            self._sweep(owner)
        served = 0
        for _ in range(SERVED_AT_ONCE):
            before = served
            for owner in list(self._lines):
                served += self._serve_one(owner)
                if served >= SERVED_AT_ONCE:
                    self._schedule()
                    return
            if served == before:
                return

    def _sweep(self, owner: str) -> None:
        """Forget those who have left the head of a line."""
        line = self._lines[owner]
        while line and not self._is_live(line[0]):
            heappop(line)
        if not line:
            del self._lines[owner]

    def _serve_one(self, owner: str) -> bool:
        """Let in the smallest of an owner if it fits; say whether it did."""
        line = self._lines[owner]
        if not self._fits(owner, line[0][0]):
            return False
        size_bytes, _, waiter = heappop(line)
        del self._lines[owner]
        if line:
            self._lines[owner] = line  # the next turn is another's
            self._sweep(owner)
        self.parked_bytes -= self._places.pop(waiter)[1]
        charge = self._grant(owner, size_bytes)
        try:
            waiter.has_room(charge)
        except BaseException:
            charge.release()
            raise
        return True

    def _is_live(self, item: tuple[int, int, BodyWaiter]) -> bool:
        place = self._places.get(item[2])
        return place is not None and place[0] == item[1]
