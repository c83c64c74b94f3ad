"""The listening sockets that a worker accepts from: its own, and those of workers that are gone.

The parent holds them all, so a connection that nobody has accepted yet is never lost.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Sequence


class Listeners:
    """Accepts from some of the sockets; which of them may change."""

    def __init__(
        self,
        sockets: Sequence[Sequence[socket.socket]],
        protocol: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None,
        backlog: int,
    ) -> None:
        self._sockets = sockets
        self._protocol = protocol
        self._tls = tls
        self._backlog = backlog
        self._serving: dict[int, list[asyncio.Server]] = {}  # by worker
        self._wanted: frozenset[int] = frozenset()
        self._changing: asyncio.Task[None] | None = None

    def accept_for(self, workers: Sequence[int]) -> None:
        """Accept the connections of these workers, and of no others."""
        self._wanted = frozenset(workers)
        if self._changing is None or self._changing.done():
            self._changing = asyncio.get_running_loop().create_task(self._change())

    async def stop(self) -> None:
        """Accept no more; may be called twice."""
        self.accept_for(())
        assert self._changing is not None
        await self._changing

    async def _change(self) -> None:
        while self._wanted != self._serving.keys():
            for worker in self._serving.keys() - self._wanted:
                for server in self._serving.pop(worker):
                    server.close()
            for worker in self._wanted - self._serving.keys():
                self._serving[worker] = [await self._serve(one) for one in self._sockets[worker]]

    async def _serve(self, sock: socket.socket) -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(
            self._protocol, sock=sock.dup(), ssl=self._tls, backlog=self._backlog
        )
