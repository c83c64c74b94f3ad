"""Nothing starts for a client that is gone, and nothing that is said to one raises."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from forebay.testing import FakeClock
from forebay.wire.budget import READ_BYTES, Budget
from forebay.wire.heads import make_request_head
from forebay.wire.refusals import STOPPING
from forebay.wire.server import Server
from forebay.wire.upload import FOR_DELEGATE

from .reading import receive

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.wire.connection import ServerConnection
    from forebay.wire.heads import RequestHead
    from forebay.wire.refusals import Refusal
    from forebay.wire.server import Delegate

LIMITS: Any = SimpleNamespace(
    body_max_bytes=1000, header_seconds=10.0, body_seconds=10.0, idle_seconds=10.0,
    write_seconds=10.0, connections_max=10,
)  # fmt: skip
POST = b"POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"


class ClosedWire(asyncio.Transport):
    """A transport that fails as uvloop's does once its handle is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False
        self.reads = True
        self.sent = b""

    def write(self, data: Any) -> None:
        if self.closed:
            raise RuntimeError("unable to perform operation; the handler is closed")
        self.sent += data

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True

    abort = write_eof = close

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


class Taken:
    """A delegate that keeps what it is fed."""

    def __init__(self) -> None:
        self.data = b""

    def take(self, data: bytes) -> None:
        self.data += data

    def has_begun(self) -> bool:
        return False

    def client_left(self, error: Exception | None) -> None: ...
    def client_is_slow(self) -> None: ...
    def client_keeps_up(self) -> None: ...


