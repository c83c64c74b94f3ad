"""The slots of a node as leases, decided purely: no socket, no clock.

A lease is given back exactly once, whatever ends the request: `give_back` may be called on every
path that leads out, and only the first call counts. So no early return can leak a slot, and no
double one can let more through than there are.
"""

from __future__ import annotations

from forebay.errors import InvariantBroken


class SlotLease:
    """The right to have one request running."""

    __slots__ = ("_slots",)

    def __init__(self, slots: Slots) -> None:
        self._slots: Slots | None = slots

    def give_back(self) -> None:
        """End it; may be called more than once."""
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.gave_back()


class Slots:
    """A limit of concurrent requests, without a queue.

    >>> slots = Slots(1)
    >>> lease = slots.take()
    >>> slots.take() is None, slots.in_flight, slots.refused
    (True, 1, 1)
    >>> lease.give_back(); lease.give_back(); slots.in_flight
    0
    """

    __slots__ = ("_size", "in_flight", "refused", "taken")

    def __init__(self, size: int) -> None:
        self._size = max(1, size)
        self.in_flight = 0
        self.taken = 0
        """Leases given so far."""
        self.refused = 0
        """Requests that found no free slot."""

    @property
    def size(self) -> int:
        """How many may run at once."""
        return self._size

    @property
    def is_full(self) -> bool:
        """Whether the next request would be refused."""
        return self.in_flight >= self._size

    def resize(self, size: int) -> None:
        """Allow more or fewer; what runs beyond a lower bound may finish."""
        self._size = max(1, size)

    def take(self) -> SlotLease | None:
        """Return a lease, or None where every slot is taken."""
        if self.is_full:
            self.refused += 1
            return None
        self.in_flight += 1
        self.taken += 1
        return SlotLease(self)

    def gave_back(self) -> None:
        """Count a lease that has ended; only leases call it."""
        if self.in_flight <= 0:
            raise InvariantBroken("more leases were released than acquired")
        self.in_flight -= 1
