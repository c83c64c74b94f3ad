"""Streams: queued like anything else, kept informed, held to their own limits, ended honestly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ..conftest import OK

if TYPE_CHECKING:
    from forebay.testing import RawClient

    from ..conftest import Rig

EVENT = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
NDJSON = {"content-type": "application/x-ndjson"}


async def rest_of(client: RawClient) -> bytes:
    """Return what is still to come of a body."""
    pieces = []
    while (piece := await client.chunk()) is not None:
        pieces.append(piece)
    return b"".join(pieces)


def error_in(event: bytes) -> dict[str, object]:
    """Return the error of a last data event."""
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    error: dict[str, object] = json.loads(event[6:])["error"]
    return error


async def test_a_stream_passes_piece_by_piece_and_byte_for_byte(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, stream=True)
    await call.start_stream({"x-engine": "fast"})
    await call.chunk(EVENT)
    head = await client.head()
    assert head.headers["content-type"] == "text/event-stream"
    assert head.headers["x-engine"] == "fast"
    assert head.headers["x-forebay-node"] == "n1"
    assert await client.chunk() == EVENT
    await call.chunk(b": a comment of the node\n\n")
    assert await client.chunk() == b": a comment of the node\n\n"
    await call.chunk(b"data: [DONE]\n\n")
    await call.end()
    assert await rest_of(client) == b"data: [DONE]\n\n"


async def test_a_slot_is_held_to_the_last_byte_of_a_stream(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, stream=True)
    await call.start_stream()
    await call.chunk(EVENT)
    await client.head()
    await client.chunk()
    [waiter] = await rig.line_up(1)
    await call.chunk(EVENT)
    await client.chunk()
    assert (await rig.queue())["waiting"] == 1
    assert len(node.calls) == 1
    await call.end()
    await (await node.next_call()).answer(OK)
    assert (await waiter.reply()).status == 200


async def test_the_head_of_a_waiting_stream_is_held_until_its_first_byte(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    _, first = await rig.run(node)
    [client] = await rig.line_up(1, stream=True)
    rig.clock.advance(14.5)
    await first.answer(OK)
    call = await node.next_call()
    await call.start_stream()
    await call.chunk(EVENT)
    headers = (await client.head()).headers
    assert headers["x-queue-status"] == "queued"
    assert headers["x-queue-wait-ms"] == "14500"
    assert await client.chunk() == EVENT


async def test_a_waiting_stream_is_told_where_it_stands_every_fifteen_seconds(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.measure(node, 10.0)
    _, first = await rig.run(node)
    _, client = await rig.line_up(2, stream=True)
    rig.clock.advance(15.0)
    head = await client.head()
    assert (head.status, head.headers["content-type"]) == (200, "text/event-stream")
    assert head.headers["x-queue-status"] == "queued"
    assert head.headers["x-queue-position"] == "2"
    assert head.headers["x-estimated-wait"] == "10"
    assert head.headers["x-request-id"]
    assert (await client.chunk() or b"").startswith(b": queued position=2 eta=")
    await first.answer(OK)
    await node.next_call()
    rig.clock.advance(15.0)
    assert (await client.chunk() or b"").startswith(b": queued position=1 eta=")


async def test_each_comment_says_how_long_it_will_take_from_then_on(rig: Rig) -> None:
    """Its place may stay the same for long; the time until its turn does not."""
    node = await rig.node()
    await rig.start(node, queue={"keepalive_seconds": 2.0})
    await rig.measure(node, 10.0)
    await rig.run(node)
    near, far = await rig.line_up(2, stream=True)
    for left_s in (8, 6, 4, 2):
        rig.clock.advance(2.0)
        for client, position, eta_s in ((near, 1, left_s), (far, 2, left_s + 10)):
            if left_s == 8:
                await client.head()
            told = (await client.chunk() or b"").decode()
            assert told.startswith(f": queued position={position} eta=")
            # who may overtake, and that nobody has started meanwhile, makes it a little longer
            assert 0 <= int(told.rpartition("=")[2]) - eta_s <= 1


async def test_a_comment_has_no_estimate_while_nothing_has_been_measured(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"keepalive_seconds": 2.0})
    await rig.run(node)
    [client] = await rig.line_up(1, stream=True)
    rig.clock.advance(2.0)
    await client.head()
    assert await client.chunk() == b": queued position=1\n\n"


async def test_each_waiting_stream_has_an_interval_of_its_own(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.run(node)
    [first] = await rig.line_up(1, stream=True)
    rig.clock.advance(5.0)
    [second] = await rig.line_up(1, stream=True)
    rig.clock.advance(10.0)
    await first.head()
    assert await first.chunk() == b": queued position=1\n\n"
    rig.clock.advance(5.0)
    await second.head()
    assert await second.chunk() == b": queued position=2\n\n"


async def test_a_stream_that_was_kept_informed_is_told_its_node_and_wait_and_then_goes_on(
    rig: Rig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    _, first = await rig.run(node)
    [client] = await rig.line_up(1, stream=True)
    rig.clock.advance(20.123)
    await client.head()
    assert await client.chunk() == b": queued position=1\n\n"
    await first.answer(OK)
    assert await client.chunk() == b": started node=n1 waited_ms=20123\n\n"
    call = await node.next_call()
    await call.start_stream()
    await call.chunk(EVENT)
    assert await client.chunk() == EVENT
    await call.end()
    assert await rest_of(client) == b""


async def test_with_an_interval_of_zero_the_head_is_held_for_ever(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"keepalive_seconds": 0.0, "max_wait_seconds": 1000.0})
    await rig.run(node)
    [client] = await rig.line_up(1, stream=True)
    rig.clock.advance(1000.0)
    assert (await client.head()).status == 504


async def test_a_stream_that_returned_to_the_line_is_kept_informed_too(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, stream=True)
    await call.answer({"error": "busy"}, 503, {"retry-after": "40"})
    await rig.wait_until("waiting", 1)
    rig.clock.advance(15.0)
    assert (await client.head()).status == 200
    assert await client.chunk() == b": queued position=1\n\n"


async def test_once_a_stream_is_committed_a_timeout_is_its_last_event(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.run(node)
    [client] = await rig.line_up(1, stream=True)
    rig.clock.advance(60.0)
    assert (await client.head()).status == 200
    for _ in range(3):
        assert await client.chunk() == b": queued position=1\n\n"
    last = await rest_of(client)
    assert b"[DONE]" not in last
    error = error_in(last.removeprefix(b": queued position=1\n\n"))
    assert error["code"] == "queue_timeout"
    assert error["waited_seconds"] == 60.0


async def test_a_node_that_dies_in_mid_stream_ends_it_with_an_error_and_no_done(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, stream=True)
    await call.start_stream()
    await call.chunk(EVENT)
    await client.head()
    await client.chunk()
    call.reset()
    last = await rest_of(client)
    assert error_in(last)["code"] == "node_failed"
    assert b"[DONE]" not in last
    await rig.wait_until("processing", 0)


async def test_an_anthropic_stream_ends_with_an_error_event(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, stream=True, path="/v1/messages")
    await call.start_stream()
    await call.chunk(b"event: message_start\ndata: {}\n\n")
    await client.head()
    await client.chunk()
    call.reset()
    event, data, *_ = (await rest_of(client)).split(b"\n")
    assert event == b"event: error"
    body = json.loads(data.removeprefix(b"data: "))
    assert (body["type"], body["error"]["code"]) == ("error", "node_failed")


async def test_ollama_streams_unless_told_otherwise_and_ends_in_a_line_of_json(rig: Rig) -> None:
    node = await rig.node(kind="ollama")
    await rig.start(node)
    client, call = await rig.run(node, path="/api/chat")
    await call.start_stream(NDJSON)
    await call.chunk(b'{"message":{"content":"x"},"done":false}\n')
    assert (await client.head()).headers["content-type"] == "application/x-ndjson"
    await client.chunk()
    call.reset()
    line = await rest_of(client)
    assert line.endswith(b"\n")
    assert json.loads(line)["code"] == "node_failed"
    assert isinstance(json.loads(line)["error"], str)


async def test_a_waiting_ollama_stream_holds_its_head_and_hears_no_comments(rig: Rig) -> None:
    node = await rig.node(kind="ollama")
    await rig.start(node)
    _, first = await rig.run(node, path="/api/chat")
    [client] = await rig.line_up(1, path="/api/generate")
    rig.clock.advance(45.0)
    await first.answer({"done": True})
    call = await node.next_call()
    await call.start_stream(NDJSON)
    await call.chunk(b'{"response":"x"}\n')
    headers = (await client.head()).headers
    assert headers["x-queue-wait-ms"] == "45000"
    assert await client.chunk() == b'{"response":"x"}\n'


async def test_ollama_without_a_stream_has_no_limit_on_its_first_byte(rig: Rig) -> None:
    node = await rig.node(kind="ollama")
    await rig.start(node)
    client, call = await rig.run(node, path="/api/chat", stream=False)
    rig.clock.advance(500.0)
    await call.answer({"done": True})
    assert (await client.reply()).status == 200


@pytest.mark.parametrize("headers_come", [False, True])
async def test_a_stream_must_begin_in_time(rig: Rig, headers_come: bool) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, stream=True)
    if headers_come:
        await call.start_stream()
        await rig.queue()
    rig.clock.advance(119.9)
    assert (await rig.queue())["processing"] == 1
    rig.clock.advance(0.1)
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (504, "first_byte_timeout")
    assert "x-should-retry" not in reply.headers
    await call.gone()
    await rig.wait_until("processing", 0)


async def test_an_answer_that_is_no_stream_has_a_limit_on_the_whole_only(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node)
    rig.clock.advance(599.9)
    assert (await rig.queue())["processing"] == 1
    rig.clock.advance(0.1)
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (504, "run_timeout")
    await call.gone()
    await rig.wait_until("processing", 0)


async def test_a_stream_must_not_go_silent(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, stream=True)
    await call.start_stream()
    for _ in range(3):
        await call.chunk(EVENT)
        if _ == 0:
            await client.head()
        await client.chunk()
        rig.clock.advance(59.9)
    assert (await rig.queue())["processing"] == 1
    rig.clock.advance(0.1)
    assert error_in(await rest_of(client))["code"] == "chunk_timeout"
    await call.gone()


async def test_a_stream_that_never_ends_is_ended(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"run_seconds": 100.0})
    client, call = await rig.run(node, stream=True)
    await call.start_stream()
    await call.chunk(EVENT)
    await client.head()
    await client.chunk()
    rig.clock.advance(50.0)
    await call.chunk(EVENT)
    await client.chunk()
    rig.clock.advance(50.0)
    assert error_in(await rest_of(client))["code"] == "run_timeout"
    await call.gone()


async def test_limits_count_from_the_start_of_running_not_from_arrival(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_wait_seconds": 900.0})
    _, first = await rig.run(node)
    [client] = await rig.line_up(1)
    rig.clock.advance(590.0)
    await first.answer(OK)
    call = await node.next_call()
    rig.clock.advance(590.0)
    await call.answer(OK)
    assert (await client.reply()).headers["x-queue-wait-ms"] == "590000"


async def test_with_buffering_a_death_in_mid_stream_goes_unseen(rig: Rig) -> None:
    first, second = await rig.node(), await rig.node()
    await rig.start(first, second, retry={"stream": "buffer"})
    client, call = await rig.run(first, stream=True)
    await call.start_stream()
    await call.chunk(EVENT)
    call.reset()
    again = await second.next_call()
    await again.start_stream()
    await again.chunk(b"data: whole\n\n")
    await again.end()
    head = await client.head()
    assert head.headers["x-forebay-node"] == "n2"
    assert await rest_of(client) == b"data: whole\n\n"


async def test_a_large_unary_answer_that_breaks_off_is_broken_off(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node)
    await call.write(b"HTTP/1.1 200 OK\r\ncontent-length: 900000\r\n\r\n{" + b" " * 600_000)
    await client.head()
    call.reset()
    with pytest.raises((EOFError, ConnectionResetError)):
        await client.chunk()


async def test_a_stream_asked_of_a_route_without_streams_harms_no_node(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    for _ in range(3):
        client = await rig.ask(path="/v1/embeddings", stream=True)
        await (await node.next_call()).answer({"data": []})
        assert (await client.reply()).status == 200
    assert rig.gateway.parts.nodes.any_up()


async def test_a_node_that_answers_a_stream_in_one_piece_is_passed_on(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.ask(stream=True)
    await (await node.next_call()).answer(OK)
    assert (await client.reply()).json == OK
