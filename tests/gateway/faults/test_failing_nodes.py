"""Rows 21 and 23-26: nodes that refuse, break, die, answer nonsense, hang or drip."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from forebay.nodes.health import TOGETHER_S

from .conftest import EVENT

if TYPE_CHECKING:
    from forebay.testing import FakeNode, RawClient, Reply
    from forebay.testing.fake_node import Call

    from .conftest import FaultRig

ROUTES = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages", "ollama": "/api/chat"}


def code(reply: Reply) -> str:
    return str(reply.json["error"]["code"])


async def failures(rig: FaultRig, kind: str, node: str = "n1") -> float:
    return await rig.metric(f'forebay_node_failures_total{{kind="{kind}",node="{node}"}}')


async def begin(rig: FaultRig, node: FakeNode, **more: Any) -> tuple[RawClient, Call]:
    """Return a stream of which the client has the first event."""
    client = await rig.ask(stream=True, **more)
    call = await node.next_call()
    await call.start_stream()
    await call.chunk(EVENT)
    await client.head()
    assert await client.chunk() == EVENT
    return client, call


async def rest(client: RawClient) -> bytes:
    """Return what is left of a stream, to its end."""
    pieces = []
    while (piece := await client.chunk()) is not None:
        pieces.append(piece)
    return b"".join(pieces)


async def test_fault_21_a_node_that_refuses_connections_is_passed_over_in_the_same_place(
    rig: FaultRig,
) -> None:
    dead, alive = await rig.node(), await rig.node()
    await rig.start(dead, alive)
    await dead.stop_listening()
    dead.drop_connections()
    await rig.ask(mark="holds n2, after n1 refused")
    running = await alive.next_call()
    first = await rig.ask(mark="first")
    await rig.wait_until("waiting", 1)
    second = await rig.ask(mark="second")
    await rig.wait_until("waiting", 2)
    await running.answer({})
    for mark, client in (("first", first), ("second", second)):
        call = await alive.next_call()
        assert call.json["mark"] == mark
        await call.answer({})
        reply = await client.reply()
        assert (reply.status, reply.headers["x-forebay-node"]) == (200, "n2")
    assert await failures(rig, "connect") >= 1


@pytest.mark.parametrize("stream", [False, True])
async def test_fault_21_a_node_that_dies_before_the_first_byte_costs_nobody_the_place(
    rig: FaultRig, stream: bool
) -> None:
    dying, other = await rig.node(), await rig.node()
    await rig.start(dying, other)
    client = await rig.ask(mark="first", stream=stream)
    call = await dying.next_call()
    await rig.ask(mark="holds n2")
    holds = await other.next_call()
    await rig.ask(mark="second")
    await rig.wait_until("waiting", 1)
    await dying.stop_listening()
    call.reset()
    await rig.wait_until("waiting", 2)
    await holds.answer({})
    again = await other.next_call()
    assert again.json["mark"] == "first"
    kind = "text/event-stream" if stream else "application/json"
    await again.answer(EVENT if stream else {}, headers={"content-type": kind})
    assert (await client.reply()).status == 200


async def test_fault_21_a_node_that_failed_a_request_does_not_get_it_again_at_once(
    rig: FaultRig,
) -> None:
    failing, other = await rig.node(), await rig.node()
    await rig.start(failing, other)
    client = await rig.ask(mark="failed")
    call = await failing.next_call()
    await rig.ask(mark="holds n2")
    holds = await other.next_call()
    call.reset()  # and is there again
    await rig.wait_until("waiting", 1)
    assert len(failing.calls) == 1
    await holds.answer({})
    again = await other.next_call()
    assert again.json["mark"] == "failed"
    await again.answer({})
    assert (await client.reply()).status == 200


@pytest.mark.parametrize("attempts", [3, 2, 1])
async def test_fault_21_a_lost_connection_is_tried_elsewhere_up_to_the_limit_and_then_told(
    rig: FaultRig, attempts: int
) -> None:
    nodes = [await rig.node() for _ in range(4)]

    async def fail(call: Call) -> None:
        call.reset()

    for node in nodes:
        node.automatic = fail
    await rig.start(*nodes, retry={"attempts": attempts})
    reply = await (await rig.ask()).reply()
    assert (reply.status, code(reply)) == (502, "node_failed")
    assert reply.json["error"]["cause"].startswith("connection lost")
    assert reply.json["error"]["attempts"] == attempts
    assert [len(node.calls) for node in nodes] == [1] * attempts + [0] * (4 - attempts)


@pytest.mark.parametrize("how", ["FIN", "RST"])
@pytest.mark.parametrize("family", ["openai", "anthropic", "ollama"])
async def test_fault_23_a_death_in_mid_stream_is_told_in_the_stream_and_never_repeated(
    rig: FaultRig, how: str, family: str
) -> None:
    kind = "ollama" if family == "ollama" else "llama.cpp"
    dying, other = await rig.node(kind=kind), await rig.node(kind=kind)
    await rig.start(dying, other)
    client = await rig.ask(path=ROUTES[family], stream=True)
    call = await dying.next_call()
    is_lines = family == "ollama"
    first = b'{"message":{"content":"hi"}}\n' if is_lines else EVENT
    await call.start_stream({"content-type": "application/x-ndjson"} if is_lines else {})
    await call.chunk(first)
    await client.head()
    assert await client.chunk() == first
    call.reset() if how == "RST" else call.close()
    told = await rest(client)
    assert b"[DONE]" not in told
    assert b"node_failed" in told
    if family == "anthropic":
        assert told.startswith(b"event: error\ndata: ")
    error = json.loads(told.strip().rpartition(b"data: ")[2])
    assert error["code" if is_lines else "error"]
    assert (len(dying.calls), len(other.calls)) == (1, 0)
    assert await failures(rig, "lost") == 1
    again = await rig.ask()  # the connection is good for more, and so is the slot
    await (await other.next_call()).answer({})
    assert (await again.reply()).status == 200


async def test_fault_23_with_buffered_streams_a_death_goes_unseen(rig: FaultRig) -> None:
    dying, other = await rig.node(), await rig.node()
    await rig.start(dying, other, retry={"stream": "buffer"})
    client = await rig.ask(stream=True)
    call = await dying.next_call()
    await call.start_stream()
    await call.chunk(b"data: half of it\n\n")
    call.reset()
    again = await other.next_call()
    await again.start_stream()
    await again.chunk(EVENT)
    await again.chunk(b"data: [DONE]\n\n")
    await again.end()
    assert (await client.reply()).body == EVENT + b"data: [DONE]\n\n"


async def test_fault_23_a_large_unary_answer_that_breaks_off_is_never_taken_for_whole(
    rig: FaultRig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.ask()
    call = await node.next_call()
    await call.write(b"HTTP/1.1 200 OK\r\ncontent-length: 900000\r\n\r\n{" + b" " * 600_000)
    assert (await client.head()).status == 200
    call.close()
    with pytest.raises((EOFError, ConnectionResetError)):
        await client.chunk()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n<html>no</html",
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nxx\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        b"\x00" * 1000,
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_fault_24_garbage_is_an_error_and_the_node_is_penalised(
    rig: FaultRig, answer: bytes, stream: bool
) -> None:
    node = await rig.node()
    gateway = await rig.start(node, retry={"attempts": 1}, queue={"offline_wait_seconds": 0})
    (backend,) = gateway.parts.nodes
    for pause_s in (0.0, TOGETHER_S):
        rig.clock.advance(pause_s)
        await rig.until(lambda: backend._probing is None, "a probe does not end")
        client = await rig.ask(stream=stream)
        call = await node.next_call()
        await call.write(answer)
        reply = await client.reply()
        assert (reply.status, code(reply)) == (502, "node_failed")
        await rig.healthy()
    assert sum(backend.failures.values()) == 2
    assert backend.told.state == "offline"
    refused = await (await rig.ask()).reply()
    assert (refused.status, code(refused)) == (503, "no_node")


async def test_fault_24_garbage_from_one_node_is_made_good_by_another(rig: FaultRig) -> None:
    bad, good = await rig.node(), await rig.node()
    await rig.start(bad, good)
    client = await rig.ask(stream=True)
    call = await bad.next_call()
    await call.start_stream()
    await call.chunk(b"<!doctype html>")
    await (await good.next_call()).answer(EVENT, headers={"content-type": "text/event-stream"})
    assert (await client.reply()).body == EVENT


async def test_fault_24_a_good_answer_in_small_pieces_is_no_garbage(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node, retry={"attempts": 1})
    client = await rig.ask(stream=True)
    call = await node.next_call()
    await call.start_stream()
    got = b""
    for at in range(len(EVENT)):
        await call.chunk(EVENT[at : at + 1])
        if not at:
            assert (await client.head()).status == 200
        got += await client.chunk() or b""
    await call.end()
    assert got == EVENT
    client = await rig.ask()
    call = await node.next_call()
    await call.write(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n")
    for piece in (b" ", b"\r\n ", b"{", b"}"):
        await call.write(piece)
        await rig.queue()
    await call.end()
    assert (await client.reply()).body == b" \r\n {}"


async def test_fault_25_a_stream_that_does_not_begin_is_given_up_and_its_slot_freed(
    rig: FaultRig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.ask(stream=True)
    call = await node.next_call()
    await call.start_stream()  # a head is no beginning
    await rig.ask(mark="next")
    await rig.wait_until("waiting", 1)
    rig.clock.advance(50.0)
    await rig.healthy()
    rig.clock.advance(20.0)
    await rig.wait_until("waiting", 0)  # a minute is all that it may wait
    assert not call.peer_gone
    await rig.ask(mark="later")
    await rig.wait_until("waiting", 1)
    rig.clock.advance(50.0)
    reply = await client.reply()
    assert (reply.status, code(reply)) == (504, "first_byte_timeout")
    await call.gone()
    assert (await node.next_call()).json["mark"] == "later"
    assert await failures(rig, "first_byte_timeout") == 1


async def test_fault_25_a_unary_answer_that_does_not_come_has_the_whole_run_and_no_more(
    rig: FaultRig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.ask()
    call = await node.next_call()
    rig.clock.advance(599.0)
    await rig.wait_until("processing", 1)
    rig.clock.advance(1.0)
    reply = await client.reply()
    assert (reply.status, code(reply)) == (504, "run_timeout")
    await call.gone()


async def test_fault_26_a_stream_that_drips_a_token_a_minute_is_cut_off(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await begin(rig, node)
    rig.clock.advance(59.0)
    await call.chunk(EVENT)
    assert await client.chunk() == EVENT
    rig.clock.advance(59.0)
    await rig.healthy()
    assert not call.peer_gone
    rig.clock.advance(1.0)
    told = await rest(client)
    assert b'"chunk_timeout"' in told
    assert b"[DONE]" not in told
    await call.gone()
    assert await failures(rig, "chunk_timeout") == 1
