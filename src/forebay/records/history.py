"""What survives a restart beside counts: the last ended requests, and the last day by the minute.

Whoever has them in memory hands over what is new, and takes back what an earlier process had.
Both are JSON: the tables need not know what a request or a point is made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

REQUESTS_MAX: Final = 1000
MINUTES_MAX: Final = 1440
"""24 hours."""


class RequestMemory(Protocol):
    """The last ended requests of a process."""

    def take_fresh(self) -> list[str]:
        """Return those that have ended since it was last asked, the oldest first."""

    def restore(self, requests: Sequence[str]) -> None:
        """Take back those of an earlier process, the oldest first."""


class SeriesMemory(Protocol):
    """The last day of a process, one point a minute."""

    def take_fresh(self) -> list[tuple[int, str]]:
        """Return the points, by minute since 1970, since it was last asked."""

    def restore(self, points: Sequence[tuple[int, str]]) -> None:
        """Take back those of an earlier process, the oldest first."""
