"""What stands behind the guard's listening socket: takes a slot for a request, or says no at once.

Callbacks all the way, as in the gateway: no task, no log call per request.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from forebay.guard.asked import Asked
from forebay.guard.passing import Passing
from forebay.guard.refusing import answer
from forebay.guard.slots import Slots
from forebay.wire.deadlines import Deadlines
from forebay.wire.heads import make_request_head, status_line
from forebay.wire.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from forebay.clock import Timers
    from forebay.guard.asked import Reader
    from forebay.guard.slots import Lease
    from forebay.wire.client import ConnectionPool
    from forebay.wire.connection import ServerConnection
    from forebay.wire.heads import RequestHead
    from forebay.wire.server import Delegate

LOOKS_MAX: Final = 32
"""Probes and lists that may be under way at once; gateways have one each at a time."""
LOOK_S: Final = 10.0
"""How long one of them may take; engines answer these from memory."""
BUSY: Final = Refusal("node_busy", "every slot of this node is taken; nothing waits here")
STOPPING: Final = Refusal("shutting_down", "this node is about to stop; ask another")
CROWDED: Final = Refusal("too_many_probes", f"{LOOKS_MAX} probes are under way already")


class Front:
    """Answers every request that reaches the guard.

    A `Site` by its shape: what is interpreted must not inherit from what may be compiled.
    """

    def __init__(self, reader: Reader, slots: Slots, run_s: float, clock: Timers) -> None:
        self._reader = reader
        self.slots = slots
        self.looks = Slots(LOOKS_MAX)
        self.draining = False
        self.pool: ConnectionPool
        """The way to the backend; set before anything is answered."""
        self.backend_failed: Callable[[str], None] = _nobody
        """Told how a request has lost its backend."""
        self.status: Callable[[], Mapping[str, object]] = dict
        """What `/guard/status` shows."""
        self._running = Deadlines(run_s, Passing.too_late, clock)
        self._looking = Deadlines(LOOK_S, Passing.too_late, clock)
        self._passings: set[Passing] = set()
        self._idle: asyncio.Event | None = None

    # -- for the server

    def read_head(self, lines: list[bytes]) -> RequestHead:
        return make_request_head(lines)

    def takes(self, head: RequestHead) -> bool:
        """Answer everything here."""
        return True

    def refusal(self, head: RequestHead, peer: str) -> Refusal | None:
        """Say why a request is refused whatever its body, of which nothing is read then."""
        asked = self._reader.read(head)
        if asked.what != "run":
            return asked.refusal
        if self.draining:
            return STOPPING
        if self.slots.is_full:
            self.slots.refused += 1
            return BUSY
        return None

    def owner(self, head: RequestHead, peer: str) -> str:
        """Say whom the bytes of a body are counted for: gateways are told apart by address."""
        return peer

    def delegate(self, connection: ServerConnection) -> Delegate:
        """Never asked for: `takes` takes everything."""
        raise AssertionError("a guard answers everything itself")

    def answer(self, connection: ServerConnection, head: RequestHead, body: bytes) -> None:
        """Let a request through, or refuse it at once."""
        asked = connection.kept
        if type(asked) is not Asked or asked.head is not head:
            asked = connection.kept = self._reader.read(head)
        if asked.what == "run":
            self._run(connection, head, asked.passed_on, body)
        elif asked.what == "look":
            self._look(connection, head, asked.passed_on, body)
        elif asked.what == "status":
            self._show(connection, head)
        else:
            assert asked.refusal is not None
            self._say_no(connection, head, asked.refusal)

    def refuse(self, connection: ServerConnection, refusal: Refusal) -> None:
        """Answer a request that could not be read; the connection closes after it."""
        connection.write(answer(refusal, b"connection: close\r\n"))

    # -- for the guard

    def forget(self, passing: Passing, lease: Lease) -> None:
        """Know that a request has ended, however it did: its slot is free."""
        lease.give_back()
        self._running.discard(passing)
        self._looking.discard(passing)
        self._passings.discard(passing)
        if self._idle is not None and not self.slots.in_flight:
            self._idle.set()

    async def finished(self) -> None:
        """Wait until nothing runs."""
        self._idle = asyncio.Event()
        if self.slots.in_flight:
            await self._idle.wait()

    def stop(self) -> None:
        """End what is left."""
        for passing in list(self._passings):
            passing.give_up(STOPPING)
        self._running.clear()
        self._looking.clear()

    # -- inside

    def _run(
        self, connection: ServerConnection, head: RequestHead, passed_on: bytes, body: bytes
    ) -> None:
        if self.draining:
            self._say_no(connection, head, STOPPING)
            return
        lease = self.slots.take()
        if lease is None:
            self._say_no(connection, head, BUSY)
            return
        request = b"%bcontent-length: %d\r\n\r\n" % (passed_on, len(body))
        self._pass(connection, head, lease, self._running).begin(request, body)

    def _look(
        self, connection: ServerConnection, head: RequestHead, passed_on: bytes, body: bytes
    ) -> None:
        lease = self.looks.take()
        if lease is None:
            self._say_no(connection, head, CROWDED)
            return
        length = b"content-length: %d\r\n" % len(body) if body else b""
        passing = self._pass(connection, head, lease, self._looking)
        passing.begin(b"%b%b\r\n" % (passed_on, length), body)

    def _pass(
        self,
        connection: ServerConnection,
        head: RequestHead,
        lease: Lease,
        deadlines: Deadlines[Passing],
    ) -> Passing:
        passing = Passing(self, connection, head, lease)
        self._passings.add(passing)
        deadlines.add(passing)
        connection.responder = passing
        return passing

    def _show(self, connection: ServerConnection, head: RequestHead) -> None:
        body = msgspec.json.encode(self.status())
        connection.write(
            b"%bcontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n%b"
            % (status_line(200), len(body), _connection_header(connection, head), body)
        )
        connection.done(keep_alive=head.keep_alive)

    def _say_no(self, connection: ServerConnection, head: RequestHead, refusal: Refusal) -> None:
        connection.write(answer(refusal, _connection_header(connection, head)))
        connection.done(keep_alive=head.keep_alive)


def _connection_header(connection: ServerConnection, head: RequestHead) -> bytes:
    if not head.keep_alive or connection.is_closing:
        return b"connection: close\r\n"
    return b"" if head.is_http_11 else b"connection: keep-alive\r\n"


def _nobody(_: str) -> None:
    """Nobody wants to know."""