class Site:
    """Answers when it is told to, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.bodies: list[bytes] = []
        self.left = 0
        self.taken: Taken
        self.connection: ServerConnection

    def read_head(self, lines: list[bytes]) -> RequestHead:
        return make_request_head(lines)

    def takes(self, head: RequestHead) -> bool:
        return not head.target.startswith(b"/cold")

    def refusal(self, head: RequestHead, peer: str) -> Refusal | None:
        return None

    def owner(self, head: RequestHead, peer: str) -> str:
        return peer

    def delegate(self, connection: ServerConnection) -> Delegate:
        self.taken = Taken()
        return self.taken

    def answer(self, connection: ServerConnection, head: RequestHead, body: bytes) -> None:
        self.asked.append(head.target)
        self.bodies.append(body)
        connection.responder = self

    def refuse(self, connection: ServerConnection, refusal: Refusal) -> None:
        connection.write(refusal.code.encode())

    def client_left(self) -> None:
        self.left += 1

    def client_is_slow(self) -> None: ...
    def client_keeps_up(self) -> None: ...


def connected(
    body_max_bytes: int = 1000, budget_bytes: int = 1_000_000
) -> tuple[Site, Server, ServerConnection, ClosedWire]:
    site, wire = Site(), ClosedWire()
    server = Server(site, LIMITS, FakeClock(), Budget(budget_bytes))
    server.body_bytes_max = body_max_bytes
    connection = server.protocol()
    connection.connection_made(wire)
    return site, server, connection, wire


async def test_no_pipelined_request_starts_for_a_client_that_left_as_the_last_one_ended() -> None:
    site, server, connection, wire = connected()
    receive(connection, POST % 1 + POST % 2)
    connection.write(b"answer")
    connection.done(keep_alive=True)  # the next one is scheduled
    wire.close()
    connection.connection_lost(None)
    for _ in range(3):
        await asyncio.sleep(0)
    assert site.asked == [b"/1"]
    assert (server.budget.used_bytes, len(server.connections)) == (0, 0)


async def test_pipelined_requests_are_answered_one_after_the_other() -> None:
    site, server, connection, _ = connected()
    receive(connection, b"".join(POST % number for number in range(5)))
    for number in range(5):
        assert site.asked[-1] == b"/%d" % number
        connection.done(keep_alive=True)
        await asyncio.sleep(0)
    assert len(site.asked) == 5
    assert server.budget.used_bytes == 0


def rest(server: Server, clock: FakeClock) -> None:
    clock.advance(LIMITS.idle_seconds)


def crowd(server: Server, clock: FakeClock) -> None:
    for _ in range(LIMITS.connections_max):
        server.protocol().connection_made(ClosedWire())


def stop(server: Server, clock: FakeClock) -> None:
    server.stop()


@pytest.mark.parametrize("end", [rest, crowd, stop])
@pytest.mark.parametrize(("data", "is_answered"), [(POST % 1, True), (b"\r\n", False)])
async def test_a_request_that_was_read_in_the_turn_in_which_its_connection_ends_is_answered(
    end: Callable[[Server, FakeClock], None], data: bytes, is_answered: bool
) -> None:
    site, clock, wire = Site(), FakeClock(), ClosedWire()
    server = Server(site, LIMITS, clock, Budget(1_000_000))
    connection = server.protocol()
    connection.connection_made(wire)
    connection.data_received(data)
    end(server, clock)
    await asyncio.sleep(0)
    clock.advance(LIMITS.idle_seconds)
    assert site.asked == ([b"/1"] if is_answered else [])
    assert wire.closed != is_answered


async def test_nothing_that_is_said_to_a_client_that_left_raises() -> None:
    site, _, connection, wire = connected()
    receive(connection, POST % 1)
    wire.close()
    connection.connection_lost(ConnectionResetError())
    assert site.left == 1
    connection.write(b"an answer")
    connection.done(keep_alive=True)
    connection.refuse(STOPPING)
    connection.close()
    connection.abort()
    connection.close_when_idle()
    assert wire.sent == b""


async def test_a_write_that_fails_ends_the_connection_and_not_the_one_who_writes() -> None:
    _, _, connection, wire = connected()
    receive(connection, POST % 1)
    wire.closed = True  # and nobody has heard of it yet
    connection.write(b"an answer")
    await turns()
    assert connection.is_closing


async def test_a_body_that_is_half_here_gives_back_its_room_when_the_client_leaves() -> None:
    site, server, connection, _ = connected()
    receive(connection, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\nxx")
    assert server.budget.used_bytes == 900
    connection.connection_lost(None)
    assert (server.budget.used_bytes, len(server.bodies), site.asked) == (0, 0, [])


async def test_a_body_that_is_being_read_when_the_server_stops_is_told_so() -> None:
    site, server, connection, wire = connected()
    receive(connection, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\nxx")
    server.stop()
    assert wire.sent == b"shutting_down"
    assert (server.budget.used_bytes, site.asked) == (0, [])


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


CHUNKED = b"POST %b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_who_has_paused_reading_is_the_one_who_resumes_it() -> None:
    site, _, connection, wire = connected()
    receive(connection, CHUNKED % b"/cold")
    connection.pause_reading(FOR_DELEGATE)  # it has as much of the body as it wants
    fed = len(site.taken.data)
    receive(connection, b"1\r\nx\r\n" * 3000)
    receive(connection, b"1\r\nx\r\n" * 20_000)
    await turns()
    assert (wire.reads, len(site.taken.data)) == (False, fed)
    connection.resume_reading(FOR_DELEGATE)
    await turns(200)
    assert wire.reads
    assert site.taken.data.count(b"x") == 23_000


async def test_what_comes_of_a_body_while_its_client_does_not_read_is_bounded() -> None:
    site, server, connection, wire = connected()
    head = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 900\r\n\r\n"
    receive(connection, head)
    await turns()
    assert b"100 Continue" in wire.sent
    connection.pause_writing()  # that was more than the client takes
    receive(connection, b"x" * 400)
    read_on = wire.reads
    receive(connection, b"x" * 100_000)
    assert (read_on, wire.reads) == (True, False)
    assert server.budget.used_bytes == 900
    connection.resume_writing()
    await turns()
    assert wire.reads
    assert site.bodies == [b"x" * 900]
    assert server.budget.used_bytes == 900  # until it is answered
    connection.done(keep_alive=False)
    assert server.budget.used_bytes == 0


async def test_a_refused_body_leaves_nothing_in_memory() -> None:
    _, server, connection, wire = connected()
    blocker = server.budget.take("other", 999_050)
    assert blocker is not None
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n"
    receive(connection, head + b"x" * 900)
    assert server.budget.parked_bytes == 900
    upload = server.bodies.eldest()
    assert upload is not None
    upload.is_late()
    assert wire.sent == b"queue_full"
    assert (server.budget.in_memory_bytes, server.budget.waiting) == (999_050, 0)
    assert connection.early == b""


async def test_a_body_in_chunks_asks_for_little_first_and_for_all_when_it_is_large() -> None:
    site, server, connection, _ = connected(body_max_bytes=1_000_000, budget_bytes=10_000_000)
    receive(connection, CHUNKED % b"/")
    assert server.budget.used_bytes == READ_BYTES
    receive(connection, b"40000\r\n" + b"x" * 0x40000 + b"\r\n")
    assert server.budget.used_bytes == READ_BYTES
    await asyncio.sleep(0)  # after so much others have their turn
    receive(connection, b"1\r\nx\r\n")
    assert server.budget.used_bytes == 1_000_000
    receive(connection, b"0\r\n\r\n")
    assert server.budget.used_bytes == len(site.bodies[0]) == 0x40001
    connection.connection_lost(None)
    assert server.budget.used_bytes == 0


async def test_a_delegate_goes_on_with_its_body_while_the_server_stops() -> None:
    site, server, connection, _ = connected()
    receive(connection, CHUNKED % b"/cold")
    receive(connection, b"1\r\nx\r\n" * 2500 + b"0\r\n\r\n")
    server.stop()
    await turns(20)
    assert site.taken.data.endswith(b"0\r\n\r\n")
