"""Chats through the real gateway: the answer, the place in line, and every way to fail."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from forebay.sdk import (
    AsyncClient,
    Busy,
    ClientClosed,
    Delta,
    Done,
    GatewayAway,
    GatewayError,
    NotFound,
    Queued,
    Refused,
    Started,
    Usage,
)

from .conftest import HighestChance, QuickPace, StillPace, piece, say

if TYPE_CHECKING:
    from forebay.sdk.values import Piece

    from .conftest import Place

MESSAGES = [{"role": "user", "content": "hello"}]


async def test_an_answer_comes_whole_with_what_the_gateway_knows_of_it(place: Place) -> None:
    node = await place.node()
    await place.start(node)
    client = await place.client()
    asking = asyncio.ensure_future(client.chat("m", "hello", temperature=0.5, priority="high"))
    call = await node.next_call()
    assert call.json["messages"] == MESSAGES
    assert (call.json["temperature"], call.json["stream"]) == (0.5, True)
    await call.start_stream()
    await call.chunk(piece("the ") + piece("answer", "stop"))
    usage = b'{"prompt_tokens": 5, "completion_tokens": 2}'
    await call.chunk(b'data: {"model": "m1", "choices": [], "usage": %b}\n\n' % usage)
    await call.chunk(b"data: [DONE]\n\n")
    await call.end()
    answer = await asking
    assert (answer.text, answer.finish_reason) == ("the answer", "stop")
    assert (answer.node, answer.waited_ms, answer.position) == ("n1", 0, None)
    assert (answer.usage, answer.model) == (Usage(5, 2), "m1")
    assert answer.request_id == call.headers["x-request-id"]


async def test_thoughts_and_tool_calls_are_put_together(place: Place) -> None:
    node = await place.node()
    await place.start(node)
    client = await place.client()
    asking = asyncio.ensure_future(client.chat("m", MESSAGES))
    call = await node.next_call()
    await call.start_stream()
    for delta in (
        '{"reasoning_content": "hm"}',
        '{"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": ""}}]}',
        '{"tool_calls": [{"index": 0, "function": {"arguments": "{\\"a\\""}}]}',
        '{"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}',
    ):
        await call.chunk(f'data: {{"choices": [{{"delta": {delta}}}]}}\n\n'.encode())
    await call.chunk(b"data: [DONE]\n\n")
    await call.end()
    answer = await asking
    assert (answer.text, answer.reasoning) == ("", "hm")
    function = {"name": "f", "arguments": '{"a": 1}'}
    assert answer.tool_calls == ({"id": "c1", "type": "function", "function": function},)


async def test_whoever_waits_is_told_place_and_estimate_before_the_first_keep_alive(
    place: Place,
) -> None:
    node = await place.node()
    await place.start(node)
    client = await place.client()
    first = asyncio.ensure_future(client.chat("m", "hello"))
    running = await node.next_call()
    told: asyncio.Queue[Queued] = asyncio.Queue()
    second = asyncio.ensure_future(client.chat("m", "hello", on_queue=told.put_nowait))
    assert (await told.get()).position == 1
    await say(running, "one")
    assert (await first).text == "one"
    await say(await node.next_call(), "two")
    answer = await second
    assert (answer.text, answer.position) == ("two", 1)
    assert answer.waited_ms is not None


async def test_keep_alive_comments_tell_the_place_too(place: Place) -> None:
    node = await place.node()
    await place.start(node, queue={"keepalive_seconds": 0.05})
    place.pace = StillPace()  # so that nobody asks
    client = await place.client()
    first = asyncio.ensure_future(client.chat("m", "hello"))
    running = await node.next_call()
    pieces: list[Piece] = []
    waiting = asyncio.Event()

    async def read() -> None:
        async for found in client.stream("m", "hello"):
            pieces.append(found)
            waiting.set()

    reading = asyncio.ensure_future(read())
    await waiting.wait()
    await say(running, "one")
    await say(await node.next_call(), "two")
    await first
    await reading
    assert pieces[0] == Queued(1, None)
    (started,) = [found for found in pieces if isinstance(found, Started)]
    assert started.node == "n1"
    assert started.waited_ms
    assert [found for found in pieces if isinstance(found, Delta)] == [Delta("two")]
    assert isinstance(pieces[-1], Done)
    assert (pieces[-1].answer.node, pieces[-1].answer.position) == ("n1", 1)


async def test_a_node_that_does_not_stream_is_understood(place: Place) -> None:
    node = await place.node()
    await place.start(node)
    client = await place.client()
    asking = asyncio.ensure_future(client.chat("m", "hello"))
    message = {"role": "assistant", "content": "whole"}
    call = await node.next_call()
    await call.answer({"choices": [{"message": message, "finish_reason": "stop"}]})
    assert (await asking).text == "whole"


async def test_leaving_a_stream_ends_the_request_at_the_node(place: Place) -> None:
    node = await place.node()
    await place.start(node)
    client = await place.client()
    async with aclosing(client.stream("m", "hello")) as pieces:
        reading = asyncio.ensure_future(anext(pieces))
        call = await node.next_call()
        await call.start_stream()
        await call.chunk(piece("a"))
        assert isinstance(await reading, Started)
    await call.gone()


async def test_cancelling_a_chat_that_waits_takes_it_out_of_the_line(place: Place) -> None:
    node = await place.node()
    await place.start(node)
    client = await place.client()
    first = asyncio.ensure_future(client.chat("m", "hello"))
    running = await node.next_call()
    told = asyncio.Event()
    second = asyncio.ensure_future(client.chat("m", "hello", on_queue=lambda _: told.set()))
    await told.wait()
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    while (await client.queue()).waiting:
        pass
    await say(running, "one")
    await first
    assert node.running == 0


async def test_an_unknown_model_is_not_found(place: Place) -> None:
    await place.start(await place.node())
    client = await place.client()
    with pytest.raises(NotFound) as caught:
        await client.chat("other", "hello")
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")
    assert caught.value.request_id


async def test_a_wrong_field_is_named(place: Place) -> None:
    await place.start(await place.node())
    client = await place.client()
    with pytest.raises(Refused) as caught:
        await client.chat("m", "hello", max_tokens="many")
    assert (caught.value.status, caught.value.param) == (400, "max_tokens")


async def test_a_full_queue_is_tried_again_and_then_told(place: Place) -> None:
    node = await place.node()
    await place.start(node, queue={"max_size": 1})
    client = await place.client()
    running = asyncio.ensure_future(client.chat("m", "hello"))
    call = await node.next_call()
    told = asyncio.Event()
    waiting = asyncio.ensure_future(client.chat("m", "hello", on_queue=lambda _: told.set()))
    await told.wait()
    other = await place.client(pace=(pace := type(place.pace)()))
    with pytest.raises(Busy) as caught:
        await other.chat("m", "hello")
    assert (caught.value.status, caught.value.code) == (429, "queue_full")
    assert caught.value.retry_after_s is not None
    assert len([seconds for seconds in pace.slept if seconds != 1.0]) == 2
    for task in (running, waiting):
        task.cancel()
    await asyncio.gather(running, waiting, return_exceptions=True)
    await call.gone()


async def test_an_error_inside_a_stream_is_raised(place: Place) -> None:
    node = await place.node()
    await place.start(node)
    client = await place.client()
    asking = asyncio.ensure_future(client.chat("m", "hello"))
    call = await node.next_call()
    await call.start_stream()
    await call.chunk(piece("half"))
    call.reset()
    with pytest.raises(GatewayError) as caught:
        await asking
    assert (caught.value.status, caught.value.code) == (200, "node_failed")


async def test_a_stream_that_just_ends_is_no_answer(place: Place) -> None:
    node = await place.node()
    await place.start(node)
    client = await place.client()
    asking = asyncio.ensure_future(client.chat("m", "hello"))
    call = await node.next_call()
    await call.start_stream()
    await call.chunk(piece("half"))
    await call.end()
    with pytest.raises(GatewayAway, match="broke off"):
        await asking


async def test_nothing_there_is_said_after_the_retries() -> None:
    pace = QuickPace()
    async with AsyncClient("http://127.0.0.1:9", pace=pace, random=HighestChance()) as client:
        with pytest.raises(GatewayAway) as caught:
            await client.chat("m", "hello")
    assert not caught.value.sent
    assert [seconds for seconds in pace.slept if seconds != 1.0][:1] == [0.5]


async def test_closing_in_the_middle_of_a_chat_ends_the_wait(place: Place) -> None:
    node = await place.node()
    await place.start(node)
    client = await place.client()
    asking = asyncio.ensure_future(client.chat("m", "hello"))
    call = await node.next_call()
    await client.close()
    with pytest.raises(ClientClosed):
        await asking
    await call.gone()
    with pytest.raises(ClientClosed):
        await client.health()


async def test_one_answer_at_a_time() -> None:
    async with AsyncClient() as client:
        with pytest.raises(ValueError, match="n: one"):
            await client.chat("m", "hello", n=2)
