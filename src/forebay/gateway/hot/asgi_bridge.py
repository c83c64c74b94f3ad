"""Everything that is not hot: Starlette on uvicorn's protocol, one request at a time.

Our own protocol reads the head and cuts out the body, and feeds both to uvicorn's, which writes
its answer through a `BorrowedTransport`; the connection itself never changes hands. So a client
may mix hot and other requests on one connection, and limits on heads, framing and idle
connections hold everywhere.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, cast

from starlette.requests import ClientDisconnect
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from forebay.wire.budget import READ_BYTES
from forebay.wire.upload import FOR_DELEGATE

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from forebay.wire.budget import Budget, Charge
    from forebay.wire.connection import ServerConnection

WARNING = logging.WARNING
BODY_ROOM: Final = "forebay.body_room"
"""The extension of a request's scope by which it takes memory for its body."""
CUT: Final = "forebay.cut"
"""The extension of a request's scope that aborts its connection in the middle of a response."""


def uvicorn_config(app: ASGIApp, idle_s: float) -> Config:
    """Return how uvicorn's protocol serves the application: without what is done elsewhere."""
    config = Config(
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
    config.load()
    logging.getLogger("uvicorn.error").setLevel(WARNING)
    return config


async def finish(state: ServerState, limit_s: float) -> None:
    """Let what uvicorn's protocols are answering finish, for a while; may be called twice."""
    for protocol in list(state.connections):
        protocol.shutdown()
    tasks = list(state.tasks)
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=limit_s)
        for task in late:
            task.cancel()
        if late:  # one may wait for a database that hangs, and which is closed only after this
            await asyncio.wait({asyncio.gather(*late, return_exceptions=True)}, timeout=limit_s)


class Cold:
    """The application, and the protocols that are answering for it now."""

    def __init__(self, app: ASGIApp, idle_s: float, bodies: Budget) -> None:
        self._bodies = bodies
        self._config = uvicorn_config(app, idle_s)
        self._state = ServerState()

    def borrow(self, connection: ServerConnection) -> OneRequest:
        """Return who answers one request of a connection."""
        room = BodyRoom(self._bodies, connection)
        return OneRequest(self._config, self._state, connection, room)

    async def stop(self, limit_s: float) -> None:
        await finish(self._state, limit_s)


class BodyRoom:
    """Takes memory for the body of one request; its connection gives it back at the end."""

    def __init__(self, budget: Budget, connection: ServerConnection) -> None:
        self._budget = budget
        self._connection = connection
        self._granted = asyncio.Event()
        self._left = False

    async def take(self, owner: str, size_bytes: int) -> None:
        """Wait until there is room."""
        is_small = size_bytes <= READ_BYTES  # as what comes in one read on a hot route
        take = self._budget.take_whole if is_small else self._budget.take
        charge = take(owner, size_bytes)
        if charge is not None:
            self._hold(charge)
            return
        if not self._budget.wait(self, owner, size_bytes, 0):
            raise TimeoutError
        try:
            await self._granted.wait()
        finally:
            self._budget.forget(self)
        if self._left:
            raise ClientDisconnect

    def has_room(self, charge: Charge) -> None:
        """Take what was waited for."""
        self._hold(charge)
        self._granted.set()

    def _hold(self, charge: Charge) -> None:
        """Have it given back with the end of the request, which may have come meanwhile."""
        connection = self._connection
        if connection.delegate is None:
            charge.release()
        else:
            connection.charge.release()
            connection.charge = charge

    def leave(self) -> None:
        """Wait no more: the client is gone."""
        self._left = True
        self._granted.set()


class BorrowedTransport:
    """A client's connection as uvicorn sees it: closing it ends the answer, our way."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._transport = connection.transport
        self._closing = False
        self.has_sent = False
        self.on_end: Callable[[], None] = _nobody
        """Hears of the end of the answer, whichever way it ends."""

    def write(self, data: bytes) -> None:
        """Send a part of the answer; nothing happens where the client is gone."""
        if not self._closing:
            self.has_sent = self.has_sent or not data.startswith(b"HTTP/1.1 100 ")
            self._connection.write(data)

    def close(self) -> None:
        """End the answer, and the connection."""
        self.end(keep_alive=False)

    def end(self, *, keep_alive: bool) -> None:
        """Give the connection back; only the first call counts."""
        if not self._closing:
            self._closing = True
            self.on_end()
            self._connection.delegate_is_done(keep_alive=keep_alive)

    def leave(self) -> None:
        """Know that the client is gone."""
        self._closing = True

    def is_closing(self) -> bool:
        """Say whether nothing more can be sent."""
        return self._closing or self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the socket."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Have the client send no more of its body for now."""
        if not self.is_closing():
            self._connection.pause_reading(FOR_DELEGATE)

    def resume_reading(self) -> None:
        """Let the client go on."""
        if not self.is_closing():
            self._connection.resume_reading(FOR_DELEGATE)


class OneRequest(HttpToolsProtocol):
    """Uvicorn's protocol for exactly one request of a borrowed connection: a `Delegate`."""

    def __init__(
        self, config: Config, state: ServerState, connection: ServerConnection, room: BodyRoom
    ) -> None:
        super().__init__(config, state, {}, asyncio.get_running_loop())
        self._room = room
        self._borrowed = BorrowedTransport(connection)
        self._borrowed.on_end = lambda: self.connections.discard(self)
        self._abort = connection.abort
        self.connection_made(cast("asyncio.Transport", self._borrowed))

    def take(self, data: bytes) -> None:
        """Take the head, and what follows of the body."""
        if not self._borrowed.is_closing():
            self.data_received(data)

    def has_begun(self) -> bool:
        """Say whether anything of an answer has been sent."""
        return self._borrowed.has_sent

    def client_left(self, error: Exception | None) -> None:
        """Stop: the connection is gone."""
        self._borrowed.leave()
        self._room.leave()
        self.connection_lost(error)

    def client_is_slow(self) -> None:
        """Hold back."""
        self.pause_writing()

    def client_keeps_up(self) -> None:
        """Go on."""
        self.resume_writing()

    def on_message_begin(self) -> None:
        """Offer what the routes need besides: memory for a body, an end without an end."""
        super().on_message_begin()
        self.scope["extensions"] = {
            CUT: {"abort": self._abort},
            BODY_ROOM: {"take": self._room.take},
        }

    def on_response_complete(self) -> None:
        """Give the connection back."""
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        self._borrowed.end(keep_alive=True)


def _nobody() -> None:
    """Nobody wants to know."""
