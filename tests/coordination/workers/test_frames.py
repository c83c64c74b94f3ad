"""Frames between processes: whole, in order, and bounded on both sides."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from forebay.coordination.workers import frames
from forebay.coordination.workers.frames import FrameConnection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LIMIT_S = 30.0


class End:
    """One end of a connection, and what came to it."""

    def __init__(self) -> None:
        self.came: list[bytes] = []
        self.news = asyncio.Event()
        self.lost = asyncio.Event()
        self.connection = FrameConnection(self._take, lambda _: self.lost.set())

    def _take(self, _: FrameConnection, frame: bytes) -> None:
        self.came.append(frame)
        self.news.set()

    async def has(self, count: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while len(self.came) < count:
                self.news.clear()
                await self.news.wait()


@pytest.fixture
async def ends() -> AsyncIterator[tuple[End, End]]:
    loop = asyncio.get_running_loop()
    one, two = End(), End()
    for end, sock in zip((one, two), socket.socketpair(), strict=True):
        sock.setblocking(False)
        await loop.create_unix_connection(lambda end=end: end.connection, sock=sock)  # type: ignore[misc]
    yield one, two
    one.connection.abort()
    two.connection.abort()
    await asyncio.gather(one.lost.wait(), two.lost.wait())


async def test_frames_come_whole_and_in_order(ends: tuple[End, End]) -> None:
    one, two = ends
    sent = [b"", b"a", b"b" * 300_000, b"c"]
    for frame in sent:
        one.connection.send(frame)
    await two.has(4)
    assert two.came == sent


async def test_a_frame_that_is_too_large_ends_the_connection(
    ends: tuple[End, End], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "FRAME_BYTES_MAX", 10)
    one, two = ends
    one.connection.send(b"x" * 10)
    one.connection.send(b"x" * 11)
    one.connection.send(b"late")
    await asyncio.wait_for(one.lost.wait(), LIMIT_S)
    assert two.came == [b"x" * 10]


async def test_a_peer_that_does_not_read_is_cut_off_and_holds_nobody_up(
    ends: tuple[End, End], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "UNSENT_BYTES_MAX", 1_000_000)
    one, two = ends
    assert two.connection._transport is not None
    two.connection._transport.pause_reading()
    for _ in range(100):  # never waits
        one.connection.send(b"x" * 100_000)
    assert not one.connection.is_open
    await asyncio.wait_for(one.lost.wait(), LIMIT_S)
