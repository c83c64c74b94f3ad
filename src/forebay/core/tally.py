"""What the scheduler counts as it happens."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from forebay.core.snapshot import RECENT, Totals

if TYPE_CHECKING:
    from forebay.core.events import Arrived


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

    def note_prefix(self, arrival: Arrived, cached_tokens: int, token_s: float) -> None:
        """Count the tokens of a prompt that starts where it could find some of them cached."""
        self.prefix_tokens += sum(arrival.prefix_tokens)
        self.prefix_hit_tokens += cached_tokens
        self.prefix_saved_s += float(cached_tokens) * token_s

    def totals(self) -> Totals:
        """Return a copy of what has been counted."""
        counts = {name: getattr(self, name) for name in Totals.__struct_fields__}
        return Totals(**{**counts, "rejected": dict(self.rejected)})
