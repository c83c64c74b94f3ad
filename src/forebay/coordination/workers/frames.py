"""Frames on local stream sockets: a length, then that many bytes.

Nothing here waits for a peer: what it does not read is buffered up to a bound, and then the
connection is closed, which the peer notices. What that loses, the protocol above makes good.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

FRAME_BYTES_MAX: Final = 64 * 2**20
"""A thousand messages, each as large as the largest request head allows."""
UNSENT_BYTES_MAX: Final = 2 * FRAME_BYTES_MAX
"""What is buffered for a peer that does not read."""
LENGTH_BYTES: Final = 4


class FrameConnection(asyncio.Protocol):
    """One end of a connection."""

    def __init__(
        self,
        on_frame: Callable[[FrameConnection, bytes], None],
        on_lost: Callable[[FrameConnection], None],
    ) -> None:
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self.peer = ""
        """Who is at the other end, once that is known."""

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, payload: bytes) -> None:
        """Send a frame; nothing happens where the peer is gone, or does not read."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            transport.abort()
            return
        transport.write(len(payload).to_bytes(LENGTH_BYTES, "big") + payload)

    def close(self) -> None:
        """Close it once what was sent is written; may be called twice."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close it at once; nothing more is received. May be called twice."""
        self._on_frame = _ignore
        if self._transport is not None:
            self._transport.abort()

    # -- from the event loop

    def connection_made(
        self,
        transport: asyncio.Transport,  # type: ignore[override] # sockets have no other kind
    ) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        start = 0
        while len(received) - start >= LENGTH_BYTES:
            length = int.from_bytes(received[start : start + LENGTH_BYTES], "big")
            if length > FRAME_BYTES_MAX:
                self.abort()
                return
            end = start + LENGTH_BYTES + length
            if len(received) < end:
                break
            self._on_frame(self, bytes(received[start + LENGTH_BYTES : end]))
            start = end
        del received[:start]

    def connection_lost(self, error: Exception | None) -> None:
        self._on_lost(self)


def _ignore(_: FrameConnection, __: bytes) -> None:
    """It was closed: what still comes is nobody's."""
