"""Bodies are read by their framing alone: no upgrade, no odd head, no route changes that."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from .conftest import ADMIN, FIRST, PROMPT, bearer, key

if TYPE_CHECKING:
    from .conftest import FaultRig

CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
INNER = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n"
SMUGGLED = b'{"model":"m","x":"' + INNER.replace(b"\r\n", b"\\r\\n") + b'"}'
OFFERS = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
    "h2c, other case": b"CONNECTION: upgrade\r\nUPGRADE: H2C\r\n",
    "TLS": b"Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n",
    "several": b"Connection: keep-alive, Upgrade\r\nUpgrade: h2c, foo/2\r\n",
    "twice": b"Connection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: foo\r\n",
    "without Connection": b"Upgrade: h2c\r\n",
}


def framed(body: bytes, how: str) -> bytes:
    """Return the framing header and the body as it is sent."""
    if how == "length":
        return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    cut = len(body) // 2
    parts = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in (body[:cut], body[cut:]) if p)
    return b"Transfer-Encoding: chunked\r\n\r\n%b0\r\n\r\n" % parts


@pytest.mark.parametrize("how", ["length", "chunks"])
@pytest.mark.parametrize("offer", OFFERS)
async def test_an_offer_of_another_protocol_is_ignored_and_its_body_is_a_body(
    rig: FaultRig, offer: str, how: str
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    raw_body = INNER + b'{"model":"m"}'  # would be a request of its own if it were skipped
    for body, status in ((SMUGGLED, 200), (raw_body, 400)):
        await client.send(CHAT + OFFERS[offer] + framed(body, how))
        if status == 200:
            call = await node.next_call()
            assert call.body == body
            assert "upgrade" not in call.headers
            await call.answer({"choices": []})
        assert (await client.reply()).status == status
    await client.get("/health")
    assert (await client.reply()).status == 200
    assert len(node.calls) == 1


@pytest.mark.parametrize("how", ["length", "chunks"])
@pytest.mark.parametrize("offer", OFFERS)
async def test_the_same_holds_for_routes_that_are_not_inference(
    rig: FaultRig, offer: str, how: str
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    head = b"POST /session HTTP/1.1\r\nHost: localhost\r\n"
    await client.send(head + OFFERS[offer] + framed(b'{"model":"m"}', how))
    assert (await client.reply()).status == 201
    await client.send(head + OFFERS[offer] + framed(INNER + b'{"model":"m"}', how))
    assert (await client.reply()).status == 400
    await client.get("/health")
    assert (await client.reply()).status == 200
    assert node.calls == []


@pytest.mark.parametrize("target", [b"example.org:443", b"/v1/chat/completions", b"*"])
async def test_connect_is_refused_and_what_follows_is_never_run(
    rig: FaultRig, target: bytes
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    body = INNER + b'{"model":"m"}'
    head = b"CONNECT %b HTTP/1.1\r\nHost: localhost\r\n" % target
    await client.send(head + framed(body, "length"))
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (400, "unsupported")
    assert await client.closed() == b""
    assert node.calls == []


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize("chunked", [False, True])
async def test_curl_with_http2_just_works_over_http11(rig: FaultRig, chunked: bool) -> None:
    node = await rig.node()
    await rig.start(node)
    url = f"http://127.0.0.1:{rig.gateway.port}/v1/chat/completions"
    more = ["-H", "Transfer-Encoding: chunked"] if chunked else []
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": PROMPT}]})
    curl = await asyncio.create_subprocess_exec(
        "curl", "-sS", "--http2", "--max-time", "20", *more, "-H", "Content-Type: application/json",
        "-d", body, "-w", "%{http_code} %{http_version}", url,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    call = await node.next_call()
    assert json.loads(call.body) == json.loads(body)
    await call.answer({"choices": []})
    out, _ = await curl.communicate()
    assert out.decode().endswith("200 1.1")


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ((b"HTTP/1.1\r\n", b"HTTP/2.0\r\n"), 505),
        ((b"HTTP/1.1\r\n", b"HTTP/0.9\r\n"), 505),
        ((b"HTTP/1.1\r\n", b"HTTP/1.2\r\n"), 505),
        ((b"HTTP/1.1\r\n", b"HTTP/9.9\r\n"), 505),
        ((b" HTTP/1.1\r\n", b"\r\n"), 505),
        ((b"\r\nHost", b"\r\nExpect: junk\r\nHost"), 417),
        ((b"\r\nHost", b"\r\nExpect: 100-continue, more\r\nHost"), 417),
    ],
)
@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/models"])
async def test_what_we_do_not_speak_is_refused_by_its_own_status(
    rig: FaultRig, path: bytes, change: tuple[bytes, bytes], status: int
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    head = CHAT.replace(b"/v1/chat/completions", path).replace(*change)
    await client.send(head + framed(b'{"model":"m"}', "length"))
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (status, "unsupported")
    assert await client.closed() == b""
    assert node.calls == []


@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/session"])
@pytest.mark.parametrize(
    ("wire", "status"),
    [
        (b"d;" + b"e" * 4000 + b'\r\n{"model":"m"}\r\n0\r\n\r\n', 200),
        (b"d;" + b"e" * 5000 + b'\r\n{"model":"m"}\r\n0\r\n\r\n', 400),
        (b'd\r\n{"model":"m"}\r\n0\r\n' + b"X: y\r\n" * 1300 + b"\r\n", 200),
        (b'd\r\n{"model":"m"}\r\n0\r\n' + b"X: y\r\n" * 1400 + b"\r\n", 400),
    ],
)
async def test_chunk_extensions_and_trailers_have_a_bound(
    rig: FaultRig, path: bytes, wire: bytes, status: int
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    head = CHAT.replace(b"/v1/chat/completions", path)
    await client.send(head + b"Transfer-Encoding: chunked\r\n\r\n" + wire)
    if status == 200 and path != b"/session":
        await (await node.next_call()).answer({"choices": []})
    reply = await client.reply()
    assert reply.status == (201 if status == 200 and path == b"/session" else status)
    if status == 400:
        assert reply.json["error"]["code"] == "invalid_request"
        assert await client.closed() == b""


@pytest.mark.parametrize("body_bytes", [200, 250_000, 5_000_000])
@pytest.mark.parametrize("secret", ["", "sk-wrong"])
async def test_a_key_is_checked_on_the_head_before_any_of_the_body_is_kept(
    rig: FaultRig, body_bytes: int, secret: str
) -> None:
    await rig.start(await rig.node(), keys=[key("first")])
    client = await rig.client()
    line = b"Authorization: Bearer %b\r\n" % secret.encode() if secret else b""
    await client.send(CHAT + line + b"Content-Length: %d\r\n\r\n{" % body_bytes)
    assert (await client.reply()).status == 401  # the rest of the body never came
    assert rig.gateway.parts.bodies.used_bytes == 0


async def test_a_large_answerless_upload_to_a_cold_route_can_read_its_refusal(
    rig: FaultRig,
) -> None:
    await rig.start(await rig.node(), keys=[key("first"), key("admin", admin=True)])
    for headers, status in ((bearer(ADMIN), 413), (bearer("sk-wrong"), 401), (bearer(FIRST), 403)):
        client = await rig.client()
        await client.send(b"POST /admin/nodes HTTP/1.1\r\nHost: localhost\r\n")
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()
        await client.send(lines + b"Content-Length: 10000000\r\n\r\n")
        with suppress(ConnectionResetError):  # it sends on until it has seen the end
            for _ in range(100):
                await client.send(b"x" * 100_000)
        assert (await client.reply()).status == status
        assert not client.was_reset


async def test_a_header_with_an_underscore_forwards_nothing_and_is_not_forwarded(
    rig: FaultRig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    for name in ("X_Forwarded_For", "x_real_ip", "Forwarded", "X-Forwarded_For"):
        assert (await rig.get("/admin/nodes", {name: "10.0.0.9"})).status == 403
    assert (await rig.get("/admin/nodes")).status == 200
    client = await rig.client()
    await client.post(
        "/v1/chat/completions", {"model": "m"}, {"X_Real_IP": "10.0.0.9", "X-Good": "1"}
    )
    call = await node.next_call()
    assert "x-good" in call.headers
    assert not [name for name in call.headers if "_" in name]
    await call.answer({"choices": []})
    await client.reply()


async def test_a_cold_body_that_is_framed_wrong_is_told_so_though_it_was_asked_for(
    rig: FaultRig,
) -> None:
    await rig.start(await rig.node())
    client = await rig.client()
    head = b"POST /session HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
    await client.send(head + b"Transfer-Encoding: chunked\r\n\r\n")
    assert (await client.head()).status == 100
    await client.send(b"zz\r\n")
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (400, "invalid_request")
