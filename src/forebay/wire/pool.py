"""The connections to one server: those that are idle, and how new ones come about."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from typing import TYPE_CHECKING, NamedTuple

from forebay.errors import BackendFailed
from forebay.wire.client import NodeConnection
from forebay.wire.heads import HeadCache, make_answer_head
from forebay.wire.sockets import connect

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("forebay.wire")


class Target(NamedTuple):
    """Where a server is."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    connect_s: float = 5.0
    path: str = ""  # of a Unix socket, in place of host and port


def _in_words(error: OSError) -> str:
    """Say why, without the address: some loops put it into the text, and the page shows that."""
    if error.errno is not None and error.errno > 0 and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno)
    return error.strerror or str(error)


class PendingConnect:
    """A connection that is wanted; cancelling it leaves nothing behind."""

    __slots__ = ("_done", "_pool", "_task")

    def __init__(
        self, pool: ConnectionPool, done: Callable[[NodeConnection | BackendFailed], None]
    ) -> None:
        self._pool = pool
        self._done: Callable[[NodeConnection | BackendFailed], None] | None = done
        self._task = asyncio.get_running_loop().create_task(self._connect())

    def cancel(self) -> None:
        """Give up; `done` will not be called. May be called twice."""
        self._done = None
        self._pool.openings.discard(self)  # a task cancelled before it began runs no `finally`
        self._task.cancel()

    async def _connect(self) -> None:
        result: NodeConnection | BackendFailed
        try:
            result = await self._pool.connect()
        except BackendFailed as error:
            result = error
        finally:
            self._pool.openings.discard(self)
        done, self._done = self._done, None
        if done is not None:
            done(result)
        elif isinstance(result, NodeConnection):
            result.abort()


class ConnectionPool:
    """The connections to one server: those in use belong to their listeners, the rest are here."""

    def __init__(self, target: Target, *, idle_max: int = 64) -> None:
        self.target = target
        self._idle_max = idle_max
        self._idle: dict[NodeConnection, None] = {}  # the last used is last
        self.heads = HeadCache(make_answer_head)
        self.openings: set[PendingConnect] = set()
        self.connections = 0
        """Those that are open, idle and in use."""
        self.streams_closed = 0
        """How often in a row a connection turned out to be closed that a stream had come on."""
        self.reuses = True
        """Whether connections are used again; not of a server that was caught once."""
        self._closed = False

    def take(self) -> NodeConnection | None:
        """Return an idle connection, the warmest first, or None.

        One that is found closed is passed over: nothing was sent on it, so nothing has happened.
        So is one on which there is more than was asked for: reading it closes it.
        """
        while self._idle:
            connection = self._idle.popitem()[0]
            if connection.is_quiet():
                return connection
        return None

    def in_use(self) -> int:
        return self.connections - len(self._idle)

    def open(self, done: Callable[[NodeConnection | BackendFailed], None]) -> PendingConnect:
        """Open a connection; `done` is called from the loop with it or with what went wrong."""
        opening = PendingConnect(self, done)
        self.openings.add(opening)
        return opening

    async def connect(self) -> NodeConnection:
        """Return a fresh connection; raises BackendFailed."""
        target = self.target
        try:
            async with asyncio.timeout(target.connect_s):
                host, port, tls = target.host, target.port, target.tls
                connection = await connect(
                    lambda: NodeConnection(self), host, port, tls, target.path
                )
        except TimeoutError:
            raise BackendFailed(f"no connection within {target.connect_s:g} s") from None
        except (OSError, ssl.SSLError) as error:
            raise BackendFailed(f"cannot connect: {_in_words(error)}") from error
        connection.opened()
        if self._closed or connection.unread:
            connection.abort()
            cause = "the node has been removed" if self._closed else "it spoke before it was asked"
            raise BackendFailed(cause)
        return connection

    def keep(self, connection: NodeConnection) -> None:
        if self._closed or not self.reuses or len(self._idle) >= self._idle_max:
            connection.close()
        else:
            self._idle[connection] = None

    def distrust(self, cause: str) -> None:
        """Use no connection twice from now on."""
        if self.reuses:
            self.reuses = False
            host, port = self.target.host, self.target.port
            logger.warning("connections to %s:%d are used once from now on: %s", host, port, cause)
            self._close_idle()

    def forget(self, connection: NodeConnection) -> None:
        self._idle.pop(connection, None)

    def close(self) -> None:
        """Close what is idle, refuse what comes; exchanges under way go on."""
        self._closed = True  # connects under way end by hearing so
        self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.popitem()[0].close()
