"""A raw connection of a client: it sends what it is given, and leaves in every way there is."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from typing import Self

AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing sends a reset."""


class Wire(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = bytearray()
        self.ended = False
        """Nothing more will come."""
        self._news: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def connect(cls, port: int) -> Self:
        loop = asyncio.get_running_loop()
        _, wire = await loop.create_connection(cls, "127.0.0.1", port)
        return wire

    # -- what a client does

    def send(self, data: bytes) -> None:
        """Send, unless the other side has gone: then nobody would read it."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    async def more(self) -> None:
        """Wait until something comes, or nothing can."""
        if not self.ended:
            self._news = asyncio.get_running_loop().create_future()
            await self._news

    def stop_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def read_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def reset(self) -> None:
        """End it by a reset."""
        if self._transport is not None and not self._transport.is_closing():
            sock = cast("socket.socket", self._transport.get_extra_info("socket"))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            self._transport.abort()
        self._end()

    def half_close(self) -> None:
        """Say that nothing more will be sent."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write_eof()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._end()

    # -- from the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._tell()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._end()

    def _end(self) -> None:
        self.ended = True
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)
