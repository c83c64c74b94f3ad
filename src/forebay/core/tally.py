"""What the scheduler counts as it happens."""

from __future__ import annotations

from collections import Counter, deque

from forebay.core.snapshot import RECENT, Totals


class Tally:
    """Plain integers that the scheduler adds to; a snapshot copies them."""

    def __init__(self) -> None:
        self.accepted = self.enqueued = self.served = self.failed = 0
        self.expired = self.cancelled = self.returned = self.swaps = 0
        self.rate_waits = 0
        self.prefix_tokens = self.prefix_hit_tokens = 0
        self.prefix_saved_s = 0.0
        self.rejected: Counter[str] = Counter()  # codes are ours, so their number is bounded
        self.waits: deque[float] = deque(maxlen=RECENT)
        self.service: deque[float] = deque(maxlen=RECENT)

    def totals(self) -> Totals:
        """Return a copy of what has been counted."""
        counts = {name: getattr(self, name) for name in Totals.__struct_fields__}
        return Totals(**{**counts, "rejected": dict(self.rejected)})
