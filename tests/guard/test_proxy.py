"""Exactly its slots through, 429 at once for more, and the slot back on every way out."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from forebay.guard.guard import GuardLimits
from forebay.guard.requests import INFERENCE
from forebay.wire.client import NodeConnection

from .conftest import CHAT, OK

if TYPE_CHECKING:
    from forebay.testing import RawClient

    from .conftest import GuardRig


PIECE = b"data: %b\n\n" % (b"x" * 16_000)
ENOUGH = 64 << 20  # more than all buffers on the way hold


async def refused(client: RawClient) -> None:
    """Expect the refusal of a node that is full."""
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (429, "node_busy")
    assert reply.headers["retry-after"] == "1"
    assert reply.headers["x-should-retry"] == "true"


@pytest.mark.parametrize("path", sorted(route.decode() for route in INFERENCE))
async def test_a_second_request_is_refused_at_once_on_every_route(rig: GuardRig, path: str) -> None:
    node = await rig.node()
    await rig.start(node)
    first = await rig.ask(path)
    call = await node.next_call()
    assert call.path == path
    await refused(await rig.ask())
    await call.answer(OK)
    assert (await first.reply()).json == OK
    second = await rig.ask(path)
    await (await node.next_call()).answer(OK)
    assert (await second.reply()).status == 200
    assert node.max_running == 1


async def test_a_stream_holds_its_slot_to_the_last_byte(rig: GuardRig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.stream(node)
    await refused(await rig.ask())
    await call.chunk(b"data: [DONE]\n\n")
    assert await client.chunk() == b"data: [DONE]\n\n"
    await refused(await rig.ask())  # all has been said, but the answer has not ended
    await call.end()
    assert await client.chunk() is None
    again = await rig.ask()
    await (await node.next_call()).answer(OK)
    assert (await again.reply()).status == 200


async def test_a_refused_client_keeps_its_connection_and_is_served_on_it(rig: GuardRig) -> None:
    node = await rig.node()
    await rig.start(node)
    first = await rig.ask()
    call = await node.next_call()
    second = await rig.ask()
    await refused(second)
    await call.answer(OK)
    await first.reply()
    await second.post(CHAT, {"model": "m"})
    await (await node.next_call()).answer(OK)
    assert (await second.reply()).status == 200


@pytest.mark.parametrize("streams", [False, True])
async def test_a_client_that_vanishes_frees_the_slot_and_stops_the_backend(
    rig: GuardRig, streams: bool
) -> None:
    node = await rig.node()
    await rig.start(node)
    if streams:
        client, call = await rig.stream(node)
    else:
        client = await rig.ask()
        call = await node.next_call()
    client.abort()
    await call.gone()
    await rig.until("in_flight", 0)


async def test_a_backend_that_dies_in_mid_stream_frees_the_slot_and_the_client_sees_it(
    rig: GuardRig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.stream(node)
    call.reset()
    with pytest.raises((EOFError, ConnectionResetError)):
        await client.chunk()
    await rig.until("in_flight", 0)


async def test_a_backend_that_dies_before_it_answers_is_a_502_that_says_so(rig: GuardRig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.ask()
    (await node.next_call()).reset()
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (502, "backend_failed")
    assert reply.headers["x-forebay-guard"] == "backend_failed", "a gateway counts it as its own"
    await rig.until("in_flight", 0)


async def test_a_backend_that_dies_after_its_head_is_a_502_while_nothing_has_been_passed_on(
    rig: GuardRig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.ask()
    call = await node.next_call()
    await call.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n")
    call.close()
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (502, "backend_failed")
    await rig.until("in_flight", 0)


async def test_an_error_of_the_backend_itself_is_not_marked_as_the_guards(rig: GuardRig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.ask()
    await (await node.next_call()).answer({"error": "no"}, 502)
    reply = await client.reply()
    assert (reply.status, reply.json) == (502, {"error": "no"})
    assert "x-forebay-guard" not in reply.headers


async def test_a_backend_that_is_not_there_is_a_502_that_says_so(rig: GuardRig) -> None:
    node = await rig.node()
    await rig.start(node)
    await node.stop_listening()
    node.drop_connections()
    reply = await (await rig.ask()).reply()
    assert (reply.status, reply.json["error"]["code"]) == (502, "backend_failed")
    assert "cannot connect" in reply.json["error"]["message"]
    assert (await rig.status())["in_flight"] == 0


async def test_a_bug_after_connecting_costs_its_own_request_only(
    rig: GuardRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = await rig.node()
    await rig.start(node)
    send = NodeConnection.send

    def fail_once(*_: object) -> None:
        monkeypatch.setattr(NodeConnection, "send", send)
        raise RuntimeError("a bug")

    monkeypatch.setattr(NodeConnection, "send", fail_once)
    assert await (await rig.ask()).closed() == b""
    assert "sending a request failed" in caplog.text
    again = await rig.ask()
    await (await node.next_call()).answer(OK)
    assert (await again.reply()).status == 200


async def test_a_kept_connection_that_the_backend_ends_is_told_and_not_replaced(
    rig: GuardRig,
) -> None:
    """It may have read the request; how often it is sent is for the gateway to say."""
    node = await rig.node()
    await rig.start(node)
    first = await rig.ask()
    await (await node.next_call()).answer(OK)
    await first.reply()
    second = await rig.ask()
    (await node.next_call()).close()  # as a server does that closes what has been idle
    reply = await second.reply()
    assert (reply.status, reply.headers["x-forebay-guard"]) == (502, "backend_closed")
    third = await rig.ask()
    await (await node.next_call()).answer(OK)
    assert (await third.reply()).status == 200
    assert len(node.calls) == 3


@pytest.mark.parametrize("begun", [False, True])
async def test_what_runs_too_long_is_ended_and_frees_the_slot(rig: GuardRig, begun: bool) -> None:
    node = await rig.node()
    await rig.start(node, run_s=100.0)
    if begun:
        client, call = await rig.stream(node)
    else:
        client = await rig.ask()
        call = await node.next_call()
    rig.clock.advance(100.0)
    if begun:
        with pytest.raises((EOFError, ConnectionResetError)):
            await client.chunk()
    else:
        reply = await client.reply()
        assert (reply.status, reply.json["error"]["code"]) == (504, "run_timeout")
    await call.gone()
    await rig.until("in_flight", 0)


async def test_a_client_that_stops_reading_holds_the_backend_back_and_is_cut_off(
    rig: GuardRig,
) -> None:
    node = await rig.node(sndbuf=4096)
    await rig.start(node)
    client = await rig.client(rcvbuf=4096)
    client.stop_reading()
    await client.post(CHAT, {"model": "m", "stream": True})
    call = await node.next_call()
    await call.start_stream()
    sent = 0

    async def flood() -> None:
        nonlocal sent
        with suppress(ConnectionResetError):
            while sent < ENOUGH:
                await call.chunk(PIECE)
                sent += len(PIECE)

    flooding = asyncio.ensure_future(flood())
    seen = [-1]
    while seen != [sent] * 5 or not rig.guard._server.writes:  # every buffer on the way is full
        seen = [*seen[-4:], sent]
        await call.blocked()
        for _ in range(20):
            await rig.status()
    assert sent < ENOUGH // 4
    rig.clock.advance(29.9)
    assert (await rig.status())["in_flight"] == 1
    rig.clock.advance(0.2)
    await call.gone()
    await flooding
    await rig.until("in_flight", 0)


async def test_body_and_answer_pass_byte_for_byte(rig: GuardRig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    body = b'{ "model":"m",\n "odd": "\\u00e9\xc3\xa9", "n": 1e3 }'
    await client.post(f"{CHAT}?a=b%20c", body, {"X-Own": "kept", "traceparent": "00-1-2-01"})
    call = await node.next_call()
    assert (call.body, call.path) == (body, f"{CHAT}?a=b%20c")
    assert (call.headers["x-own"], call.headers["traceparent"]) == ("kept", "00-1-2-01")
    assert call.headers["host"] == node.url.partition("//")[2]
    answer = b"\x00\xff not JSON"
    await call.answer(answer, 418, {"x-from-node": "1", "content-type": "text/odd"})
    reply = await client.reply()
    assert (reply.status, reply.body) == (418, answer)
    assert (reply.headers["x-from-node"], reply.headers["content-type"]) == ("1", "text/odd")


async def test_a_large_body_passes_whole(rig: GuardRig) -> None:
    node = await rig.node()
    await rig.start(node)
    body = b'{"model":"m","x":"' + b"y" * 3_000_000 + b'"}'
    client = await rig.client()
    await client.post(CHAT, body)
    call = await node.next_call()
    assert call.body == body
    await call.answer(body)
    assert (await client.reply()).body == body


async def test_while_it_is_full_a_large_body_is_refused_before_it_is_sent(rig: GuardRig) -> None:
    node = await rig.node()
    await rig.start(node)
    first = await rig.ask()
    call = await node.next_call()
    for more in ("content-length: 30000000", "content-length: 5\r\nexpect: 100-continue"):
        client = await rig.client()
        head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\n{more}\r\n\r\n"
        await client.send(head.encode())
        await refused(client)
    await call.answer(OK)
    await first.reply()
    assert (await rig.status())["refused_total"] == 2


async def test_several_slots_let_as_many_through(rig: GuardRig) -> None:
    node = await rig.node(slots=3)
    await rig.start(node)
    clients = [await rig.ask() for _ in range(3)]
    calls = [await node.next_call() for _ in clients]
    await refused(await rig.ask())
    assert (await rig.status())["in_flight"] == 3
    for call, client in zip(calls, clients, strict=True):
        await call.answer(OK)
        await client.reply()
    assert node.max_running == 3


async def test_the_operator_s_slots_come_before_what_the_backend_says(rig: GuardRig) -> None:
    node = await rig.node(slots=3)
    await rig.start(node, slots=1)
    client = await rig.ask()
    call = await node.next_call()
    await refused(await rig.ask())
    await call.answer(OK)
    await client.reply()


async def test_a_backend_that_does_not_say_has_one_slot(rig: GuardRig) -> None:
    await rig.start(await rig.node(kind="openai"))
    assert (await rig.status())["slots"] == 1


LIMITS = GuardLimits()
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n"


@pytest.mark.parametrize(
    ("sent", "limit_s"),
    [
        (b"POST /v1/chat", LIMITS.header_seconds),
        (HEAD, LIMITS.header_seconds),
        (HEAD + b"\r\n{", LIMITS.body_seconds),
    ],
)
async def test_a_request_that_takes_too_long_to_arrive_is_answered_408(
    rig: GuardRig, sent: bytes, limit_s: float
) -> None:
    await rig.start(await rig.node())
    client = await rig.client()
    await client.send(sent)
    await rig.status()  # it was read
    rig.clock.advance(limit_s)
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (408, "request_timeout")
