"""The fake node does what the test says, over real sockets, and never hangs a test."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator

import pytest

from forebay.testing import Call, FakeNode, RawClient
from forebay.testing.fake_node_http import MalformedRequest, RequestParser

POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: n\r\n"


@pytest.fixture
async def node() -> AsyncIterator[FakeNode]:
    async with FakeNode(models=("m", "n"), slots=2) as node:
        yield node


@pytest.fixture
async def client(node: FakeNode) -> AsyncIterator[RawClient]:
    async with await connect(node) as client:
        yield client


async def connect(node: FakeNode, rcvbuf: int | None = None) -> RawClient:
    return await RawClient.connect("127.0.0.1", node.port, rcvbuf=rcvbuf)


async def get(node: FakeNode, path: str) -> tuple[int, object]:
    async with await connect(node) as client:
        await client.get(path)
        reply = await client.reply()
        return reply.status, reply.json


async def test_a_call_arrives_whole_and_is_answered(node: FakeNode, client: RawClient) -> None:
    await client.post("/v1/chat/completions", {"model": "m"}, {"X-One": "1"})
    call = await node.next_call()
    assert (call.method, call.path, call.json) == ("POST", "/v1/chat/completions", {"model": "m"})
    assert call.headers["x-one"] == "1"
    assert ("X-One", "1") in call.raw_headers
    assert call.body == b'{"model": "m"}'
    assert node.running == 1
    await call.answer({"ok": True}, status=201, headers={"X-Two": "2"})
    reply = await client.reply()
    assert (reply.status, reply.json, reply.headers["x-two"]) == (201, {"ok": True}, "2")
    assert (node.running, node.calls) == (0, [call])


async def test_a_connection_serves_one_call_after_another(
    node: FakeNode, client: RawClient
) -> None:
    for number in range(3):
        await client.post("/v1/embeddings", {"n": number})
        await (await node.next_call()).answer(b"%d" % number)
        assert (await client.reply()).json == number
    assert (node.accepted, node.connections, node.max_running, node.pipelined) == (1, 1, 1, 0)
    assert {call.connection for call in node.calls} == {1}


async def test_a_chunked_body_is_put_together(node: FakeNode, client: RawClient) -> None:
    await client.send(POST + b"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\n{}\r\n")
    await client.send(b"3\r\n \n \r\n0\r\nTrailer: 1\r\n\r\n")
    assert (await node.next_call()).body == b"{} \n "


async def test_a_body_may_come_byte_by_byte(node: FakeNode, client: RawClient) -> None:
    for byte in POST + b"Content-Length: 2\r\n\r\nhi":
        await client.send(bytes([byte]))
    assert (await node.next_call()).body == b"hi"


async def test_a_stream_keeps_its_chunks(node: FakeNode, client: RawClient) -> None:
    await client.post("/v1/chat/completions", {})
    call = await node.next_call()
    await call.start_stream(headers={"X-Node": "a"})
    head = await client.head()
    assert head.headers["content-type"] == "text/event-stream"
    assert head.headers["x-node"] == "a"
    for piece in (b"data: 1\n\n", b"data: 2\n\n"):
        await call.chunk(piece)
        assert await client.chunk() == piece
    assert not call.ended
    await call.end()
    assert await client.chunk() is None
    assert call.ended


async def test_garbage_is_sent_as_it_is(node: FakeNode, client: RawClient) -> None:
    await client.post("/", {})
    call = await node.next_call()
    await call.write(b"\x00garbage")
    call.close()
    assert await client.closed() == b"\x00garbage"
    assert not client.was_reset


async def test_a_reset_is_a_reset(node: FakeNode, client: RawClient) -> None:
    await client.post("/", {})
    (await node.next_call()).reset()
    await client.closed()
    assert client.was_reset


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_a_peer_that_goes_away_is_noticed(
    node: FakeNode, client: RawClient, how: str
) -> None:
    await client.post("/", {})
    call = await node.next_call()
    getattr(client, how)()
    await call.gone()
    assert call.peer_gone
    assert call.ended
    with pytest.raises(ConnectionResetError):
        await call.answer({})
    await node.idle()
    assert node.connections == 0


async def test_a_reader_that_stops_makes_the_writer_wait() -> None:
    async with FakeNode(sndbuf=4096) as node, await connect(node, rcvbuf=4096) as client:
        await client.post("/", {})
        call = await node.next_call()
        client.stop_reading()
        writing = asyncio.create_task(call.write(bytes(1 << 20)))
        await call.blocked()
        assert call.paused
        assert not writing.done()
        client.resume_reading()
        await writing
        call.close()
        assert len(await client.closed()) == 1 << 20


async def test_a_write_that_waits_ends_when_the_peer_aborts() -> None:
    async with FakeNode(sndbuf=4096) as node, await connect(node, rcvbuf=4096) as client:
        await client.post("/", {})
        call = await node.next_call()
        client.stop_reading()
        writing = asyncio.create_task(call.write(bytes(1 << 20)))
        await call.blocked()
        client.abort()
        with pytest.raises(ConnectionResetError):
            await writing


async def test_a_llama_cpp_server_is_what_probes_find(node: FakeNode) -> None:
    assert await get(node, "/health") == (200, {"status": "ok"})
    assert await get(node, "/props") == (200, {"total_slots": 2})
    _, models = await get(node, "/v1/models")
    assert isinstance(models, dict)
    assert [model["id"] for model in models["data"]] == ["m", "n"]
    assert (await get(node, "/api/tags"))[0] == 404
    await node.probed(4)
    assert (node.probes, node.calls) == (4, [])


async def test_an_openai_server_has_its_models_and_nothing_else() -> None:
    async with FakeNode(kind="openai") as node:
        statuses = [(await get(node, path))[0] for path in ("/v1/models", "/health", "/props")]
    assert statuses == [200, 404, 404]


async def test_an_ollama_server_says_what_it_has_and_what_is_loaded() -> None:
    async with FakeNode(models=("a", "b"), kind="ollama") as node:
        node.loaded = ("b",)
        _, tags = await get(node, "/api/tags")
        _, loaded = await get(node, "/api/ps")
        assert (await get(node, "/api/version"))[0] == 200
    assert isinstance(tags, dict)
    assert isinstance(loaded, dict)
    assert [model["name"] for model in tags["models"]] == ["a", "b"]
    assert [model["name"] for model in loaded["models"]] == ["b"]


async def test_health_changes_when_the_test_says_so(node: FakeNode, client: RawClient) -> None:
    node.health = "loading"
    assert (await get(node, "/health"))[0] == 503
    node.health = "error"
    assert (await get(node, "/health"))[0] == 500
    node.health = "hang"
    await client.get("/health")
    await node.probed(3)
    node.health = "ok"
    node.slots = 5
    assert await get(node, "/props") == (200, {"total_slots": 5})


async def test_it_refuses_connections_and_comes_back_on_its_port(
    node: FakeNode, client: RawClient
) -> None:
    url = node.url
    for _ in range(2):
        await node.stop_listening()
        await node.stop_listening()
        with pytest.raises(ConnectionRefusedError):
            await connect(node)
        await client.get("/health")
        assert (await client.reply()).status == 200, "open connections stay"
        await node.listen()
        await node.listen()
        assert (await get(node, "/health"))[0] == 200
    assert node.url == url


@pytest.mark.parametrize("reset", [False, True])
async def test_connections_can_be_dropped(node: FakeNode, client: RawClient, reset: bool) -> None:
    await client.post("/", {})
    call = await node.next_call()
    node.drop_connections(reset=reset)
    await client.closed()
    assert client.was_reset is reset
    assert call.ended
    assert not call.peer_gone
    await call.gone()
    await node.idle()


async def test_automatic_answers_take_every_call(node: FakeNode, client: RawClient) -> None:
    node.automatic = lambda call: call.answer({"path": call.path})
    for path in ("/a", "/b"):
        await client.post(path, {})
        assert (await client.reply()).json == {"path": path}
    assert [call.path for call in node.calls] == ["/a", "/b"]
    with pytest.raises(AssertionError, match="no request reached the node"):
        await node.next_call(timeout_s=0)


async def test_the_most_calls_at_once_are_counted(node: FakeNode) -> None:
    async with contextlib.AsyncExitStack() as stack:
        calls = []
        for _ in range(3):
            client = await stack.enter_async_context(await connect(node))
            await client.post("/", {})
            calls.append(await node.next_call())
        assert (node.running, node.max_running) == (3, 3)
        await calls[0].answer({})
        calls[1].reset()
        assert (node.running, node.max_running) == (1, 3)


@pytest.mark.parametrize("reset", [False, True])
async def test_a_hang_up_before_the_next_call_is_never_counted_beside_it(
    node: FakeNode, reset: bool
) -> None:
    request = POST + b"Content-Length: 0\r\n\r\n"
    # Plain sockets, so that the loop meets the hang-up and the next call in one turn.
    with socket.create_connection(("127.0.0.1", node.port)) as second:
        with socket.create_connection(("127.0.0.1", node.port)) as first:
            first.sendall(request)
            await node.next_call()
            linger = struct.pack("ii", reset, 0)
            first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        second.sendall(request)
        await node.next_call()
    assert node.max_running == 1


async def test_a_call_whose_peer_has_gone_may_still_be_reset(node: FakeNode) -> None:
    async with await connect(node) as client:
        await client.post("/", {})
        call = await node.next_call()
    await node.idle()
    call.reset()
    assert call.peer_gone


async def test_a_second_request_before_the_answer_is_seen(
    node: FakeNode, client: RawClient
) -> None:
    await client.send((POST + b"Content-Length: 0\r\n\r\n") * 2)
    await node.next_call()
    await node.next_call()
    assert (node.pipelined, node.max_running) == (1, 2)


@pytest.mark.parametrize("header", ["connection", "Connection"])
async def test_an_answer_may_be_the_last_of_its_connection(
    node: FakeNode, client: RawClient, header: str
) -> None:
    await client.post("/", {})
    await (await node.next_call()).answer({}, headers={header: "close"})
    assert (await client.reply()).status == 200
    assert await client.closed() == b""


async def test_a_request_may_be_the_last_of_its_connection(
    node: FakeNode, client: RawClient
) -> None:
    await client.get("/health", {"connection": "close"})
    assert (await client.reply()).status == 200
    await client.closed()


async def test_a_body_is_invited_when_the_peer_asks(node: FakeNode, client: RawClient) -> None:
    await client.send(POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert (await client.head()).status == 100
    await client.send(b"{}")
    await (await node.next_call()).answer({})
    assert (await client.reply()).status == 200


async def test_leaving_hangs_up_whatever_is_unanswered() -> None:
    cancelled = asyncio.Event()

    async def never(call: Call) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with FakeNode() as node:
        clients = [await connect(node) for _ in range(3)]
        await clients[0].post("/", {})
        await node.next_call()
        node.automatic = never
        await clients[1].post("/", {})
        await clients[2].get("/health")
        await node.probed(1)
    assert cancelled.is_set()
    assert node.connections == 0
    for client in clients:
        await client.closed()


async def test_a_failing_automatic_answer_fails_the_test() -> None:
    async def broken(call: Call) -> None:
        call.reset()
        raise ValueError("a bug in the test")

    async def use() -> None:
        async with FakeNode() as node, await connect(node) as client:
            node.automatic = broken
            await client.post("/", {})
            await client.closed()

    with pytest.raises(ValueError, match="a bug in the test"):
        await use()


async def test_a_malformed_request_fails_the_test_unless_it_was_expected() -> None:
    async def send_nonsense(expected: bool) -> None:
        async with FakeNode() as node, await connect(node) as client:
            await client.send(b"nonsense\r\n\r\n")
            assert (await client.reply()).status == 400
            await client.closed()
            if expected:
                node.malformed.clear()

    await send_nonsense(expected=True)
    with pytest.raises(AssertionError, match="malformed"):
        await send_nonsense(expected=False)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        b"POST / HTTP/2.0\r\nHost: n\r\n\r\n",
        POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
        POST + b"Content-Length: +1\r\n\r\n",
        POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n0x1\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        POST + b"Content-Length : 1\r\n\r\n",
        POST + b" folded: 1\r\n\r\n",
        POST + b"a: 1\nb: 2\r\n\r\n",
        b"x" * ((1 << 20) + 1),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(request_bytes: bytes) -> None:
    with pytest.raises(MalformedRequest):
        RequestParser().feed(request_bytes)
