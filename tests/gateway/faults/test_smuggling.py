"""Rows 54-56: requests that could be read in two ways, and heads and bodies that never end."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from .conftest import ADMIN, FIRST, key

if TYPE_CHECKING:
    from .conftest import FaultRig

BODY = b'{"model":"m"}'
POST = b"POST /v1/chat/completions HTTP/1.1\r\n"
HOST = b"Host: localhost\r\n"
LENGTH = b"Content-Length: 13\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"d\r\n" + BODY + b"\r\n0\r\n\r\n"
SMUGGLED = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n" + BODY
)

SHAPES = {
    "both lengths": POST + HOST + LENGTH + CHUNKED + b"\r\n" + CHUNKS,
    "both lengths, other order": POST + HOST + CHUNKED + LENGTH + b"\r\n" + CHUNKS,
    "two lengths that differ": POST + HOST + LENGTH + b"Content-Length: 5\r\n\r\n" + BODY,
    "two lengths that agree": POST + HOST + LENGTH + LENGTH + b"\r\n" + BODY,
    "a list of lengths": POST + HOST + b"Content-Length: 13, 13\r\n\r\n" + BODY,
    "a signed length": POST + HOST + b"Content-Length: +13\r\n\r\n" + BODY,
    "a negative length": POST + HOST + b"Content-Length: -1\r\n\r\n" + BODY,
    "a hex length": POST + HOST + b"Content-Length: 0xd\r\n\r\n" + BODY,
    "a huge length": POST + HOST + b"Content-Length: 99999999999999999999999\r\n\r\n" + BODY,
    "an empty length": POST + HOST + b"Content-Length:\r\n\r\n" + BODY,
    "two hosts": POST + HOST + HOST + LENGTH + b"\r\n" + BODY,
    "two hosts that differ": POST + HOST + b"Host: evil.test\r\n" + LENGTH + b"\r\n" + BODY,
    "two origins": POST + HOST + b"Origin: http://localhost\r\n" * 2 + LENGTH + b"\r\n" + BODY,
    "no host": POST + LENGTH + b"\r\n" + BODY,
    "bare LF at the end": POST + HOST + LENGTH + b"\n" + BODY,
    "bare LF between": POST + b"Host: localhost\n" + LENGTH + b"\r\n" + BODY,
    "bare CR in a value": POST + HOST + b"X: a\rb\r\n" + LENGTH + b"\r\n" + BODY,
    "NUL in a value": POST + HOST + b"X: a\0b\r\n" + LENGTH + b"\r\n" + BODY,
    "a folded header": POST + HOST + b"X: a\r\n b\r\n" + LENGTH + b"\r\n" + BODY,
    "a folded first header": POST + b" X: a\r\n" + HOST + LENGTH + b"\r\n" + BODY,
    "a blank before the colon": POST + HOST + b"Content-Length : 13\r\n\r\n" + BODY,
    "a header without a name": POST + HOST + b": x\r\n" + LENGTH + b"\r\n" + BODY,
    "an odd coding": POST + HOST + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKS,
    "a coding after chunked": POST + HOST + b"Transfer-Encoding: chunked, x\r\n\r\n" + CHUNKS,
    "a coding before chunked": POST + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS,
    "chunked twice": POST + HOST + CHUNKED + CHUNKED + b"\r\n" + CHUNKS,
    "chunked in quotes": POST + HOST + b'Transfer-Encoding: "chunked"\r\n\r\n' + CHUNKS,
    "identity": POST + HOST + b"Transfer-Encoding: identity\r\n" + LENGTH + b"\r\n" + BODY,
    "chunks end in LF": POST + HOST + CHUNKED + b"\r\nd\n" + BODY + b"\n0\n\n",
    "a signed chunk": POST + HOST + CHUNKED + b"\r\n+d\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a chunk too long": POST + HOST + CHUNKED + b"\r\n5\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a gigantic chunk": POST + HOST + CHUNKED + b"\r\nfffffffffffffffff\r\n" + BODY,
    "a whole URL": POST.replace(b"/v1", b"http://evil.test/v1") + HOST + LENGTH + b"\r\n" + BODY,
    "a blank in the target": POST.replace(b"s HTTP", b"s x HTTP") + HOST + LENGTH + b"\r\n" + BODY,
    "HTTP/3.7": POST.replace(b"1.1", b"3.7") + HOST + LENGTH + b"\r\n" + BODY,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an unknown method": POST.replace(b"POST", b"P0ST") + HOST + LENGTH + b"\r\n" + BODY,
    "no HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
async def test_fault_54_a_request_that_could_be_read_in_two_ways_is_refused_and_not_forwarded(
    rig: FaultRig, shape: str
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    await client.send(SHAPES[shape] + SMUGGLED)
    reply = await client.reply()
    assert reply.status in (400, 413, 505)  # a length that is only absurd; another version
    assert reply.headers["connection"] == "close"
    assert b"HTTP/1.1" not in await client.closed()  # the second one is never looked at
    await rig.healthy()
    assert node.calls == []


@pytest.mark.parametrize("shape", SHAPES)
async def test_fault_54_the_same_holds_for_routes_that_are_not_inference(
    rig: FaultRig, shape: str
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    sent = SHAPES[shape].replace(b"/v1/chat/completions", b"/capabilities")  # else 405
    await client.send(sent + SMUGGLED)
    assert (await client.reply()).status in (400, 413, 505)
    assert b"HTTP/1.1" not in await client.closed()
    await rig.healthy()
    assert node.calls == []


async def test_fault_54_byte_by_byte_makes_no_difference(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node)
    for shape in ("both lengths", "bare LF between", "a folded header", "two hosts"):
        client = await rig.client()
        with suppress(ConnectionResetError):
            for at in range(len(SHAPES[shape])):
                await client.send(SHAPES[shape][at : at + 1])
                await rig.queue() if not at % 16 else None
        assert (await client.reply()).status == 400
    assert node.calls == []


async def test_fault_54_trailers_are_dropped_and_cannot_pose_as_headers(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    trailers = b"X-Forebay-Priority: high\r\nAuthorization: Bearer x\r\nX-Evil: yes\r\n" * 100
    await client.send(POST + HOST + CHUNKED + b"\r\n" + CHUNKS[:-2] + trailers + b"\r\n")
    call = await node.next_call()
    assert "x-evil" not in call.headers
    assert "authorization" not in call.headers
    assert call.body == BODY
    await call.answer({})
    assert (await client.reply()).status == 200


async def test_fault_54_pipelined_requests_are_answered_one_by_one_in_order(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    await client.send(SMUGGLED + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + SMUGGLED)
    for number in range(2):
        call = await node.next_call()
        assert node.pipelined == 0
        await call.answer({"number": number})
        assert (await client.reply()).json == {"number": number}
        if not number:
            assert (await client.reply()).json["status"] == "ok"


ODD_HOSTS = ["localhost/", "localhost/v1", "localhost?x", "localhost#x", "localhost/admin", "a b",
             "user@localhost", "localhost:7800:1", "localhost:port", "", "[::1", "localhost,evil",
             "localhost\\evil", "%6cocalhost", "localhost/../admin/nodes?"]  # fmt: skip


@pytest.mark.parametrize("host", ODD_HOSTS)
async def test_fault_55_an_odd_host_opens_no_door(rig: FaultRig, host: str) -> None:
    node = await rig.node()
    await rig.start(node, keys=[key("first"), key("admin", admin=True)])
    for secret in ("", "wrong", FIRST, ADMIN):
        for method, path in (
            ("POST", "/v1/chat/completions"), ("GET", "/admin/nodes"), ("GET", "/health"),
            ("GET", "/v1/queue"),
        ):  # fmt: skip
            client = await rig.client()
            headers = {"host": host} | ({"authorization": f"Bearer {secret}"} if secret else {})
            await client.request(method, path, BODY if method == "POST" else b"", headers)
            reply = await client.reply()
            assert reply.status == 400
            assert reply.json["error"]["param"] == "host"
            await client.closed()
    assert node.calls == []


async def test_fault_55_a_good_host_decides_nothing_about_who_asks(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node, keys=[key("first")], server={"public_status": False})
    for host in ("localhost", "127.0.0.1:7800", "[::1]:80", "LOCALHOST"):
        for path in ("/v1/queue", "/metrics", "/admin/nodes", "/v1/models"):
            assert (await rig.get(path, {"host": host})).status == 401
    rig.headers = {"authorization": f"Bearer {FIRST}"}


@pytest.mark.parametrize(
    "head",
    [
        b"X-Big: " + b"x" * 1_000_000 + b"\r\n",
        b"X-Big: " + b"x" * 70_000 + b"\r\n",
        b"".join(b"X-%d: y\r\n" % number for number in range(10_000)),
        b"a: b\r\n" * 200,
        b"X" * 100_000 + b": y\r\n",
    ],
    ids=["1 MB", "70 kB", "10,000", "200 short ones", "a long name"],
)
@pytest.mark.parametrize("route", [POST, b"GET /health HTTP/1.1\r\n"])
async def test_fault_56_a_head_that_is_too_large_is_431(
    rig: FaultRig, head: bytes, route: bytes
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    await client.send(route + HOST + head + (LENGTH + b"\r\n" + BODY if route == POST else b"\r\n"))
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (431, "headers_too_large")
    await client.closed()
    await rig.healthy()
    assert node.calls == []


async def test_fault_56_a_long_target_is_bounded_too(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    await client.send(b"POST /v1/chat/completions?" + b"x" * 500_000 + b" HTTP/1.1\r\n" + HOST)
    assert (await client.reply()).status == 431


async def test_fault_56_a_million_chunks_are_413(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    await client.send(POST + HOST + CHUNKED + b"\r\n")
    with suppress(ConnectionResetError):
        for _ in range(1000):
            await client.send(b"1\r\n \r\n" * 1000)
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (413, "body_too_large")
    await rig.healthy()
    assert node.calls == []
