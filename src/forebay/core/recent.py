"""The last values of something that is measured, and their order."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from typing import Final

FEW: Final = 8
"""So many values are put in order one by one; of more, sorting all anew is quicker."""


class Recent:
    """The last values, in order of arrival and, on demand, in order of size.

    While nobody waits, nobody asks; then a value costs two appends. What has come and gone since
    the last question is put in order one by one, or all anew when it is much.
    """

    __slots__ = ("_arrived", "_came", "_changes", "_most", "_ordered", "_went", "count", "total")

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = 0
        self.total = 0.0
        self._arrived: deque[float] = deque()
        self._ordered: list[float] = []
        self._changes = 0  # since the order was last asked for
        self._came: list[float] = []  # in the first few of them
        self._went: list[float] = []

    def add(self, value: float) -> None:
        """Take one value; the oldest of more than `most` leaves."""
        arrived, is_noted = self._arrived, self._changes < FEW
        self._changes += 1
        if self.count == self._most:
            oldest = arrived.popleft()
            self.total -= oldest
            if is_noted:
                self._went.append(oldest)
        else:
            self.count += 1
        arrived.append(value)
        self.total += value
        if is_noted:
            self._came.append(value)

    def ordered(self) -> list[float]:
        """Return the values in order of size."""
        ordered = self._ordered
        if not self._changes:
            return ordered
        if self._changes > FEW:
            self._ordered = ordered = sorted(self._arrived)
        else:
            for value in self._came:
                insort(ordered, value)
            for value in self._went:
                del ordered[bisect_right(ordered, value) - 1]
        self._changes, self._came, self._went = 0, [], []
        return ordered
