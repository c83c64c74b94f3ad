"""Everything that is not hot: Starlette on uvicorn's protocol, one request at a time.

Our own protocol has read the head and hands the connection over with the bytes so far; when
uvicorn has answered, it comes back. So a client may mix hot and other requests on one connection,
and the limits on heads and idle connections hold everywhere.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from forebay.gateway.replica_passage import CUT

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from forebay.wire.connection import ServerConnection

WARNING = logging.WARNING


class Cold:
    """The application, and the protocols that are answering for it now."""

    def __init__(self, app: ASGIApp, idle_s: float) -> None:
        self._config = Config(
            app,
            http=HttpToolsProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=int(idle_s),
        )
        self._config.load()
        logging.getLogger("uvicorn.error").setLevel(WARNING)
        self._state = ServerState()

    def take_over(self, connection: ServerConnection, raw: bytes) -> None:
        """Answer one request on a connection, then give it back."""
        protocol = OneRequest(self._config, self._state, connection)
        transport = connection.transport
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(raw)

    async def stop(self, limit_s: float) -> None:
        """Let what is being answered finish, for a while."""
        for protocol in list(self._state.connections):
            protocol.shutdown()
        tasks = list(self._state.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=limit_s)
            for task in late:
                task.cancel()
            if late:  # one may wait for a database that hangs, and which is closed only after this
                await asyncio.wait({asyncio.gather(*late, return_exceptions=True)}, timeout=limit_s)


class OneRequest(HttpToolsProtocol):
    """Uvicorn's protocol for exactly one request of a borrowed connection."""

    def __init__(
        self, config: Config, server_state: ServerState, connection: ServerConnection
    ) -> None:
        super().__init__(config, server_state, {}, asyncio.get_running_loop())
        self._borrowed = connection
        self._begun = 0
        self._whole = False

    def data_received(self, data: bytes) -> None:
        """Read the request; what follows it is not ours."""
        if self._whole:
            self._borrowed.keep_early(data)
        else:
            super().data_received(data)

    def pause_writing(self) -> None:
        """Hold back, and have the lender count the time."""
        super().pause_writing()
        self._borrowed.pause_writing()

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        self._borrowed.resume_writing()

    def on_message_begin(self) -> None:
        """Take one request only; where a second begins in the same bytes, close after the first."""
        self._begun += 1
        if self._begun > 1:
            self.cycle.keep_alive = False
        super().on_message_begin()
        self.scope["extensions"] = {CUT: {"abort": self.transport.abort}}

    def on_message_complete(self) -> None:
        """Know that the request is whole."""
        self._whole = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Give the connection back, or close it where the request was not read to its end."""
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        if self.transport.is_closing():
            return
        if not self._whole or self._begun > 1:
            self.transport.close()
            return
        self.flow.resume_reading()
        self._borrowed.come_back()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the lender, too."""
        super().connection_lost(exc)
        self._borrowed.connection_lost(exc)
