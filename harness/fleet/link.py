"""A piece of network that fails on command: a TCP proxy between two programs.

Put between a gateway and the store it is a partition, a slow network or a dead host, for that
gateway alone.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Literal

from harness.fleet.ports import free_port

Mode = Literal[
    "open",
    "cut",  # bytes and hang-ups go nowhere, and arrive when it is healed: a partition
    "refused",  # nobody listens there, and what was open is reset: a host without the program
]
HOST = "127.0.0.1"
READ_BYTES = 65_536


class Link:
    """One address that leads to another, for as long as it is let."""

    def __init__(self, port: int, target_port: int) -> None:
        """`port` is where it listens, `target_port` where it leads, both on loopback."""
        self.port = port
        self.target_port = target_port
        self.delay_s = 0.0
        """How long each byte takes on its way, in either direction, at most twice as long."""
        self.pause: Callable[[float], Awaitable[None]] = asyncio.sleep
        self.mode: Mode = "open"
        self.carried = 0
        """Bytes that came through, both directions together."""
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def to(cls, target_port: int) -> "Link":
        """Return a started link to a port."""
        link = cls(free_port(), target_port)
        await link.start()
        return link

    async def start(self) -> None:
        """Listen; nothing if it does already."""
        if self._server is None:
            self._server = await asyncio.start_server(self._accepted, HOST, self.port)

    async def stop(self) -> None:
        """Stop listening and hang up on both sides; may be called twice."""
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def cut(self) -> None:
        """Let nothing through, and tell nobody."""
        self.mode = "cut"
        self._flowing.clear()

    async def refuse(self) -> None:
        """Reset what is open and refuse what comes."""
        self.mode = "refused"
        await self.stop()

    async def heal(self) -> None:
        """Let everything through again; what was held back arrives now."""
        self.mode = "open"
        self.delay_s = 0.0
        await self.start()
        self._flowing.set()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            # The streams of Python 3.11 complain of a connection whose task was cancelled.
            with contextlib.suppress(asyncio.CancelledError):
                await self._carry(reader, writer)
        finally:
            self._tasks.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward: asyncio.StreamWriter | None = None
        try:
            await self._flowing.wait()
            there, onward = await asyncio.open_connection(HOST, self.target_port)
            # Whoever hangs up first ends both, as neither side here uses half-closed connections.
            await first_of(self._pump(reader, onward), self._pump(there, writer))
        except OSError:
            pass  # the other side is gone, or was never there: hang up, as below
        finally:
            for end in (writer, onward):
                if end is not None:
                    end.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(READ_BYTES):
                if self.delay_s:
                    await self.pause(self.delay_s)
                await self._flowing.wait()
                self.carried += len(data)
                sink.write(data)
                await sink.drain()
        await self._flowing.wait()


async def first_of(*ways: Awaitable[None]) -> None:
    """Wait until one of them has ended, and end the others."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
