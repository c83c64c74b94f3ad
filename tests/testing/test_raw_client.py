"""The raw client shows exactly what a server sent, and how the connection ended."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from forebay.testing import Call, FakeNode, RawClient


class Exchange:
    """A client and the call it made, so that a test can write any answer."""

    def __init__(self, client: RawClient, call: Call) -> None:
        self.client = client
        self.call = call


@pytest.fixture
async def exchange() -> AsyncIterator[Exchange]:
    async with FakeNode() as node, await RawClient.connect("127.0.0.1", node.port) as client:
        await client.post("/v1/chat/completions", {"model": "m"})
        yield Exchange(client, await node.next_call())


async def test_an_answer_is_shown_as_sent(exchange: Exchange) -> None:
    head = b"HTTP/1.1 418 I'm A Teapot\r\nX-A: 1\r\nx-a: 2\r\nContent-Length: 2\r\n\r\n"
    await exchange.call.write(head + b"{}")
    reply = await exchange.client.reply()
    assert (reply.status, reply.reason) == (418, "I'm A Teapot")
    assert reply.raw_head == head
    assert reply.raw_headers[:2] == [("X-A", "1"), ("x-a", "2")]
    assert reply.headers["x-a"] == "1, 2"
    assert (reply.body, reply.json) == (b"{}", {})


async def test_a_chunked_answer_is_put_together(exchange: Exchange) -> None:
    await exchange.call.start_stream()
    for piece in (b"one ", b"two"):
        await exchange.call.chunk(piece)
    await exchange.call.end()
    assert (await exchange.client.reply()).body == b"one two"


async def test_an_answer_may_last_until_the_connection_closes(exchange: Exchange) -> None:
    await exchange.call.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")
    exchange.call.close()
    assert (await exchange.client.reply()).body == b"all of it"
    assert await exchange.client.chunk() is None


async def test_interim_answers_are_passed_over_by_reply_only(exchange: Exchange) -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    await exchange.call.write(interim * 2)
    assert (await exchange.client.head()).status == 103
    assert await exchange.client.chunk() is None
    await exchange.call.answer({})
    assert (await exchange.client.reply()).status == 200


async def test_an_answer_without_a_body_ends_with_its_head(exchange: Exchange) -> None:
    await exchange.call.write(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert (await exchange.client.reply()).body == b""


async def test_an_answer_cut_short_by_a_close_is_an_end_of_file(exchange: Exchange) -> None:
    await exchange.call.start_stream()
    await exchange.call.chunk(b"half")
    exchange.call.close()
    await exchange.client.head()
    assert await exchange.client.chunk() == b"half"
    with pytest.raises(EOFError):
        await exchange.client.chunk()


async def test_bytes_before_a_reset_are_kept(exchange: Exchange) -> None:
    await exchange.call.write(b"half an answ")
    exchange.call.reset()
    assert await exchange.client.closed() == b"half an answ"
    assert exchange.client.was_reset
    with pytest.raises(ConnectionResetError):
        await exchange.client.head()
    with pytest.raises(ConnectionResetError):
        await exchange.client.send(b"more")


async def test_silence_fails_the_test_instead_of_hanging_it(exchange: Exchange) -> None:
    exchange.client.timeout_s = 0
    with pytest.raises(AssertionError, match="nothing came from the server"):
        await exchange.client.reply()
    with pytest.raises(AssertionError, match="nothing came from the server"):
        await exchange.client.closed()


async def test_a_given_header_replaces_the_default_in_any_case() -> None:
    async with FakeNode() as node, await RawClient.connect("127.0.0.1", node.port) as client:
        await client.post("/", b"[]", {"HOST": "other", "Content-Type": "text/plain"})
        call = await node.next_call()
    names = [name for name, _ in call.raw_headers]
    assert sorted(names) == ["Content-Type", "HOST", "content-length"]
    assert call.headers["host"] == "other"


async def test_a_refused_connection_leaves_no_socket_behind() -> None:
    async with FakeNode() as node:
        await node.stop_listening()
        with pytest.raises(ConnectionRefusedError):
            await RawClient.connect("127.0.0.1", node.port)


async def test_leaving_a_client_that_is_being_written_to_hangs_nothing() -> None:
    async with FakeNode(sndbuf=4096) as node:
        async with await RawClient.connect("127.0.0.1", node.port, rcvbuf=4096) as client:
            client.stop_reading()
            await client.post("/", {})
            call = await node.next_call()
            writing = asyncio.create_task(call.write(bytes(1 << 20)))
            await call.blocked()
        with pytest.raises(ConnectionResetError):
            await writing
