"""A clock that moves only when told to, with timers that fire on the way.

>>> clock = FakeClock()
>>> fired = []
>>> handle = clock.call_at(5.0, lambda: fired.append(clock.monotonic_s()))
>>> clock.advance(10.0)
>>> fired, clock.monotonic_s()
([5.0], 10.0)
"""

import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count


class FakeTimer:
    """What `FakeClock.call_at` returns; `cancel()` may be called more than once."""

    __slots__ = ("at_s", "callback")

    def __init__(self, at_s: float, callback: Callable[[], object]) -> None:
        self.at_s = at_s
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeClock:
    """A `Clock` and a timer source in one; virtual seconds, no threads, no sleeping."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s
        self._epoch = datetime(2030, 1, 1, tzinfo=UTC)
        self._order = count()
        self._timers: list[tuple[float, int, FakeTimer]] = []

    def monotonic_s(self) -> float:
        """Return the virtual time, in seconds."""
        return self._now_s

    def utc(self) -> datetime:
        """Return a date: 1 January 2030 and the virtual time since."""
        return self._epoch + timedelta(seconds=self._now_s)

    def call_at(self, at_s: float, callback: Callable[[], object]) -> FakeTimer:
        """Call back at that virtual time, unless the timer is cancelled before."""
        timer = FakeTimer(at_s, callback)
        heapq.heappush(self._timers, (at_s, next(self._order), timer))
        return timer

    def next_timer_s(self) -> float | None:
        """Return when the next timer is due; None when there is none."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def run_next(self) -> bool:
        """Move to the next timer and fire it; False when there is none."""
        due_s = self.next_timer_s()
        if due_s is None:
            return False
        _, _, timer = heapq.heappop(self._timers)
        self._now_s = max(self._now_s, due_s)
        callback, timer.callback = timer.callback, None
        if callback is not None:
            callback()
        return True

    def advance(self, seconds: float) -> None:
        """Move on, firing each timer at its own time, in order."""
        end_s = self._now_s + seconds
        while (due_s := self.next_timer_s()) is not None and due_s <= end_s:
            self.run_next()
        self._now_s = end_s
