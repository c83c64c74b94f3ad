"""What has happened so far, counted as it happens.

Apart from the values that it is made into, so that it can be compiled.
"""

from __future__ import annotations

from collections import deque

from forebay.core.snapshot import RECENT, Totals


class Tally:
    """Plain integers that the scheduler adds to; a snapshot copies them."""

    __slots__ = (
        "accepted", "cancelled", "enqueued", "expired", "failed", "rejected", "returned",
        "served", "service", "swaps", "waits",
    )  # fmt: skip

    def __init__(self) -> None:
        self.accepted = self.enqueued = self.served = self.failed = 0
        self.expired = self.cancelled = self.returned = self.swaps = 0
        self.rejected: dict[str, int] = {}
        self.waits: deque[float] = deque(maxlen=RECENT)
        self.service: deque[float] = deque(maxlen=RECENT)

    def reject(self, code: str) -> None:
        """Count one refusal; codes are ours, so their number is bounded."""
        self.rejected[code] = self.rejected.get(code, 0) + 1

    def totals(self) -> Totals:
        """Return the counts as a frozen value."""
        return Totals(
            accepted=self.accepted,
            enqueued=self.enqueued,
            served=self.served,
            failed=self.failed,
            expired=self.expired,
            cancelled=self.cancelled,
            returned=self.returned,
            swaps=self.swaps,
            rejected=dict(self.rejected),
        )
