"""Requests and answers whose heads have come before are read as if each were the first."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.testing import FakeClock
from forebay.wire.budget import Budget
from forebay.wire.client import NodeConnection
from forebay.wire.heads import make_request_head
from forebay.wire.pool import ConnectionPool, Target
from forebay.wire.server import Server

from .reading import receive

if TYPE_CHECKING:
    from forebay.wire.connection import ServerConnection
    from forebay.wire.heads import AnswerHead, RequestHead
    from forebay.wire.refusals import Refusal
    from forebay.wire.server import Delegate

LIMITS: Any = SimpleNamespace(
    body_max_bytes=100, header_seconds=10.0, body_seconds=10.0, idle_seconds=10.0,
    write_seconds=10.0, connections_max=10,
)  # fmt: skip


class Wire(asyncio.Transport):
    """A transport that only remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed = False
        self.reads = True

    def write(self, data: Any) -> None:
        self.sent += data

    def writelines(self, pieces: Any) -> None:
        self.sent += b"".join(pieces)

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


class Desk:
    """A site that answers at once and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    def read_head(self, lines: list[bytes]) -> RequestHead:
        return make_request_head(lines)

    def takes(self, head: RequestHead) -> bool:
        return head.method == b"POST"

    def refusal(self, head: RequestHead, peer: str) -> Refusal | None:
        return None

    def owner(self, head: RequestHead, peer: str) -> str:
        return peer

    def delegate(self, connection: ServerConnection) -> Delegate:
        return Other(self, connection)

    def answer(self, connection: ServerConnection, head: RequestHead, body: bytes) -> None:
        headers = [
            pair for pair in head.headers if pair[0] != b"content-length"
        ]  # of an earlier one
        self.asked.append((head.target, headers, body))
        connection.done(keep_alive=head.keep_alive)

    def refuse(self, connection: ServerConnection, refusal: Refusal) -> None:
        self.asked.append((refusal.code, refusal.param))


class Other:
    """Answers what is not the desk's."""

    def __init__(self, desk: Desk, connection: ServerConnection) -> None:
        self._desk = desk
        self._connection = connection

    def take(self, data: bytes) -> None:
        self._desk.asked.append(("handed over", data))
        self._connection.abort()

    def has_begun(self) -> bool:
        return False

    def client_left(self, error: Exception | None) -> None: ...
    def client_is_slow(self) -> None: ...
    def client_keeps_up(self) -> None: ...


def connected() -> tuple[Desk, ServerConnection]:
    desk = Desk()
    connection = Server(desk, LIMITS, FakeClock(), Budget(1_000_000)).protocol()
    connection.connection_made(Wire())
    return desk, connection


def post(body: bytes, *lines: bytes, target: bytes = b"/x") -> bytes:
    head = [b"POST %b HTTP/1.1" % target, b"Host: a", *lines, b"Content-Length: %d" % len(body)]
    return b"\r\n".join([*head, b"", body])


ODD = [
    post(b"{}"),
    post(b"{}", target=b"/y"),
    post(b"{}", b"Expect: 100-continue"),
    post(b"{}", b"Upgrade: h2c", b"Connection: upgrade"),
    post(b"{}", b"Host: b"),
    post(b"x" * 101),
    post(b"{}").replace(b"Content-Length: 2", b"Content-Length: 2, 2"),
    post(b"{}").replace(b"Content-Length: 2", b"Content-Length: +2"),
    post(b"{}").replace(b"Content-Length: 2", b"Content-Length: 2\r\nContent-Length: 3"),
    post(b"{}").replace(b"Content-Length: 2", b"Transfer-Encoding: chunked")
    + b"1\r\na\r\n0\r\n\r\n",
    post(b"{}", b"Connection: close"),
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"nonsense\r\n\r\n",
]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("usual", [post(b"[1]"), post(b""), post(b"{}", b"Expect: 100-continue")])
async def test_a_request_reads_the_same_after_many_as_alone(usual: bytes, odd: bytes) -> None:
    alone_desk, alone = connected()
    receive(alone, odd)
    desk, connection = connected()
    for _ in range(4):
        receive(connection, usual)
    assert len(desk.asked) == 4
    receive(connection, odd)
    assert desk.asked[4:] == alone_desk.asked
    assert connection.is_closing == alone.is_closing


@given(
    bodies=st.lists(st.binary(max_size=90), min_size=1, max_size=8),
    cuts=st.lists(st.integers(1, 200), max_size=12),
)
async def test_however_the_bytes_are_cut_the_bodies_come_whole(
    bodies: list[bytes], cuts: list[int]
) -> None:
    desk, connection = connected()
    for body in bodies:
        rest = post(body)
        for cut in cuts:
            piece, rest = rest[:cut], rest[cut:]
            if piece:
                receive(connection, piece)
        if rest:
            receive(connection, rest)
        cuts = cuts[1:]
    assert [asked[2] for asked in desk.asked] == bodies


class Ear:
    """A listener that writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []

    def answer_begins(self, head: AnswerHead, length: bytes | None) -> None:
        self.heard.append((head.status, tuple(head.headers), length))

    def answer_goes_on(self, data: bytes, framed: bytes = b"") -> None:
        self.heard.append((data,))

    def answer_ends(self) -> None:
        self.heard.append(("end",))

    def answer_breaks(self, cause: str, *, stale: bool) -> None:
        self.heard.append((cause, stale))

    def answer_is_lost(self) -> None:
        raise AssertionError("a listener failed")


def answer(body: bytes, status: bytes = b"200 OK", *lines: bytes) -> bytes:
    head = [b"HTTP/1.1 " + status, b"A: b", *lines, b"content-length: %d" % len(body)]
    return b"\r\n".join([*head, b"", body])


def heard_after(count: int, usual: bytes, data: bytes) -> tuple[list[tuple[object, ...]], bool]:
    """Return what is heard of `data`, and whether the connection is over, after usual answers."""
    connection, wire = NodeConnection(ConnectionPool(Target("a", 1))), Wire()
    connection.connection_made(wire)
    for _ in range(count):
        connection.send(b"", b"", Ear())
        receive(connection, usual)
    ear = Ear()
    connection.send(b"", b"", ear)
    receive(connection, data)
    return ear.heard, wire.closed


@pytest.mark.parametrize("usual", [answer(b"[1]"), answer(b""), answer(b"no", b"404 Not Found")])
@pytest.mark.parametrize(
    "data",
    [
        answer(b"{}"),
        answer(b"a") + answer(b"b"),
        answer(b"abc")[:-1],
        answer(b"{}", b"404 Not Found"),
        answer(b"", b"204 No Content"),
        answer(b"", b"304 Not Modified"),
        answer(b"{}", b"200 OK", b"connection: close"),
        b"HTTP/1.1 100 Continue\r\n\r\n" + answer(b"{}"),
        b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nuntil the end",
        b"nonsense",
    ],
)
async def test_an_answer_is_heard_the_same_after_many_as_alone(usual: bytes, data: bytes) -> None:
    assert heard_after(4, usual, data) == heard_after(0, usual, data)
