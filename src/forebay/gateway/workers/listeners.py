"""The listening sockets that a worker accepts from: its own, and those of workers that are gone.

The parent holds them all, so a connection that nobody has accepted yet is never lost.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Sequence


class Listeners:
    """Accepts from some of the sockets; which of them may change."""

    def __init__(
        self,
        sockets: Sequence[Sequence[socket.socket]],
        listen: Callable[..., Awaitable[asyncio.Server]],
    ) -> None:
        """`listen` is called with `sock`."""
        self._sockets = sockets
        self._listen = listen
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
                own = self._sockets[worker]
                self._serving[worker] = [await self._listen(sock=one.dup()) for one in own]
