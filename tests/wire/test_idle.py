"""Idle connections: one that its server has closed is passed over before anything is sent on it."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from forebay.wire.pool import ConnectionPool, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from forebay.wire.client import NodeConnection

LOOPS = pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop])


async def idle(listener: socket.socket, count: int) -> tuple[ConnectionPool, list[NodeConnection]]:
    """Return a pool with that many connections that are kept; the last of them is the warmest."""
    pool = ConnectionPool(Target("127.0.0.1", listener.getsockname()[1], None, 5.0))
    connections = [await pool.connect() for _ in range(count)]
    for connection in connections:
        pool.keep(connection)
    return pool, connections


async def turns() -> None:
    """Let the loop turn, so that it hears of what is there."""
    for _ in range(5):
        await asyncio.sleep(0)


def run_before_a_server(
    loop: type[asyncio.AbstractEventLoop],
    look: Callable[[socket.socket], Coroutine[Any, Any, None]],
) -> None:
    """Run a test on that kind of loop, with a socket to connect to."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        asyncio.Runner(loop_factory=loop) as runner,
    ):
        runner.run(look(listener))


@LOOPS
@pytest.mark.parametrize("says_something", [False, True])
def test_one_that_the_loop_has_not_heard_of_yet_is_passed_over(
    loop: type[asyncio.AbstractEventLoop], says_something: bool
) -> None:
    async def look(listener: socket.socket) -> None:
        pool, (kept, ended) = await idle(listener, 2)
        with listener.accept()[0], listener.accept()[0] as peer:
            if says_something:
                peer.sendall(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
            peer.close()
            assert pool.take() is kept, "and not the warmest"
            assert pool.take() is None
            await turns()
            assert not ended.is_open
            kept.abort()
            await turns()

    run_before_a_server(loop, look)


@LOOPS
def test_one_that_is_heard_to_be_closed_is_gone_at_once(
    loop: type[asyncio.AbstractEventLoop],
) -> None:
    async def look(listener: socket.socket) -> None:
        pool, (connection,) = await idle(listener, 1)
        connection.eof_received()  # as the loop says it, a turn before `connection_lost`
        assert pool.take() is None
        connection.abort()
        await turns()

    run_before_a_server(loop, look)


@LOOPS
def test_one_is_looked_at_however_often_its_server_has_kept_it(
    loop: type[asyncio.AbstractEventLoop],
) -> None:
    async def look(listener: socket.socket) -> None:
        pool, (connection,) = await idle(listener, 1)
        with listener.accept()[0] as peer:
            for _ in range(100):
                assert pool.take() is connection
                pool.keep(connection)
            peer.close()
            assert pool.take() is None
            await turns()
            assert not connection.is_open

    run_before_a_server(loop, look)
