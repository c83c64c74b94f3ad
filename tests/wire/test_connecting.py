"""Why a server cannot be reached, in words that say nothing of where it is."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest
import uvloop

from forebay.errors import BackendFailed
from forebay.wire.client import NodeConnection
from forebay.wire.pool import ConnectionPool, Target

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_refused_connection_is_told_without_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    async def connect() -> None:
        await ConnectionPool(Target("127.0.0.1", port, None, 5.0)).connect()

    # Python's own loop, whose errors carry the address; uvloop's do not.
    with (
        asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner,
        pytest.raises(BackendFailed) as caught,
    ):
        runner.run(connect())
    assert str(caught.value) == "cannot connect: Connection refused"


def test_a_connect_that_is_cancelled_at_any_moment_is_not_counted_as_open() -> None:
    """Also just after it succeeded, where uvloop tells the protocol nothing more."""

    def drop(result: NodeConnection | BackendFailed) -> None:
        assert isinstance(result, NodeConnection)
        result.abort()

    async def left_after(port: int, turns: int) -> int:
        pool = ConnectionPool(Target("127.0.0.1", port, None, 5.0))
        opening = pool.open(drop)
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        for _ in range(20):  # what was aborted is lost some turns later
            await asyncio.sleep(0)
        return pool.connections

    async def all_left(port: int) -> list[int]:
        return [await left_after(port, turns) for turns in range(12)]

    with (
        socket.create_server(("127.0.0.1", 0), backlog=100) as server,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        assert runner.run(all_left(server.getsockname()[1])) == [0] * 12


@pytest.mark.interpreted("a function cannot be replaced")
async def test_a_server_that_speaks_before_it_is_asked_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it said would be taken for the answer, and the real answer for that to the next."""
    made: list[NodeConnection] = []

    async def connect(make: Callable[[], NodeConnection], *where: object) -> NodeConnection:
        made.append(make())
        made[0].data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno")
        return made[0]

    monkeypatch.setattr("forebay.wire.pool.connect", connect)
    with pytest.raises(BackendFailed, match="spoke before it was asked"):
        await ConnectionPool(Target("127.0.0.1", 1)).connect()
    assert not made[0].unread
