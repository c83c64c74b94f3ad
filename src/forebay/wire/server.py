"""The server side of the hot routes: all connections of one listening socket.

`Site` is what is behind it: it takes whole requests and answers them through the connection. A
`Responder` answers one request, a `Delegate` answers one with an HTTP implementation of its own.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from forebay.wire.connection import ServerConnection
from forebay.wire.deadlines import Deadlines
from forebay.wire.refusals import Refusal
from forebay.wire.sockets import watch_for_dead_peer
from forebay.wire.upload import Upload

if TYPE_CHECKING:
    import ssl

    from forebay.clock import Timers
    from forebay.wire.budget import Budget, Charge
    from forebay.wire.heads import RequestHead

BACKLOG = 4096
PACE_S = 5.0
"""How often the pace of an arriving body is looked at."""
LINGER_S = 5.0
"""How long we go on reading and dropping after a refusal: closing at once would reset the
connection, and the client would lose the answer while it is still sending."""


class ServerLimits(Protocol):
    """What a server allows; `ServerSettings` is one."""

    body_max_bytes: int
    header_seconds: float
    body_seconds: float
    idle_seconds: float
    write_seconds: float
    connections_max: int


class Responder(Protocol):
    """Who is answering a request, and must know when nobody listens any more."""

    __slots__ = ()

    def client_left(self) -> None:
        """Stop: the connection is gone."""
        ...

    def client_is_slow(self) -> None:
        """Hold back: more has been written than the client reads."""
        ...

    def client_keeps_up(self) -> None: ...


class Delegate(Protocol):
    """Another implementation of HTTP that answers one request, of which it is fed the bytes.

    It calls `ServerConnection.delegate_is_done` at the end of its answer.
    """

    __slots__ = ()

    def take(self, data: bytes) -> None:
        """Take the head, then any number of pieces of the body as it is framed on the wire."""
        ...

    def has_begun(self) -> bool:
        """Say whether anything of an answer has been sent."""
        ...

    def client_left(self, error: Exception | None) -> None:
        """Stop: the connection is gone."""
        ...

    def client_is_slow(self) -> None:
        """Hold back: more has been written than the client reads."""
        ...

    def client_keeps_up(self) -> None: ...


class Site(Protocol):
    """What is behind the listening socket."""

    __slots__ = ()

    def read_head(self, lines: list[bytes]) -> RequestHead:
        """Return the head that these lines are, with room for what is made of it."""
        ...

    def takes(self, head: RequestHead) -> bool:
        """Say whether a request is answered here, or by a delegate."""
        ...

    def refusal(self, head: RequestHead, peer: str) -> Refusal | None:
        """Say why a request is refused whatever its body, of which nothing is read then."""
        ...

    def owner(self, head: RequestHead, peer: str) -> str:
        """Say whom the bytes of a body are counted for: a key, else an address."""
        ...

    def delegate(self, connection: ServerConnection) -> Delegate:
        """Return who answers one request that is not answered here."""
        ...

    def answer(self, connection: ServerConnection, head: RequestHead, body: bytes) -> None:
        """Answer a whole request, now or later, through the connection."""
        ...

    def refuse(self, connection: ServerConnection, refusal: Refusal) -> None:
        """Answer a request that could not even be read; the connection closes after it."""
        ...


class Server:
    """All connections of one listening socket, their bound and their time limits."""

    def __init__(
        self,
        site: Site,
        limits: ServerLimits,
        clock: Timers,
        budget: Budget,
        connections: set[ServerConnection] | None = None,
    ) -> None:
        self.site = site
        self.budget = budget
        self.limits = limits
        self.body_bytes_max = limits.body_max_bytes
        self.connections: set[ServerConnection] = set() if connections is None else connections
        self._emptied: asyncio.Event | None = None  # while someone waits for the end
        self.idle = Deadlines(limits.idle_seconds, self._rest_is_over, clock)
        self.heads = Deadlines(limits.header_seconds, _head_is_late, clock)
        self.bodies = Deadlines(limits.body_seconds, Upload.is_late, clock)
        self.paces = Deadlines(PACE_S, Upload.pace_is_due, clock)
        self.writes = Deadlines(limits.write_seconds, ServerConnection.abort, clock)
        self.lingering = Deadlines(LINGER_S, ServerConnection.abort, clock)

    async def listen(self, *, tls: ssl.SSLContext | None = None, **where: Any) -> asyncio.Server:
        """Accept connections at a `host` and `port`, or of a `sock`; raises OSError.

        Connections inherit the options of the socket that they come from: to set them for each
        would be a dozen calls of the system.
        """
        listening: Any = await asyncio.get_running_loop().create_server(
            self.protocol, ssl=tls, backlog=BACKLOG, start_serving=False, **where
        )  # Any, because uvloop's is another class, with a list of sockets
        try:
            for sock in listening.sockets:
                watch_for_dead_peer(sock, self.limits.write_seconds)
            await listening.start_serving()
        except BaseException:
            listening.close()
            raise
        made: asyncio.Server = listening
        return made

    def protocol(self) -> ServerConnection:
        return ServerConnection(self)

    def make_room(self) -> bool:
        """At the bound the connection that has idled longest makes room; False if none does."""
        if len(self.connections) < self.limits.connections_max:
            return True
        while (eldest := self.idle.eldest()) is not None and eldest.unread:
            eldest.read_now()  # what was read in this turn of the loop ends its rest
        if eldest is None:
            return False
        eldest.abort()
        self.forget(eldest)
        return True

    def _rest_is_over(self, connection: ServerConnection) -> None:
        """Close a connection that has idled, unless something was read in this turn of the loop."""
        if connection.unread:
            self.idle.add(connection)
        else:
            connection.close()

    def forget(self, connection: ServerConnection) -> None:
        self.connections.discard(connection)
        for deadlines in (self.idle, self.heads, self.writes, self.lingering):
            deadlines.discard(connection)
        if self._emptied is not None and not self.connections:
            self._emptied.set()

    def is_too_slow(self, charge: Charge, progress_bytes: int) -> bool:
        """Say whether a body that came on so far in `PACE_S` must make room for those who wait.

        At that pace it would not be whole within `body_seconds`.
        """
        if not self.budget.waiting:
            return False
        return progress_bytes * self.limits.body_seconds < charge.size_bytes * PACE_S

    async def emptied(self) -> None:
        """Wait until no connection is open."""
        self._emptied = asyncio.Event()
        if self.connections:
            await self._emptied.wait()

    def stop(self) -> None:
        """Close what is idle; what is being answered closes after its answer."""
        for connection in list(self.connections):
            connection.close_when_idle()

    def abort(self) -> None:
        """Close everything at once."""
        for connection in list(self.connections):
            connection.abort()


def _head_is_late(connection: ServerConnection) -> None:
    connection.refuse(Refusal("request_timeout", "the request head took too long to arrive"))
