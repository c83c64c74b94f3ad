"""Clocks as arguments; the only module of the server that reads a real clock."""

import asyncio
import time
from collections.abc import Callable
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


class TimerHandle(Protocol):
    """What a timer source returns, as `asyncio.TimerHandle` is one."""

    def cancel(self) -> None:
        """Make sure that the callback does not run any more."""
        ...


class Timers(Clock, Protocol):
    """A clock that also calls back; what everything with a time limit takes."""

    def call_at(self, at_s: float, callback: Callable[[], None]) -> TimerHandle:
        """Call back at a time of this clock's `monotonic_s`."""
        ...


class LoopClock:
    """The event loop's own clock and timers, as they are."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.monotonic_s = loop.time  # as they are: a wrapper would cost as much again
        self.call_at: Callable[[float, Callable[[], None]], TimerHandle] = loop.call_at

    def utc(self) -> datetime:
        """Return the machine's time of day."""
        return datetime.now(UTC)
