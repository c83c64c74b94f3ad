"""One body that does not come in one read: from its head to its last byte.

Where the request is ours it waits for room in memory, and has a time limit and a pace to keep.
What a delegate is fed it takes as it comes, framed as on the wire; the room is the delegate's to
ask for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from forebay.wire.body import BadFraming, BodyFraming, RequestBody, TooManyChunks
from forebay.wire.budget import READ_BYTES
from forebay.wire.refusals import BUSY, Refusal, body_too_large

if TYPE_CHECKING:
    from forebay.wire.budget import Charge
    from forebay.wire.connection import ServerConnection
    from forebay.wire.heads import RequestHead
    from forebay.wire.server import Delegate, Server

MUCH_BYTES: Final = 65_536
"""Of a body; libuv would read on, 32 times as much, before others have their turn."""
FOR_ROOM: Final = 1
FOR_OTHERS: Final = 2
FOR_DELEGATE: Final = 4
FOR_EARLY: Final = 8
"""Why a socket is not read: there is no memory for the body, other connections come first, the
delegate has enough for now, or what has come is more than may be kept."""
LATE: Final = Refusal("request_timeout", "the request body took too long to arrive")


class Upload:
    """A body on its way to the site, or to a delegate."""

    __slots__ = (
        "_body", "_connection", "_delegate", "_framing", "_head", "_marked_bytes", "_server",
    )  # fmt: skip

    def __init__(
        self,
        connection: ServerConnection,
        server: Server,
        head: RequestHead,
        length: int,
        delegate: Delegate | None = None,
    ) -> None:
        """Expect so many bytes; -1 for chunks."""
        self._connection = connection
        self._server = server
        self._head = head
        self._framing = BodyFraming(length)
        self._delegate = delegate
        self._body = RequestBody()
        self._marked_bytes = 0  # of it, when its pace was looked at

    @property
    def is_whole(self) -> bool:
        """Whether the last byte has come."""
        return self._framing.is_whole

    def begin(self, length: int) -> None:
        """Let it come as soon as there is room for it.

        Most bodies that come in chunks are small: they ask for that first, and a larger one later
        for all that it may have.
        """
        self._server.bodies.add(self)
        self._ask_for_room(READ_BYTES if length < 0 else length)

    def close(self) -> None:
        """Expect no more of it."""
        server = self._server
        server.bodies.discard(self)
        server.paces.discard(self)
        if self._connection.holds & FOR_ROOM:
            server.budget.forget(self)

    def take(self, data: bytes) -> None:
        """Take what has come of it, and hand it over when it is whole."""
        connection, framing, delegate = self._connection, self._framing, self._delegate
        pieces: list[bytes] = []
        try:
            at = framing.take(data, 0, pieces)
        except BadFraming as error:
            code = "body_too_large" if isinstance(error, TooManyChunks) else "invalid_request"
            connection.refuse(Refusal(code, f"the body is not framed right: {error}"))
            return
        connection.early = data[at:]
        if delegate is not None:
            self._pass_on(delegate, pieces)
        elif not self._collect(pieces):
            return
        if framing.is_whole:
            connection.body_is_whole(self._body.take() if delegate is None else None)
            return
        if connection.early or len(data) >= MUCH_BYTES:  # or thousands of tiny chunks: others first
            connection.pause_reading(FOR_OTHERS)
            asyncio.get_running_loop().call_soon(connection.resume_reading, FOR_OTHERS)
        held_bytes = connection.charge.held_bytes
        if delegate is None and self._body.size_bytes > held_bytes:
            self._ask_for_room(self._server.body_bytes_max - held_bytes)

    def _collect(self, pieces: list[bytes]) -> bool:
        """Keep pieces; False if it is larger than it may be, and was refused."""
        body, bytes_max = self._body, self._server.body_bytes_max
        for piece in pieces:
            if not body.add(piece, bytes_max):
                self._connection.refuse(body_too_large(bytes_max))
                return False
        return True

    def _pass_on(self, delegate: Delegate, pieces: list[bytes]) -> None:
        """Feed the delegate, framed anew where it comes in chunks."""
        if not self._framing.is_chunked:
            for piece in pieces:
                delegate.take(piece)
            return
        for piece in pieces:
            delegate.take(b"%x\r\n%b\r\n" % (len(piece), piece))
        if self._framing.is_whole:
            delegate.take(b"0\r\n\r\n")

    # -- its room and its time

    def _ask_for_room(self, size_bytes: int) -> None:
        """Take memory, or wait for it."""
        connection, budget = self._connection, self._server.budget
        owner = self._server.site.owner(self._head, connection.peer)
        charge = None
        if size_bytes <= READ_BYTES:
            charge = budget.take_whole(owner, size_bytes)
        charge = charge or budget.take(owner, size_bytes)
        if charge is not None:
            self.has_room(charge)
        elif budget.wait(self, owner, size_bytes, len(connection.early)):
            connection.pause_reading(FOR_ROOM)
        else:
            connection.refuse(BUSY)

    def has_room(self, charge: Charge) -> None:
        """Go on: here is what it waited for."""
        connection = self._connection
        is_first = not connection.charge.held_bytes
        connection.charge = charge if is_first else connection.charge.joined(charge)
        self._server.paces.add(self)
        if is_first and self._head.expects and not self._body.size_bytes:
            connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if connection.holds & FOR_ROOM:
            connection.resume_reading(FOR_ROOM)  # takes what is here in another turn
        else:
            connection.take_early()

    def is_late(self) -> None:
        """Refuse it: it did not come in time, or found no room in all that time."""
        self._connection.refuse(BUSY if self._connection.holds & FOR_ROOM else LATE)

    def pace_is_due(self) -> None:
        """Look how it is coming on: one that is too slow does not keep others out for long."""
        if self._connection.holds & FOR_ROOM:
            return
        before, self._marked_bytes = self._marked_bytes, self._body.size_bytes
        if self._server.is_too_slow(self._connection.charge, self._marked_bytes - before):
            self.is_late()
        else:
            self._server.paces.add(self)
