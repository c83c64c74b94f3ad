"""The clock by which rows grow old: no faster than 24 h for each hour that a program has run.

A clock that leaps ahead by weeks would have weeks of records deleted at once. So the time by which
they were deleted last is kept in the database, and follows the clock slowly, in either direction,
as NTP slews a clock instead of stepping it. A clock that was wrong for a while does not hold
deletion up for long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import Column, Float, MetaData, Table, Text, insert, select, update
from sqlalchemy.schema import CreateTable

if TYPE_CHECKING:
    from sqlalchemy import Connection

RATE: Final = 24.0
NEVER_SET_S: Final = 1_577_836_800.0
"""2020: an earlier time came from a clock that had not been set since the machine started."""


clocks = Table(
    "slewed_clocks",  # of any schema's rows; made where it is first used
    MetaData(),
    Column("of", Text, primary_key=True),
    Column("at", Float, nullable=False),  # since 1970
)


class SlewedClock:
    """The clock of one kind of rows, as one program moves it.

    Several programs that share a database move it from where each of them left it last, so that
    together they are no faster than one.
    """

    def __init__(self, of: str) -> None:
        self._of = of
        self._last: tuple[float, float] | None = None  # what it showed, and the monotonic time

    def move(self, connection: Connection, now: float, monotonic_s: float) -> float:
        """Move it towards `now`, and return the time by which to delete: never later than `now`.

        The monotonic time only passes while the program runs. To move it again for the same times
        changes nothing.
        """
        here = clocks.c.of == self._of
        connection.execute(CreateTable(clocks, if_not_exists=True))  # the first may be rolled back
        if self._last is None:
            kept = connection.execute(select(clocks.c.at).where(here)).scalar()
            self._last = kept or 0.0, monotonic_s
        last, then_s = self._last
        last = now if last < NEVER_SET_S else last
        most = RATE * (monotonic_s - then_s)
        shown = last + max(-most, min(most, now - last))
        self._last = shown, monotonic_s
        if not connection.execute(update(clocks).where(here).values(at=shown)).rowcount:
            connection.execute(insert(clocks).values(of=self._of, at=shown))
        return min(shown, now)
