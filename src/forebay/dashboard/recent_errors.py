"""How requests have failed lately, by error code: in the last minute, in the last 15, and when.

Fed once a second with totals by code; keeps sums over two windows, so that reading them costs the
number of codes, which is ours and small.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from msgspec import Struct

from forebay.api.events import RecentError, Words
from forebay.dashboard.history import MINUTE, SAMPLES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


SHOWN_MAX: Final = 16


class Remedy(Struct, frozen=True):
    """What to do about an error code."""

    kind: str
    """`rejection`, `error` or `caller`: who has to do something about it."""
    words: Words


class RecentErrors:
    """The failures of the last 15 minutes."""

    def __init__(self, remedy_of: Callable[[str], Remedy]) -> None:
        self._remedy_of = remedy_of
        self._totals: Mapping[str, int] = {}
        self._minute: _Window[str] = _Window(MINUTE)
        self._quarter: _Window[str] = _Window(SAMPLES_MAX)
        self._last_s: dict[str, float] = {}

    def begin(self, totals: Mapping[str, int]) -> None:
        """Take what had been counted before the first second."""
        self._totals = totals

    def add(self, totals: Mapping[str, int], now_s: float) -> None:
        """Add one second; `totals` are since the start."""
        before = self._totals
        new = {code: n for code, total in totals.items() if (n := total - before.get(code, 0))}
        self._totals = totals
        self._minute.add(new)
        self._quarter.add(new)
        for code in new:
            self._last_s[code] = now_s

    def rejected(self) -> int:
        """Return how many the queue has rejected since the start."""
        return sum(total for code, total in self._totals.items() if self._kind(code) == "rejection")

    def last_minute(self, kind: str) -> dict[str, int]:
        """Return the counts of one kind in the last minute, the most common first."""
        found = self._minute.sums.most_common()
        return {code: count for code, count in found if self._kind(code) == kind}

    def remedy(self, code: str) -> Words:
        return self._remedy_of(code).words

    def shown(self, now_s: float) -> list[RecentError]:
        """Return the errors of the last 15 minutes, the most recent first."""
        recent = sorted(self._quarter.sums, key=lambda code: (-self._last_s[code], code))
        return [
            RecentError(
                code=code,
                kind=self._kind(code),
                last_minute=self._minute.sums[code],
                last_15_minutes=self._quarter.sums[code],
                total=self._totals[code],
                seconds_ago=round(now_s - self._last_s[code], 1),
                remedy=self._remedy_of(code).words,
            )
            for code in recent[:SHOWN_MAX]
        ]

    def _kind(self, code: str) -> str:
        return self._remedy_of(code).kind


class RecentFailures:
    """The failures of nodes in the last 15 minutes, by node and kind."""

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str], int] = {}
        self._quarter: _Window[tuple[str, str]] = _Window(SAMPLES_MAX)

    def add(self, totals: dict[tuple[str, str], int]) -> None:
        """Add one second; `totals` are since a node was added, by name and kind."""
        before, self._totals = self._totals, totals
        self._quarter.add(
            {key: n for key, total in totals.items() if (n := total - before.get(key, 0)) > 0}
        )

    def by_node(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for (node, kind), count in self._quarter.sums.items():
            found.setdefault(node, {})[kind] = count
        return found


Key = TypeVar("Key", bound=Hashable)


class _Window(Generic[Key]):
    """Sums over a sliding window of seconds."""

    def __init__(self, seconds: int) -> None:
        self._seconds: deque[dict[Key, int]] = deque()
        self._max = seconds
        self.sums: Counter[Key] = Counter()

    def add(self, new: dict[Key, int]) -> None:
        self._seconds.append(new)
        self.sums.update(new)
        if len(self._seconds) > self._max:
            for code, count in self._seconds.popleft().items():
                self.sums[code] -= count
                if not self.sums[code]:
                    del self.sums[code]
