"""Work that waits for the end of its transaction, where it is done in order.

Many pieces of work share a transaction, and several programs share a PostgreSQL. What each piece
adds to the same few rows (how many lines of a batch have ended) is gathered here and written last:
once for each row instead of once for each piece, with the rows locked for the shortest time, and
by everybody in the same order, so that no two programs wait for each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

Key = tuple[str, int]
Last = TypeVar("Last", bound="Callable[[Connection], object]")

_NAME = "forebay_postponed"


def postponed(connection: Connection, key: Key, make: Callable[[], Last]) -> Last:
    """Return what is done at the end of this transaction under a key; made by the first to ask."""
    found: Last = connection.info.setdefault(_NAME, {}).setdefault(key, make())
    return found


def settle(connection: Connection) -> None:
    """Do what was postponed, in the order of the keys."""
    for _, last in sorted(connection.info.pop(_NAME, {}).items(), key=lambda item: item[0]):
        last(connection)


def forget(connection: Connection) -> None:
    """Do none of it: the transaction has failed."""
    connection.info.pop(_NAME, None)
