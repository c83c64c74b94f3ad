"""Streams that have gone silent: one timer for all, and nothing to do for a chunk but take note.

A chunk only writes the time into its attempt (`heard_s`). The timer is set for when the first of
them would be late if no more came; by then most have been heard of again, and it is set anew. So
it looks at all of them once per limit, and at most `LOOKS` times where they fall silent one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.clock import TimerHandle, Timers
    from forebay.relay.attempt import Attempt

LOOKS: Final = 64


class StreamGaps:
    """Calls `late` with every attempt in it of which nothing is heard for `limit_s`."""

    __slots__ = ("_attempts", "_clock", "_late", "_limit_s", "_now_s", "_timer")

    def __init__(self, limit_s: float, late: Callable[[Attempt], None], clock: Timers) -> None:
        self._limit_s = limit_s
        self._late = late
        self._clock = clock
        self._now_s = clock.monotonic_s
        self._attempts: dict[Attempt, None] = {}
        self._timer: TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._attempts)

    def add(self, attempt: Attempt) -> None:
        """Watch it from now on, or anew."""
        attempt.heard_s = now_s = self._now_s()
        self._attempts[attempt] = None
        if self._timer is None and self._limit_s > 0.0:
            self._timer = self._clock.call_at(now_s + self._limit_s, self._look)

    def discard(self, attempt: Attempt) -> None:
        self._attempts.pop(attempt, None)

    def change(self, limit_s: float) -> None:
        """Use another limit, for those already in too."""
        if limit_s != self._limit_s:
            self._limit_s = limit_s
            self._arm(0.0)

    def clear(self) -> None:
        """Forget all and stop the timer."""
        self._attempts.clear()
        self._arm(0.0)

    def _look(self) -> None:
        now_s, limit_s = self._now_s(), self._limit_s
        silent = [one for one in self._attempts if one.heard_s + limit_s <= now_s]
        try:
            for attempt in silent:
                if attempt in self._attempts:  # the end of another may have ended it
                    del self._attempts[attempt]
                    self._late(attempt)
        finally:
            self._arm(now_s + limit_s / LOOKS)

    def _arm(self, earliest_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._attempts and self._limit_s > 0.0:
            first_s = min([one.heard_s for one in self._attempts])
            self._timer = self._clock.call_at(max(first_s + self._limit_s, earliest_s), self._look)
