"""Text out of what nodes send, however it is cut into pieces."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.api.sessions import TokenUsage
from forebay.sessions.turn import ANSWER_CHARS_MAX, LINE_BYTES_MAX, AnswerReader, TooLong


def event(**chunk: object) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def delta(text: str, **more: object) -> bytes:
    return event(choices=[{"delta": {"content": text, **more}}])


@given(st.lists(st.text(), max_size=5), st.data())
def test_the_text_is_the_same_however_the_bytes_are_cut(
    texts: list[str], data: st.DataObject
) -> None:
    stream = b": hello\n\n" + b"".join(delta(text) for text in texts) + b"data: [DONE]\n\n"
    reader, heard = AnswerReader(), ""
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        heard += reader.feed(stream[:cut])[0]
        stream = stream[cut:]
    heard += reader.end()
    assert heard == reader.text == "".join(texts)


def test_the_end_brings_its_reason_and_the_cost() -> None:
    reader = AnswerReader()
    reader.feed(delta("hi"))
    reader.feed(event(choices=[{"delta": {}, "finish_reason": "length"}]))
    reader.feed(event(choices=[], usage={"prompt_tokens": 3, "completion_tokens": 4}))
    assert (reader.finish_reason, reader.usage) == ("length", TokenUsage(3, 4))


def test_thoughts_are_apart_from_the_answer() -> None:
    reader = AnswerReader()
    assert reader.feed(delta("", reasoning_content="hm")) == ("", "hm")
    assert reader.feed(delta("yes")) == ("yes", "")
    assert reader.text == "yes"


def test_a_node_that_does_not_stream_is_read_all_the_same() -> None:
    reader = AnswerReader()
    reader.is_stream = False
    body = json.dumps(
        {"choices": [{"message": {"content": "hi\n"}, "finish_reason": "stop"}]}, indent=1
    )
    reader.feed(body[:10].encode())
    reader.feed(body[10:].encode())
    assert reader.end() == "hi\n"
    assert reader.finish_reason == "stop"


@pytest.mark.parametrize(
    "more",
    [
        {"usage": {"prompt_tokens": None, "completion_tokens": 4}},
        {"usage": {"prompt_tokens": 5.0, "completion_tokens": "x"}},
        {"usage": {"prompt_tokens": -5, "completion_tokens": 4}},
        {"usage": {"prompt_tokens": int("9" * 401), "completion_tokens": 1}},
        {"model": 7},
        {"choices": [{"delta": {"content": "text", "reasoning": {}}, "finish_reason": 9}]},
        {"choices": [{"delta": {"content": [{"type": "text", "text": "text"}]}}]},
    ],
)
def test_a_side_field_that_makes_no_sense_does_not_cost_the_text(more: dict[str, object]) -> None:
    reader = AnswerReader()
    chunk = {"choices": [{"delta": {"content": "text"}}], **more}
    assert reader.feed(event(**chunk))[0] == "text"
    assert reader.usage is None


@pytest.mark.parametrize("is_stream", [True, False])
def test_json_without_bottom_is_not_understood_and_does_no_harm(is_stream: bool) -> None:
    reader = AnswerReader()
    reader.is_stream = is_stream
    reader.feed((b"data: " if is_stream else b"") + b"[" * 100_000)
    assert reader.end() == ""
    assert not reader.understood


def test_many_lines_of_one_body_are_not_read_again_and_again() -> None:
    reader = AnswerReader()
    reader.is_stream = False
    for _ in range(3000):
        reader.feed(b"\n" * 1000)
    assert len(reader._body) == 3_000_000
    with pytest.raises(TooLong):
        reader.feed(b" " * LINE_BYTES_MAX)


@pytest.mark.parametrize(
    "line",
    [b"data: nonsense\n", b"data: []\n", b'data: {"choices": "no"}\n', b"event: x\n", b"data:\n"],
)
def test_what_makes_no_sense_is_passed_over(line: bytes) -> None:
    reader = AnswerReader()
    assert reader.feed(line) == ("", "")
    assert reader.feed(delta("on")) == ("on", "")


def test_an_error_in_the_stream_is_kept() -> None:
    reader = AnswerReader()
    reader.feed(event(error={"message": "out of memory"}))
    assert reader.error == "out of memory"


def test_an_answer_without_end_is_cut_off() -> None:
    reader = AnswerReader()
    reader.feed(delta("x" * ANSWER_CHARS_MAX))
    with pytest.raises(TooLong):
        reader.feed(delta("x"))


def test_a_line_without_end_is_cut_off() -> None:
    reader = AnswerReader()
    reader.feed(b"x" * LINE_BYTES_MAX)
    with pytest.raises(TooLong):
        reader.feed(b"x")
