"""Who may write to a ledger on PostgreSQL: advisory locks, let go of when their holder dies.

A gateway that works alone holds lock 7801 for itself. Gateways that share a queue hold it together,
and each the lock of its own name beside it. So a name has one holder, whoever is alone is sure of
being so, and a gateway of an older version, which knows only the first lock, is alone as well.

The locks belong to the one connection for writing: whoever has lost that cannot write any more, so
that two can never both go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from forebay.errors import NotAllowed

if TYPE_CHECKING:
    from sqlalchemy import Connection

NUMBER = 7801

_ALONE = text("SELECT pg_try_advisory_lock(:number)")
_TOGETHER = text("SELECT pg_try_advisory_lock_shared(:number)")
_NOT_TOGETHER = text("SELECT pg_advisory_unlock_shared(:number)")
_ALL = text("SELECT pg_advisory_unlock_all()")
_NAME = text("SELECT pg_try_advisory_lock(:number, :name)")


class LedgerLock:
    """The lock of one gateway; `replica` is its name among several, "" where it works alone."""

    def __init__(self, replica: str) -> None:
        self._replica = replica

    def take(self, connection: Connection) -> None:
        """Have PostgreSQL hold it for as long as this connection lives; raises NotAllowed."""
        if connection.dialect.name != "postgresql":
            return
        if self._replica:
            self._take_one_of_several(connection)
        elif not connection.execute(_ALONE, {"number": NUMBER}).scalar():
            raise NotAllowed(
                "another gateway holds the sessions of this database: give each gateway a "
                "`sessions.database` of its own, or let them share a queue (`coordination.url`)"
            )

    def let_go(self, connection: Connection) -> None:
        """Let another have it; the last thing that is done on a connection."""
        if connection.dialect.name == "postgresql":
            connection.execute(_ALL)

    def _take_one_of_several(self, connection: Connection) -> None:
        if not connection.execute(_TOGETHER, {"number": NUMBER}).scalar():
            raise NotAllowed(
                "a gateway that works alone holds the sessions of this database: give it a "
                "`sessions.database` of its own, or the `coordination.url` of the others"
            )
        name = {"number": NUMBER, "name": _as_int4(self._replica)}
        if not connection.execute(_NAME, name).scalar():
            connection.execute(_NOT_TOGETHER, {"number": NUMBER})  # it goes back to a pool
            raise NotAllowed(
                f"another gateway named {self._replica} holds its sessions in this database: give "
                "each gateway a `coordination.advertise` of its own"
            )


def _as_int4(name: str) -> int:
    """Return the number that eight hexadecimal digits are, as PostgreSQL has it: with a sign."""
    return int.from_bytes(bytes.fromhex(name), signed=True)
