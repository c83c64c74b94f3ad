"""The piece of network that fails on command does so, and comes back."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from harness.fleet.link import Link

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LIMIT_S = 10.0
MOMENT_S = 0.2  # long enough to see that nothing comes


@asynccontextmanager
async def linked() -> AsyncIterator[Link]:
    """A link to a server that sends back whatever comes."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1024):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    link = await Link.to(server.sockets[0].getsockname()[1])
    try:
        yield link
    finally:
        await link.stop()
        server.close()


class Line:
    """One connection through the link."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def through(cls, link: Link) -> Line:
        return cls(*await asyncio.open_connection("127.0.0.1", link.port))

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def comes(self, data: bytes) -> bool:
        async with asyncio.timeout(LIMIT_S):
            return await self._reader.readexactly(len(data)) == data

    async def ended(self) -> bool:
        async with asyncio.timeout(LIMIT_S):
            try:
                return await self._reader.read(1) == b""
            except ConnectionResetError:
                return True

    async def silent(self) -> bool:
        try:
            async with asyncio.timeout(MOMENT_S):
                await self._reader.read(1)
        except TimeoutError:
            return True
        return False

    def close(self) -> None:
        self._writer.close()


async def test_it_carries_both_ways_and_counts() -> None:
    async with linked() as link:
        line = await Line.through(link)
        await line.send(b"hello")
        assert await line.comes(b"hello")
        assert link.carried == 10
        line.close()


async def test_cut_nothing_comes_and_nobody_is_told_and_healed_it_all_arrives() -> None:
    async with linked() as link:
        line = await Line.through(link)
        await line.send(b"a")
        assert await line.comes(b"a")
        link.cut()
        await line.send(b"b")
        new = await Line.through(link)
        await new.send(b"c")
        assert await line.silent()
        assert await new.silent()
        await link.heal()
        assert await line.comes(b"b")
        assert await new.comes(b"c")
        line.close()
        new.close()


async def test_refusing_it_hangs_up_and_nobody_listens_until_it_is_healed() -> None:
    async with linked() as link:
        line = await Line.through(link)
        await line.send(b"a")
        assert await line.comes(b"a")
        await link.refuse()
        assert await line.ended()
        with pytest.raises(ConnectionRefusedError):
            await Line.through(link)
        await link.heal()
        again = await Line.through(link)
        await again.send(b"b")
        assert await again.comes(b"b")
        line.close()
        again.close()


async def test_slow_it_takes_its_time_and_keeps_the_order() -> None:
    async with linked() as link:
        line = await Line.through(link)
        pauses: list[float] = []
        over = asyncio.Event()

        async def pause(time_s: float) -> None:
            pauses.append(time_s)
            await over.wait()

        link.delay_s, link.pause = 3.0, pause
        for byte in b"abcdef":
            await line.send(bytes([byte]))
        assert await line.silent()
        assert (pauses, link.carried) == ([3.0], 0)
        over.set()
        assert await line.comes(b"abcdef")
        assert len(pauses) >= 2  # there and back
        line.close()


async def test_a_target_that_is_gone_ends_the_connection() -> None:
    async with linked() as link:
        link.target_port = 1
        line = await Line.through(link)
        assert await line.ended()
        line.close()
