"""The Unix socket on which the leader serves requests that other workers forward.

The forwarding worker sends the client's address in a header. Only workers of this machine can
connect here, so the header is trusted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from forebay.gateway.fleet.peers import CLIENT
from forebay.gateway.hot.asgi_bridge import CUT, finish, uvicorn_config

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.types import ASGIApp, Receive, Scope, Send

IDLE_S: Final = 60


class Door:
    """Serves the application to the other workers."""

    def __init__(self, app: ASGIApp, path: Path) -> None:
        self._path = path
        self._state = ServerState()
        self._config = uvicorn_config(PassedOn(app), IDLE_S)
        self._listening: asyncio.Server | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_unix_server(self._protocol, str(self._path))

    async def stop(self, limit_s: float) -> None:
        """Let what is being answered finish, for a while; may be called twice."""
        if self._listening is not None:
            self._listening.close()
        await finish(self._state, limit_s)

    def _protocol(self) -> DoorProtocol:
        return DoorProtocol(self._config, self._state, {}, asyncio.get_running_loop())


class DoorProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, for requests that break off where their answers do."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {CUT: {"abort": self.transport.abort}}


class PassedOn:
    """Takes the address of the client from the worker that has it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = next(value for name, value in scope["headers"] if name == CLIENT)
        scope["client"] = (address.decode("latin-1"), 0)
        scope["headers"] = [pair for pair in scope["headers"] if pair[0] != CLIENT]
        await self._app(scope, receive, send)
