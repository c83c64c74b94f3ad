"""Nodes that answer badly: a turn ends whatever comes, and text that can be read is not lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from .session_steps import (
    answer,
    delta,
    finish,
    follow,
    look,
    new_session,
    prompt,
    started,
    until_turn,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from forebay.testing import Call

    from ..conftest import Rig

DEEP = b"[" * 3000 + b"]" * 3000
HUGE = b"1" + b"0" * 400


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


async def stream(call: Call, *events: bytes) -> None:
    """Answer with a stream of these, as they are."""
    await call.start_stream()
    for each in events:
        await call.chunk(each)
    await call.end()


async def huge_usage_in_a_stream(call: Call) -> None:
    usage = b'{"choices":[],"usage":{"prompt_tokens":%b,"completion_tokens":1}}' % HUGE
    await stream(call, delta("hi"), event(usage), event(b"[DONE]"))


async def huge_usage_in_a_body(call: Call) -> None:
    message = b'{"choices":[{"message":{"content":"hi"}}],'
    await call.answer(
        message + b'"usage":{"prompt_tokens":%b,"completion_tokens":%b}}' % (HUGE, HUGE)
    )


async def deep_event(call: Call) -> None:
    await stream(call, delta("hi"), event(b'{"choices":[],"x":%b}' % DEEP), event(b"[DONE]"))


async def deep_event_at_the_end(call: Call) -> None:
    await stream(call, delta("hi"), b'data: {"choices":[],"x":%b}' % DEEP)


async def deep_body(call: Call) -> None:
    await call.answer(b'{"choices":[{"message":{"content":"hi"}}],"x":%b}' % DEEP)


async def deep_error(call: Call) -> None:
    await stream(call, delta("hi"), event(b'{"error":%b}' % DEEP))


async def half_a_character_as_the_reason(call: Call) -> None:
    chunk = b'{"choices":[{"delta":{"content":"hi"},"finish_reason":"\\ud83d"}]}'
    await stream(call, event(chunk), event(b"[DONE]"))


async def half_a_character_as_the_error(call: Call) -> None:
    await stream(call, delta("hi"), event(b'{"error":{"message":"\\ud83d"}}'))


async def half_a_character_in_a_refusal(call: Call) -> None:
    await call.answer(b'{"error":{"message":"no \\ud83d"}}', 400)


async def infinitely_many_tokens(call: Call) -> None:
    usage = b'{"choices":[],"usage":{"prompt_tokens":1e999,"completion_tokens":NaN}}'
    await stream(call, delta("hi"), event(usage), event(b"[DONE]"))


async def deep_refusal(call: Call) -> None:
    await call.answer(b'{"error":%b}' % DEEP, 400)


@pytest.mark.parametrize(
    "badly",
    [
        huge_usage_in_a_stream,
        huge_usage_in_a_body,
        deep_event,
        deep_event_at_the_end,
        deep_body,
        deep_error,
        deep_refusal,
        half_a_character_as_the_reason,
        half_a_character_as_the_error,
        half_a_character_in_a_refusal,
        infinitely_many_tokens,
    ],
)
async def test_an_answer_that_breaks_the_reader_ends_its_turn_and_holds_up_nobody(
    rig: Rig, badly: Callable[[Call], Coroutine[Any, Any, None]]
) -> None:
    node = await started(rig)
    session = await new_session(rig)
    events = await follow(rig, session)
    first, second = await prompt(rig, session, "one"), await prompt(rig, session, "two")
    await badly(await node.next_call())
    await events.end_of(first)
    await answer(await node.next_call(), "dos")
    assert (await events.end_of(second))["text"] == "dos"
    assert (await rig.queue())["processing"] == 0


# -- one field that is of another type than it should be


def body(content: object = "hi", **more: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": content}, "finish_reason": "stop"}], **more}


MISTYPED: dict[str, dict[str, Any]] = {
    "a count that is null": body(usage={"prompt_tokens": None, "completion_tokens": 1}),
    "a count with a point": body(usage={"prompt_tokens": 5.0, "completion_tokens": 1}),
    "usage that is a text": body(usage="much"),
    "a model that is a number": body(model=7),
    "text in parts": body([{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]),
    "thoughts that are an object": {
        "choices": [{"message": {"content": "hi", "reasoning": {"x": 1}}, "finish_reason": "stop"}]
    },
    "a reason that is a number": {"choices": [{"message": {"content": "hi"}, "finish_reason": 3}]},
}


@pytest.mark.parametrize("sent", MISTYPED.values(), ids=MISTYPED.keys())
@pytest.mark.parametrize("streamed", [False, True], ids=["body", "stream"])
async def test_a_side_field_of_another_type_does_not_lose_the_text(
    rig: Rig, sent: dict[str, Any], streamed: bool
) -> None:
    node = await started(rig)
    session = await new_session(rig)
    prompt_id = await prompt(rig, session)
    call = await node.next_call()
    if streamed:
        chunk = json.dumps(sent).replace('"message"', '"delta"').encode()
        await stream(call, event(chunk), event(b"[DONE]"))
    else:
        await call.answer(sent)
    seen = await until_turn(rig, session, prompt_id, "completed", "failed")
    assert (seen["status"], seen["text"]) == ("completed", "hi")


async def test_half_a_character_does_not_lose_the_rest(rig: Rig) -> None:
    node = await started(rig)
    session = await new_session(rig)
    events = await follow(rig, session)
    prompt_id = await prompt(rig, session)
    call = await node.next_call()
    await call.start_stream()
    await call.chunk(delta("good "))
    await call.chunk(event(b'{"choices":[{"delta":{"content":"mor\\ud83d"}}]}'))
    await call.chunk(delta("ning"))
    await finish(call)
    end = await events.end_of(prompt_id)
    assert end["text"].replace("\ufffd", "").replace("?", "") == "good morning"
    told = "".join(e["text"] for e in events.seen if e["type"] == "text_delta")
    assert told == end["text"]


@pytest.mark.parametrize("counts", [(-5, 1), (5, -1), (-5, -1)])
async def test_a_negative_count_is_not_passed_on(rig: Rig, counts: tuple[int, int]) -> None:
    node = await started(rig)
    session = await new_session(rig)
    prompt_id = await prompt(rig, session)
    usage = {"prompt_tokens": counts[0], "completion_tokens": counts[1]}
    await (await node.next_call()).answer(body(usage=usage))
    seen = await until_turn(rig, session, prompt_id, "completed", "failed")
    assert (seen["status"], seen["text"]) == ("completed", "hi")
    assert seen["usage"] is None or min(seen["usage"].values()) >= 0


async def after_all_tries(rig: Rig, session: str, prompt_id: str) -> dict[str, Any]:
    """Let time pass, a second a turn: what is no answer at all is asked for again."""
    for _ in range(30):
        await rig.queue()
        rig.clock.advance(1.0)
    return await until_turn(rig, session, prompt_id, "completed", "failed")


@pytest.mark.parametrize(
    "sent",
    [b"<html>welcome</html>", b"{}", b"[]", b'"hi"', b'{"choices": {}}', b'{"result": "hi"}'],
)
async def test_an_answer_of_which_nothing_can_be_read_is_a_failure(rig: Rig, sent: bytes) -> None:
    node = await started(rig)
    node.automatic = lambda call: call.answer(sent)
    session = await new_session(rig)
    prompt_id = await prompt(rig, session)
    seen = await after_all_tries(rig, session, prompt_id)
    assert (seen["status"], seen["error"]["code"]) == ("failed", "node_failed")
    assert (await look(rig, f"/session/{session}/messages"))["messages"] == []


async def test_a_stream_of_which_nothing_can_be_read_is_a_failure(rig: Rig) -> None:
    node = await started(rig)
    node.automatic = lambda call: stream(call, b"Hello, I am no event stream\n", b"at all\n")
    session = await new_session(rig)
    prompt_id = await prompt(rig, session)
    seen = await after_all_tries(rig, session, prompt_id)
    assert (seen["status"], seen["error"]["code"]) == ("failed", "node_failed")


async def test_an_answer_that_is_empty_but_well_formed_is_an_answer(rig: Rig) -> None:
    node = await started(rig)
    session = await new_session(rig)
    prompt_id = await prompt(rig, session)
    call = await node.next_call()
    await call.start_stream()
    await finish(call)
    seen = await until_turn(rig, session, prompt_id, "completed", "failed")
    assert (seen["status"], seen["text"]) == ("completed", "")


# -- one that does not end


async def send_on(call: Call, piece: bytes) -> None:
    """Send a piece again and again, as long as the gateway takes it."""
    for _ in range(1000):
        await call.chunk(piece)


async def test_a_body_of_many_small_lines_is_read_and_one_without_end_fails_the_turn(
    rig: Rig,
) -> None:
    node = await started(rig)
    session = await new_session(rig)
    prompt_ids = [await prompt(rig, session), await prompt(rig, session)]
    events = await follow(rig, session)
    first = await node.next_call()
    await first.start_stream({"content-type": "application/json"})
    for _ in range(300):
        await first.chunk(b"\n" * 1000)
    await first.chunk(json.dumps(body()).encode())
    await first.end()
    assert (await events.end_of(prompt_ids[0]))["text"] == "hi"
    second = await node.next_call()
    await second.start_stream({"content-type": "application/json"})
    with pytest.raises(ConnectionResetError):
        await send_on(second, b"\n" * 65_536)
    end = await events.end_of(prompt_ids[1])
    assert end["error"]["code"] in ("answer_too_large", "node_failed")
