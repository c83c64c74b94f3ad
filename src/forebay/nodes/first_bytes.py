"""How streams begin once the limit of a node has been raised, for `slot_limit`."""

from __future__ import annotations

from math import exp, log
from typing import Final

from forebay.nodes.known_rounds import FIRST_SAMPLES
from forebay.nodes.slot_rounds import TINY, Round, middle

PACE_SAMPLES: Final = 16
"""What a round counts for that follows from the pace of streams, before any has ended."""


class FirstBytes:
    """The first bytes of streams that were sent at one limit.

    >>> first = FirstBytes()
    >>> for took_s in (0.1, 0.2, 0.5):
    ...     first.note(took_s, usual_s=0.1, bound_s=0.3)
    >>> first.begun, first.late, first.on_time
    (3, 1, 2)
    >>> round(first.paced_round(4, Round(2, 16, 1.0, 1.0, 1.0), factor=1.5).first, 3)
    2.154
    """

    __slots__ = ("_logs", "ends", "late", "suspects", "wrote")

    def __init__(self) -> None:
        self._logs: list[float] = []  # by how much longer than usual they took
        self.late = 0
        self.ends = 0
        """Streams that have ended meanwhile: each of them let another begin."""
        self.wrote = 0
        """The most that were seen to write at once: so many run, however late some began."""
        self.suspects = False
        """Whether some seem to wait inside, so that it is to be seen how many write."""

    @property
    def begun(self) -> int:
        return len(self._logs)

    @property
    def on_time(self) -> int:
        return len(self._logs) - self.late

    def note(self, first_byte_s: float, usual_s: float, bound_s: float) -> None:
        """Take one that has come, and is late if it took longer than its bound."""
        self._logs.append(log(max(TINY, first_byte_s) / usual_s))
        self.late += first_byte_s > bound_s

    def seen_inside(self, inside: int, slots: int) -> int | None:
        """Return how many wait inside, of those that seem to: none that writes.

        None where that is still to be seen.

        >>> first = FirstBytes()
        >>> first.seen_inside(3, slots=8)  # by how late they began
        >>> first.wrote = 7
        >>> first.seen_inside(3, slots=8)
        1
        """
        looks, self.suspects = self.suspects, bool(inside) and not self.suspects
        wrote, self.wrote = self.wrote, 0
        if not looks:
            return None if inside else 0
        return max(0, min(inside, slots - wrote))

    def paced_round(self, slots: int, low: Round, factor: float) -> Round:
        """Return what these stand for where streams write so many times as slowly as at `low`."""
        first = factor * low.first
        if self.begun >= FIRST_SAMPLES:
            first = exp(middle(self._logs))
        return Round(slots, PACE_SAMPLES, first, factor * low.rest, first)
