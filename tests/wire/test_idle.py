"""Idle connections: one that its server has closed is passed over before anything is sent on it."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from forebay.wire.client import CHECKS, Pool
from forebay.wire.target import Target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from forebay.wire.client import NodeConnection

LOOPS = pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop])


async def idle(listener: socket.socket, count: int) -> tuple[Pool, list[NodeConnection]]:
    """Return a pool with that many connections that are kept; the last of them is the warmest."""
    pool = Pool(Target("127.0.0.1", listener.getsockname()[1], None, 5.0))
    connections = [await pool.connect() for _ in range(count)]
    for connection in connections:
        pool.rest(connection)
    await turns()
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
def test_a_server_that_keeps_its_connections_is_soon_believed(
    loop: type[asyncio.AbstractEventLoop],
) -> None:
    """A look is a system call: not for each request to a server that has never closed one."""

    async def used(pool: Pool, times: int) -> AsyncIterator[NodeConnection | None]:
        for _ in range(times):
            connection = pool.take()
            yield connection
            if connection is not None:
                pool.rest(connection)
                await turns()

    async def look(listener: socket.socket) -> None:
        pool, (connection,) = await idle(listener, 1)
        peer = listener.accept()[0]
        async for taken in used(pool, CHECKS):
            assert taken is connection
        peer.close()
        assert pool.take() is connection, "it was used this moment, and is believed"
        pool.distrust_idle()  # as where it ends without an answer
        pool.rest(connection)
        await turns()
        assert pool.take() is None

    run_before_a_server(loop, look)


@LOOPS
def test_one_that_has_been_idle_for_a_while_is_looked_at(
    loop: type[asyncio.AbstractEventLoop],
) -> None:
    async def look(listener: socket.socket) -> None:
        pool, (connection,) = await idle(listener, 1)
        pool._checks = 0  # as of a server that has kept its connections
        with listener.accept()[0] as peer:
            pool._grow_old()  # as its timer does
            peer.close()
            assert pool.take() is None
            connection.abort()
            await turns()

    run_before_a_server(loop, look)
