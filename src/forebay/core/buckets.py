"""Token buckets that hold one minute, refilled continuously: what a key may start."""

from __future__ import annotations

from typing import Final

MINUTE_S: Final = 60.0
ROUNDING: Final = 1e-9
"""The part of a bucket that may be missing: a wake-up at the computed moment must find enough."""


class Bucket:
    """What may be started in a minute; a capacity of 0 is no limit."""

    def __init__(self, capacity: int, now_s: float) -> None:
        self.capacity = float(capacity)
        self._level = self.capacity  # at that time; below 0 is a debt, of at most one bucket
        self._at_s = now_s

    def level(self, now_s: float) -> float:
        level = self._level + (now_s - self._at_s) * self.capacity / MINUTE_S
        return level if level < self.capacity else self.capacity

    def take(self, amount: float, now_s: float) -> float:
        """Take something out, or put it back (below 0); return how much that was."""
        before = self.level(now_s)
        self._set(before - amount, now_s)
        return before - self._level

    def empty(self, now_s: float) -> None:
        self._set(min(0.0, self.level(now_s)), now_s)

    def resize(self, capacity: int, now_s: float) -> None:
        """Change the limit; what was used of the last minute stays used, where there was one."""
        level = self.level(now_s) + max(0.0, capacity - self.capacity)
        self.capacity = float(capacity)
        self._set(level, now_s)

    def wait_s(self, amount: float, ahead: float, now_s: float) -> float:
        """Return when it has that much, or is full, after `ahead` has been taken out."""
        if not self.capacity:
            return 0.0
        missing = ahead + min(amount, self.capacity) - self.level(now_s)
        if missing <= ROUNDING * self.capacity:
            return 0.0
        return missing * MINUTE_S / self.capacity

    def reset_s(self, now_s: float) -> float:
        """Return when it is full again if nothing more starts."""
        if not self.capacity:
            return 0.0
        return (self.capacity - self.level(now_s)) * MINUTE_S / self.capacity

    def _set(self, level: float, now_s: float) -> None:
        self._level, self._at_s = max(-self.capacity, min(level, self.capacity)), now_s
