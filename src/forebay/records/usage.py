"""Usage by the hour: counts per key, user and model, gathered in memory between two writes.

Pure: whoever counts passes the hour. Everything is bounded: beyond USERS_MAX users in an hour
the rest is summed up under `other`, and beyond ROWS_MAX rows (a database that is away for long) so
are users and models; what has no row even then is lost, and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

HOUR_S: Final = 3600
USERS_MAX: Final = 1000
ROWS_MAX: Final = 20_000
OTHER: Final = "other"
NAME_LENGTH_MAX: Final = 512
ANSWER_MAX: Final = 50_000
"""Rows in one answer."""


class UsageKey(NamedTuple):
    """Whose usage, of what, when."""

    hour: int
    """Since 1970."""
    key: str
    """The name of a key; "" without keys."""
    user: str
    model: str
    """The one that ran; "" where none did."""


class UsageCounts(NamedTuple):
    """How much of it."""

    requests: int
    prompt_tokens: int
    output_tokens: int


UsageRow: TypeAlias = tuple[UsageKey, UsageCounts]


class UsageQuery(NamedTuple):
    """Which usage is asked for."""

    first: int
    """The first hour, since 1970; `last` is the last."""
    last: int
    by: tuple[str, ...] = ("key", "user", "model")
    """What is counted one by one; the rest is summed up."""
    key: str | None = None
    """Of this key only."""
    limit: int = ANSWER_MAX


class UsageBook:
    """What has been counted since it was last taken."""

    def __init__(self) -> None:
        self._rows: dict[UsageKey, UsageCounts] = {}
        self._users: set[str] = set()
        self._hour = 0
        self.lost = 0
        """Requests that found no room."""

    def __bool__(self) -> bool:
        return bool(self._rows)

    def add(self, key: UsageKey, counts: UsageCounts) -> None:
        if key.hour != self._hour:
            self._hour = key.hour
            self._users.clear()
        if key.user not in self._users:
            if len(self._users) >= USERS_MAX:
                key = key._replace(user=OTHER)
            else:
                self._users.add(key.user)
        self._sum(key, counts)

    def take(self) -> list[UsageRow]:
        """Return all that was counted, each key once, and begin anew."""
        rows, self._rows = self._rows, {}
        return list(rows.items())

    def put_back(self, rows: Sequence[UsageRow]) -> None:
        """Add what could not be written, or what another process has counted: as it was taken."""
        if len(rows) > len(self._rows):  # the shorter is added to the longer
            longer, rows = dict(rows), list(self._rows.items())
            self._rows = longer
        for key, counts in rows:
            self._sum(key, counts)

    def _sum(self, key: UsageKey, counts: UsageCounts) -> None:
        known = self._rows.get(key)
        if known is None and len(self._rows) >= ROWS_MAX:
            key = key._replace(user=OTHER, model=OTHER)
            known = self._rows.get(key)
            if known is None and len(self._rows) >= 2 * ROWS_MAX:
                self.lost += counts.requests
                return
        self._rows[key] = counts if known is None else added(known, counts)


def added(one: UsageCounts, other: UsageCounts) -> UsageCounts:
    """Return the sums."""
    return UsageCounts(one[0] + other[0], one[1] + other[1], one[2] + other[2])


def storable(name: str) -> str:
    """Return a name as every database takes it: PostgreSQL's texts cannot hold a NUL.

    >>> storable("a\\x00b"), storable("\\ud800")
    ('ab', '?')
    """
    return name[:NAME_LENGTH_MAX].replace("\x00", "").encode("utf-8", "replace").decode()
