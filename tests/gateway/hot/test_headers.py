"""What headers reach the node, what headers reach the client, and which do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..conftest import CHAT, OK

if TYPE_CHECKING:
    from ..conftest import Rig


async def test_a_plain_request_id_is_echoed_and_passed_on(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, headers={"X-Request-Id": "run-7.a:b/c+d=e@f"})
    assert call.headers["x-request-id"] == "run-7.a:b/c+d=e@f"
    await call.answer(OK, headers={"x-request-id": "the-node-s-own"})
    reply = await client.reply()
    assert [value for name, value in reply.raw_headers if name.lower() == "x-request-id"] == [
        "run-7.a:b/c+d=e@f"
    ]


@pytest.mark.parametrize("odd", ["a" * 129, "with blank", "semi;colon", 'quote"', "ümlaut", ""])
async def test_an_odd_request_id_is_replaced(rig: Rig, odd: str) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, headers={"X-Request-Id": odd})
    await call.answer(OK)
    given = (await client.reply()).headers["x-request-id"]
    assert given != odd
    assert given == call.headers["x-request-id"]
    assert len(given) == 24


async def test_the_longest_request_id_is_echoed(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, headers={"X-Request-Id": "a" * 128})
    await call.answer(OK)
    assert (await client.reply()).headers["x-request-id"] == "a" * 128


async def test_an_id_that_is_live_is_replaced_and_one_that_has_ended_is_not(rig: Rig) -> None:
    node = await rig.node(slots=2)
    await rig.start(node)
    same = {"X-Request-Id": "twin"}
    first, one = await rig.run(node, headers=same)
    second, two = await rig.run(node, headers=same)
    await one.answer(OK)
    await two.answer(OK)
    assert (await first.reply()).headers["x-request-id"] == "twin"
    assert (await second.reply()).headers["x-request-id"] != "twin"
    third, three = await rig.run(node, headers=same)
    await three.answer(OK)
    assert (await third.reply()).headers["x-request-id"] == "twin"


KEYS = [{"name": "a", "key_env": "A"}]
BAD_JSON, WELL = b'{"model": ', b'{"model":"m"}'
REFUSED_EARLY = {
    "bad JSON": ("POST", CHAT, BAD_JSON, {}, 400),
    "no model": ("POST", CHAT, b"{}", {}, 400),
    "a large body of bad JSON": ("POST", CHAT, b'{"model":"m","x":"' + b"x" * 600_000, {}, 400),
    "stored responses": ("POST", "/v1/responses", b'{"model":"m","background":true}', {}, 400),
    "Anthropic's bad JSON": ("POST", "/v1/messages", BAD_JSON, {}, 400),
    "Ollama's bad JSON": ("POST", "/api/chat", BAD_JSON, {}, 400),
    "a bad limit": ("POST", CHAT, WELL, {"x-forebay-max-wait": "soon"}, 400),
    "a bad limit and no body yet": ("POST", CHAT, b"", {"x-forebay-max-wait": "x",
                                                         "transfer-encoding": "chunked"}, 400),
    "no key": ("POST", CHAT, WELL, {"authorization": ""}, 401),
    "a foreign host": ("POST", CHAT, WELL, {"host": "evil.example"}, 403),
    "a body that is too large": ("POST", CHAT, b"", {"content-length": "99999999"}, 413),
    "a WebSocket": ("GET", "/v1/realtime", b"", {"upgrade": "websocket"}, 400),
    "another expectation": ("POST", CHAT, WELL, {"expect": "more"}, 417),
    "a bad length": ("POST", CHAT, b"", {"content-length": "x"}, 400),
    "a job of bad JSON": ("POST", "/jobs", BAD_JSON, {}, 400),
    "a job without a type": ("POST", "/jobs", b"{}", {}, 400),
    "a session of bad JSON": ("POST", "/session", BAD_JSON, {}, 400),
    "a prompt of no session": ("POST", "/session/none/prompt", b"{}", {}, 404),
    "a batch of bad JSON": ("POST", "/v1/batches", BAD_JSON, {}, 400),
    "a file that is no form": ("POST", "/v1/files", b"x", {}, 400),
    "nobody's ticket": ("GET", "/v1/queue/nobody", b"", {}, 404),
    "nothing there": ("GET", "/nowhere", b"", {}, 404),
    "another method": ("PUT", CHAT, b"", {}, 405),
    "a page without a key": ("GET", "/v1/queue", b"", {"authorization": ""}, 401),
}  # fmt: skip


@pytest.mark.parametrize("own", ["mine-17", "not plain", None])
@pytest.mark.parametrize("what", list(REFUSED_EARLY))
async def test_whatever_is_refused_has_an_id(rig: Rig, what: str, own: str | None) -> None:
    method, path, body, given, status = REFUSED_EARLY[what]
    await rig.start(await rig.node(), keys=KEYS, environ={"A": "sk-a-0123456789"})
    headers = {"host": "127.0.0.1", "authorization": "Bearer sk-a-0123456789", **given}
    if "transfer-encoding" not in headers:
        headers.setdefault("content-length", str(len(body)))
    if own is not None:
        headers["x-request-id"] = own
    client = await rig.client()
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value)
    await client.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
    reply = await client.reply()
    assert reply.status == status, reply.body
    (told,) = (value for name, value in reply.raw_headers if name.lower() == "x-request-id")
    readable = what != "a bad length"  # a head that is no head says nothing
    assert told == own if own == "mine-17" and readable else len(told) == 24


async def test_ids_that_nobody_gave_differ(rig: Rig) -> None:
    node = await rig.node(slots=8)
    await rig.start(node)
    ids = set()
    for _ in range(8):
        _, call = await rig.run(node)
        ids.add(call.headers["x-request-id"])
    assert len(ids) == 8


async def test_traces_and_unknown_headers_pass_in_both_directions(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    sent = {
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "vendor=1",
        "openai-organization": "org",
        "anthropic-version": "2023-06-01",
        "user-agent": "test/1",
    }
    client, call = await rig.run(node, headers=sent)
    assert {name: call.headers.get(name) for name in sent} == sent
    answered = {"x-vendor-figure": "5", "openai-model": "m", "x-ratelimit-remaining": "7"}
    await call.answer(OK, headers=answered)
    headers = (await client.reply()).headers
    assert (headers["x-vendor-figure"], headers["openai-model"]) == ("5", "m")
    assert "x-ratelimit-remaining" not in headers  # rates are what the gateway says of its keys


async def test_hop_by_hop_headers_stop_here_in_both_directions(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(
        node,
        headers={
            "Connection": "keep-alive, X-Private",
            "X-Private": "1",
            "Keep-Alive": "timeout=5",
            "TE": "trailers",
            "Proxy-Authorization": "Basic x",
            "Proxy-Connection": "keep-alive",
            "Upgrade": "h2c",
        },
    )
    names = set(call.headers)
    assert not names & {
        "x-private", "keep-alive", "te", "proxy-authorization", "proxy-connection", "upgrade"
    }  # fmt: skip
    await call.answer(
        OK, headers={"Connection": "keep-alive, X-Inner", "X-Inner": "1", "Keep-Alive": "timeout=9"}
    )
    headers = (await client.reply()).headers
    assert not set(headers) & {"x-inner", "keep-alive"}


async def test_the_node_is_asked_for_its_own_host_and_for_plain_bytes(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    _, call = await rig.run(node, headers={"Accept-Encoding": "gzip, br"})
    assert call.headers["host"] == f"127.0.0.1:{node.port}"
    assert call.headers["accept-encoding"] == "identity"


async def test_headers_that_are_for_the_gateway_stop_here(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    ours = {
        "X-Forebay-Priority": "high", "X-Nexus-Priority": "high", "X-Forebay-User": "u",
        "X-Forebay-Session": "s", "X-Forebay-Max-Wait": "9", "X-Forwarded-For": "1.2.3.4",
    }  # fmt: skip
    _, call = await rig.run(node, headers=ours)
    assert not set(call.headers) & {name.lower() for name in ours}


async def test_a_node_cannot_speak_in_the_gateway_s_name(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node)
    await call.answer(
        OK, headers={"X-Forebay-Node": "evil", "X-Queue-Position": "9", "X-Estimated-Wait": "9"}
    )
    headers = (await client.reply()).headers
    assert headers["x-forebay-node"] == "n1"
    assert not set(headers) & {"x-queue-position", "x-estimated-wait"}


async def test_a_client_that_expects_to_be_encouraged_is(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    body = b'{"model":"m"}'
    await client.send(
        f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n"
        f"content-length: {len(body)}\r\n\r\n".encode()
    )
    assert (await client.head()).status == 100
    await client.send(body)
    call = await node.next_call()
    assert "expect" not in call.headers
    await call.answer(OK)
    assert (await client.reply()).status == 200


async def test_a_chunked_body_reaches_the_node_whole(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    await client.send(
        f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
        '9\r\n{"model":\r\n4\r\n"m"}\r\n0\r\n\r\n'.encode()
    )
    call = await node.next_call()
    assert call.body == b'{"model":"m"}'
    assert call.headers["content-length"] == "13"
    assert "transfer-encoding" not in call.headers


async def test_the_query_of_a_target_is_passed_on(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    _, call = await rig.run(node, path=f"{CHAT}?api-version=1")
    assert call.path == f"{CHAT}?api-version=1"


async def test_a_node_s_own_refusal_passes_through_with_its_status_and_bytes(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node)
    await call.answer(b'{"error":  "context too long"}', 400, {"x-engine": "e"})
    reply = await client.reply()
    assert (reply.status, reply.body) == (400, b'{"error":  "context too long"}')
    assert reply.headers["x-engine"] == "e"
    assert reply.headers["x-forebay-node"] == "n1"


@pytest.mark.parametrize("status", [401, 403])
async def test_a_node_that_refuses_our_credentials_is_our_502(rig: Rig, status: int) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node)
    await call.answer({"error": "secret details"}, status)
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (502, "node_failed")
    assert str(status) in reply.json["error"]["cause"]


async def test_a_session_stays_on_its_node_where_it_can(rig: Rig) -> None:
    first, second = await rig.node(), await rig.node()
    await rig.start(first, second)
    session = {"X-Forebay-Session": "talk"}
    for _ in range(3):
        client, call = await rig.run(first, headers=session)
        await call.answer(OK)
        assert (await client.reply()).headers["x-forebay-node"] == "n1"
    await rig.run(first, headers=session)
    _, elsewhere = await rig.run(second, headers=session)  # affinity is no reason to wait
    assert elsewhere.json["model"] == "m"


async def test_an_answer_without_a_length_is_framed_anew(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node)
    await call.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{}")
    call.close()
    reply = await client.reply()
    assert reply.body == b"{}"
    await client.get("/health")
    assert (await client.reply()).status == 200


async def test_a_request_reaches_the_node_byte_for_byte_and_so_does_its_answer(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    body = b'{ "model":"m",\t"messages" : [], "odd": [1,2,  {"x": null}] }'
    await client.post("/v1/chat/completions", body)
    call = await node.next_call()
    assert call.body == body
    await call.answer(b'{"choices":   []}')
    assert (await client.reply()).body == b'{"choices":   []}'
