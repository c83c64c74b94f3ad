"""Time as something that is handed in: the only module of the server that reads a clock."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What callers may ask about time. `forebay.testing.FakeClock` is the public double."""

    def monotonic_s(self) -> float:
        """Return seconds that never run backwards; for deadlines and durations."""
        ...

    def utc(self) -> datetime:
        """Return the time of day, with its zone; for what is stored or shown."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def monotonic_s(self) -> float:
        """Return the machine's monotonic clock, in seconds."""
        return time.monotonic()

    def utc(self) -> datetime:
        """Return the machine's time of day."""
        return datetime.now(UTC)
