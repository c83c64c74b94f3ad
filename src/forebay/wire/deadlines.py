"""Many deadlines of one length at the price of a dict and one timer.

Everything that shares one limit falls due in the order in which it was added, so an ordered dict
is a priority queue: adding, moving and removing are O(1) (about 0.1 µs; `loop.call_at` and its
cancellation cost ten times that and leave a dead heap entry behind). The one timer is set for the
eldest when it is armed and not moved when members leave: it fires early, finds nobody due and is
set again, at most once per limit while anything is in.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from forebay.clock import TimerHandle, Timers

T = TypeVar("T")


class Deadlines(Generic[T]):
    """Calls `expired` with every member that stays in for `limit_s`; 0 or less means never.

    >>> from forebay.testing import FakeClock
    >>> clock, late = FakeClock(), []
    >>> deadlines = Deadlines(10.0, late.append, clock)
    >>> deadlines.add("a"); clock.advance(5.0); deadlines.add("b"); deadlines.discard("a")
    >>> clock.advance(9.0), late
    (None, [])
    >>> clock.advance(1.0), late
    (None, ['b'])
    """

    __slots__ = ("_clock", "_expired", "_now_s", "_since_s", "_timer", "limit_s")

    def __init__(self, limit_s: float, expired: Callable[[T], None], clock: Timers) -> None:
        self.limit_s = limit_s
        self._expired = expired
        self._clock = clock
        self._now_s = clock.monotonic_s
        self._since_s: dict[T, float] = {}  # in order
        self._timer: TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since_s)

    def add(self, member: T, now_s: float = -1.0) -> None:
        """Start the member's time, or start it anew; `now_s` for those who know what time it is."""
        if now_s < 0.0:
            now_s = self._now_s()
        since = self._since_s
        if member in since:
            del since[member]
        since[member] = now_s
        if self._timer is None and self.limit_s > 0.0:
            self._timer = self._clock.call_at(now_s + self.limit_s, self._fire)

    def discard(self, member: T) -> None:
        """Stop the member's time; nothing happens if it is not in."""
        self._since_s.pop(member, None)

    def eldest(self) -> T | None:
        """Return the member that has been in the longest."""
        return next(iter(self._since_s), None)

    def change(self, limit_s: float) -> None:
        """Use another limit, for those already in too; their time goes on from where it is."""
        if limit_s != self.limit_s:
            self.limit_s = limit_s
            self._arm()

    def clear(self) -> None:
        """Forget everyone and stop the timer."""
        self._since_s.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        now_s, limit_s = self._now_s(), self.limit_s
        try:  # reckoned as `_arm` does, or rounding would have it fire and find nobody, for ever
            while (member := self.eldest()) is not None and self._is_due(member, now_s, limit_s):
                del self._since_s[member]
                self._expired(member)  # may add it anew: what is armed then is not the eldest's
        finally:
            self._arm()

    def _is_due(self, member: T, now_s: float, limit_s: float) -> bool:
        return self._since_s[member] + limit_s <= now_s

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        first = self.eldest()
        if first is not None and self.limit_s > 0.0:
            self._timer = self._clock.call_at(self._since_s[first] + self.limit_s, self._fire)
