"""Answers of nodes are cut out of a connection's bytes exactly, however they come."""

from __future__ import annotations

import asyncio

import httptools
from hypothesis import given
from hypothesis import strategies as st

from forebay.wire.body import CHUNKS_AT_ONCE
from forebay.wire.client import NodeConnection
from forebay.wire.pool import ConnectionPool, Target

from .reading import receive
from .test_cached_heads import Ear, Wire

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def asked() -> tuple[NodeConnection, Wire, Ear]:
    """Return a connection that waits for an answer."""
    connection, wire, ear = NodeConnection(ConnectionPool(Target("a", 1))), Wire(), Ear()
    connection.connection_made(wire)
    connection.send(b"", b"", ear)
    return connection, wire, ear


def body_of(ear: Ear) -> bytes:
    return b"".join(part[0] for part in ear.heard if isinstance(part[0], bytes))


class Parsed:
    """What llhttp makes of an answer."""

    def __init__(self) -> None:
        self.body = b""
        self.is_whole = False

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.is_whole = True


CHUNKS = st.lists(st.binary(min_size=1, max_size=40), max_size=8)


@given(chunks=CHUNKS, cuts=st.lists(st.integers(1, 60), max_size=20), by_length=st.booleans())
async def test_an_answer_is_read_as_llhttp_does_wherever_it_is_split(
    chunks: list[bytes], cuts: list[int], by_length: bool
) -> None:
    body = b"".join(chunks)
    if by_length:
        data = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    else:
        framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
        data = HEAD + framed + b"0\r\n\r\n"
    parsed = Parsed()
    httptools.HttpResponseParser(parsed).feed_data(data)
    connection, _, ear = asked()
    for cut in (*cuts, len(data)):
        if data:
            receive(connection, data[:cut])
        data = data[cut:]
    assert (body_of(ear), ear.heard[-1] == ("end",)) == (parsed.body, parsed.is_whole)


async def test_thousands_of_tiny_chunks_are_taken_in_turns_and_none_is_lost() -> None:
    connection, wire, ear = asked()
    count = 3 * CHUNKS_AT_ONCE
    receive(connection, HEAD + b"1\r\nx\r\n" * count)
    assert (len(body_of(ear)) < count, wire.reads) == (True, False)
    connection.pause()  # and its reader is slow, too
    await asyncio.sleep(0)
    assert len(body_of(ear)) < 2 * CHUNKS_AT_ONCE
    connection.resume()
    for _ in range(5):
        await asyncio.sleep(0)
    assert (body_of(ear), wire.reads) == (b"x" * count, True)
    receive(connection, b"0\r\n\r\n")
    assert ear.heard[-1] == ("end",)


async def test_what_comes_behind_an_answer_in_chunks_closes_the_connection() -> None:
    connection, wire, ear = asked()
    receive(connection, HEAD + b"2\r\nab\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert ear.heard[1:] == [(b"ab",), ("end",)]
    assert wire.closed


async def test_a_chunk_with_a_wrong_size_breaks_the_answer() -> None:
    connection, wire, ear = asked()
    receive(connection, HEAD + b"2\r\nabc\r\n")
    assert ear.heard[-1] == ("the answer is not HTTP/1.1: a chunk is longer than it says", False)
    assert wire.closed


async def test_a_connection_is_not_used_again_whose_request_was_answered_before_its_body_came() -> (
    None
):
    connection, wire, ear = NodeConnection(ConnectionPool(Target("a", 1))), Wire(), Ear()
    connection.connection_made(wire)
    connection.send(b"POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\n", [], ear)
    receive(connection, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
    assert ear.heard[-1] == ("end",)
    assert wire.closed


async def test_the_end_of_a_connection_does_not_overtake_what_was_read_in_the_same_turn() -> None:
    connection, _, ear = asked()
    connection.data_received(b"HTTP/1.1 200 OK\r\n\r\nto the end")
    connection.eof_received()
    assert ear.heard[1:] == [(b"to the end",), ("end",)]
    connection, _, ear = asked()
    connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
    connection.connection_lost(None)
    assert ear.heard[1:] == [(b"{}",), ("end",)]


async def test_what_is_behind_an_answer_in_the_same_turn_is_nobody_else_s() -> None:
    pool = ConnectionPool(Target("a", 1))
    connection, wire, ear = NodeConnection(pool), Wire(), Ear()
    connection.connection_made(wire)
    connection.send(b"POST / HTTP/1.1\r\n\r\n", b"", ear)
    connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
    connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]")
    assert (ear.heard[1:], wire.closed, pool.take()) == ([(b"{}",), ("end",)], True, None)


async def test_one_that_is_idle_and_reads_something_is_given_to_nobody() -> None:
    pool = ConnectionPool(Target("a", 1))
    connection, wire, ear = NodeConnection(pool), Wire(), Ear()
    connection.connection_made(wire)
    connection.send(b"POST / HTTP/1.1\r\n\r\n", b"", ear)
    receive(connection, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
    connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]")
    assert (pool.take(), wire.closed, pool.reuses) == (None, True, False)
