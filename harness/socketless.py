"""A gateway whose connections are in memory: what a request costs us, without the kernel.

The gateway is the real one, with its queue, keys, access log and counters; only clients and the
node's connections are objects here. A request is handed to it as its socket would, and so is the
node's answer: both happen inside the call, so that the work can be counted or timed.
"""

from __future__ import annotations

import io
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

from forebay.gateway.gateway import Gateway
from forebay.gateway.hot.access_log import AccessLog
from forebay.gateway.logs import Outlet
from forebay.settings import Settings
from forebay.testing import FakeClock, FakeNode
from forebay.wire.client import NodeConnection
from forebay.wire.connection import ServerConnection
from forebay.wire.io_batch import io_batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from forebay.wire.pool import ConnectionPool


class MemoryTransport:
    """Takes what is written; nothing is ever slow, and nobody leaves."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.writes = 0
        """System calls that a socket would have made to send it."""

    def write(self, data: bytes) -> None:
        self.written.append(data)
        self.writes += 1

    def take(self) -> bytes:
        """Return what has been written since it was last asked."""
        written, self.written = self.written, []
        return b"".join(written)

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 1) if name == "peername" else None

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


class MemoryClient:
    """A client's connection, and the connections to the node that its requests go out on."""

    def __init__(self, gateway: Gateway, pool: ConnectionPool) -> None:
        self._batch = io_batch()
        self.transport = MemoryTransport()
        self._connection = ServerConnection(gateway._server)
        self._connection.connection_made(cast("Any", self.transport))
        self.node = MemoryTransport()
        self._node_connection = NodeConnection(pool)
        self._node_connection.connection_made(cast("Any", self.node))
        pool.keep(self._node_connection)

    def send(self, data: bytes) -> None:
        """Hand over what a read of the client's socket brings."""
        self._connection.data_received(data)
        self._batch.take() if self._connection.unread else self._batch.flush()

    def answer(self, data: bytes) -> None:
        """Hand over what a read of the node's socket brings."""
        self._node_connection.data_received(data)
        self._batch.take() if self._node_connection.unread else self._batch.flush()


@asynccontextmanager
async def socketless_gateway(
    folder: Path, *, key: str, model: str, clock: Any = None, is_ollama: bool = False
) -> AsyncIterator[tuple[Gateway, ConnectionPool]]:
    """Run a gateway with everything on that a gateway in use has on, in front of one node."""
    async with FakeNode((model,), kind="ollama" if is_ollama else "llama.cpp") as node:
        kind = "ollama" if is_ollama else "llama-cpp"
        given: dict[str, Any] = {
            "nodes": [{"name": "n1", "url": node.url, "kind": kind, "slots": 64}],
            "server": {"port": 0},
            "jobs": {"database": f"sqlite:///{folder}/jobs.db"},
            "keys": [{"name": "k", "key_sha256": sha256(key.encode()).hexdigest()}],
        }
        settings = Settings(**given)
        clock = clock or FakeClock(1000.0)
        gateway = Gateway(settings, clock=clock, log=AccessLog(Outlet(io.BytesIO().write)))
        async with gateway:
            backend = gateway.parts.nodes.get("n1")
            assert backend is not None
            pool = backend.pool
            while (idle := pool.take()) is not None:
                idle.close()
            yield gateway, pool
