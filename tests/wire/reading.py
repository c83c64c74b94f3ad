"""What a socket brings, handed over as the event loop does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.wire.io_batch import BatchedConnection


def receive(connection: BatchedConnection, data: bytes) -> None:
    """Hand over what was read, and have it taken: nobody else has read anything in this turn."""
    connection.data_received(data)
    if connection.unread:
        connection.read_now()
