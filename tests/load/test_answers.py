"""Reading answers: streamed and whole, good, bad and broken off, in pieces of any size."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.load.answers import MeasuredAnswer
from forebay.load.samples import RequestSample

SSE = {"content-type": "text/event-stream; charset=utf-8"}
JSON = {"content-type": "application/json"}
ORIGIN_S = 100.0
CHOICE = b'{"choices": [{"message": {}}]}'


def event(value: object) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def word(text: str = "word", **more: Any) -> bytes:
    return event({"choices": [{"delta": {"content": text}, "finish_reason": None}], **more})


FINISH = event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
USAGE = event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 30}})
DONE = event(b"[DONE]")


def reading(headers: dict[str, str], status: int = 200) -> MeasuredAnswer:
    answer = MeasuredAnswer(RequestSample(0.0, "u", "p"), ORIGIN_S)
    answer.head(status, headers)
    return answer


def read(*pieces: bytes, headers: dict[str, str] = SSE, status: int = 200) -> RequestSample:
    """Feed pieces one second apart, and end."""
    answer = reading(headers, status)
    for i, piece in enumerate(pieces):
        answer.body(piece, ORIGIN_S + 1 + i)
    answer.end(ORIGIN_S + 1 + len(pieces))
    return answer.sample


def test_a_stream_is_timed_from_its_first_word_and_between_words() -> None:
    opening = event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    sample = read(opening, word(), word(), word(), FINISH + DONE)
    assert (sample.code, sample.ttft_s, sample.total_s) == ("", 2.0, 6.0)
    assert (sample.tokens_out, sample.gap_s, sample.gap_max_s) == (3, 1.0, 1.0)


def test_the_count_of_the_server_goes_before_the_count_of_pieces() -> None:
    sample = read(word(), word(), FINISH, USAGE + DONE)
    assert (sample.tokens_in, sample.tokens_out) == (9, 30)
    assert sample.gap_s == pytest.approx(1.0 / 29)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "tool_calls", "refusal"])
def test_what_a_model_thinks_calls_or_declines_are_tokens_too(field: str) -> None:
    sample = read(event({"choices": [{"delta": {field: "x"}}]}), FINISH)
    assert sample.ttft_s == 1.0


def test_a_completion_of_the_older_kind_is_read() -> None:
    assert read(event({"choices": [{"text": "x", "finish_reason": "stop"}]})).ttft_s == 1.0


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_where_the_bytes_are_cut_makes_no_difference(data: st.DataObject) -> None:
    stream = b": queued position=3 eta=12\n\n: started node=gpu1 waited_ms=20123\r\n\r\n"
    stream += word("\u6c34") + word() + FINISH + USAGE + DONE
    cuts = sorted(data.draw(st.sets(st.integers(1, len(stream) - 1), max_size=12)))
    edges = [0, *cuts, len(stream)]
    answer = reading(SSE)
    for start, end in pairwise(edges):
        answer.body(stream[start:end], ORIGIN_S + 1)
    answer.end(ORIGIN_S + 2)
    sample = answer.sample
    assert (sample.code, sample.tokens_out, sample.ttft_s) == ("", 30, 1.0)
    assert (sample.node, sample.wait_s) == ("gpu1", 20.123)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=80), max_size=8))
def test_no_bytes_break_the_reading(pieces: list[bytes]) -> None:
    for headers in (SSE, JSON):
        sample = read(*pieces, headers=headers)
        assert sample.code in ("stream_cut", "bad_answer")


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_may_end_in_any_way_that_the_standard_knows(end: bytes) -> None:
    stream = [piece.replace(b"\n", end) for piece in (word(), word(), FINISH + USAGE + DONE)]
    sample = read(*stream)
    assert (sample.code, sample.ttft_s, sample.gap_max_s, sample.tokens_out) == ("", 1.0, 1.0, 30)


def test_the_kind_of_an_answer_may_be_written_in_any_case() -> None:
    sample = read(word() + FINISH + DONE, headers={"content-type": "Text/Event-Stream"})
    assert (sample.code, sample.ttft_s) == ("", 1.0)


def test_a_stream_that_fails_half_way_is_an_error_with_its_code() -> None:
    error = {"error": {"message": "node died", "type": "node_failed", "code": "node_failed"}}
    answer = reading(SSE)
    answer.body(word() + event(error) + word(), ORIGIN_S + 1)
    answer.end(ORIGIN_S + 2)
    assert answer.sample.code == "node_failed"
    assert answer.message == "node died"
    assert not answer.sample.is_ok
    assert answer.sample.tokens_out == 1


def test_a_stream_that_just_stops_is_cut() -> None:
    assert read(word(), word()).code == "stream_cut"
    assert read().code == "stream_cut"


def test_rubbish_in_a_stream_is_a_bad_answer() -> None:
    assert read(b"data: {oops\n\n", DONE).code == "bad_answer"
    assert read(event({"choices": "many"}), DONE).code == "bad_answer"


@pytest.mark.parametrize(
    "stream",
    [DONE, USAGE.replace(b"30", b"0") + DONE, event({"choices": [{"delta": {}}]}) + DONE, DONE * 3],
)
def test_a_stream_without_a_word_or_a_reason_is_no_answer(stream: bytes) -> None:
    assert read(stream).code == "bad_answer"


def test_an_empty_answer_that_says_why_it_ended_is_one() -> None:
    assert read(FINISH + DONE).code == ""
    assert read(USAGE + DONE).code == ""  # it has counted tokens that it did not show


def test_an_answer_that_ended_in_an_error_is_none() -> None:
    broken = event({"choices": [{"delta": {}, "finish_reason": "error"}]})
    assert read(broken + DONE).code == "finish_error"
    assert read(word() + broken + DONE).code == "finish_error"
    body = b'{"choices": [{"message": {}, "finish_reason": "error"}]}'
    assert read(body, headers=JSON).code == "finish_error"


@pytest.mark.parametrize(
    "body", [b'{"choices": []}', b'{"choices": [{}]}', b'{"choices": [null, 3]}', b"{}", b"[]"]
)
def test_a_whole_answer_without_a_choice_is_none(body: bytes) -> None:
    assert read(body, headers=JSON).code == "bad_answer"


@pytest.mark.parametrize("count", ["-5000000000", "-1", "1" + "0" * 400, "10000000000", "true"])
def test_a_count_that_cannot_be_is_not_taken(count: str) -> None:
    usage = f'"usage": {{"prompt_tokens": {count}, "completion_tokens": {count}}}'
    whole = read(f'{{"choices": [{{"message": {{}}}}], {usage}}}'.encode(), headers=JSON)
    assert (whole.code, whole.tokens_in, whole.tokens_out) == ("", None, 0)
    if count != "true":  # of a stream that is not even a number
        stream = read(word() + word() + event(f'{{"choices": [], {usage}}}'.encode()) + DONE)
        assert (stream.tokens_in, stream.tokens_out) == (None, 2)


def test_a_line_without_end_is_not_kept() -> None:
    answer = reading(SSE)
    for _ in range(5):
        answer.body(b"x" * 1_000_000, ORIGIN_S + 1)
    assert answer.sample.code == "answer_too_large"
    answer.body(b"more", ORIGIN_S + 2)
    answer.end(ORIGIN_S + 3)
    assert answer.sample.code == "answer_too_large"


def test_a_whole_answer_has_no_first_token() -> None:
    body = {"choices": [{"message": {}}], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    sample = read(json.dumps(body).encode(), headers=JSON)
    assert (sample.code, sample.ttft_s, sample.total_s) == ("", None, 2.0)
    assert (sample.tokens_in, sample.tokens_out) == (3, 4)


def test_what_a_forebay_gateway_tells_is_read() -> None:
    headers = {"x-queue-status": "queued", "x-queue-wait-ms": "1500", "x-forebay-node": "gpu\x1b1"}
    sample = read(CHOICE, headers=JSON | headers)
    assert (sample.queued, sample.wait_s, sample.node) == (True, 1.5, "gpu?1")
    other = read(CHOICE, headers=JSON)
    assert (other.queued, other.wait_s, other.node) == (None, None, "")
    odd = read(CHOICE, headers=JSON | {"x-queue-wait-ms": "soon"})
    assert odd.wait_s is None


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (429, b'{"error": {"code": "queue_full", "type": "x", "message": "full"}}', "queue_full"),
        (400, b'{"error": {"code": null, "type": "invalid_request"}}', "invalid_request"),
        (500, b'{"error": "boom"}', "http_500"),
        (502, b"<html>bad gateway</html>", "http_502"),
        (503, b"", "http_503"),
        (302, b"", "http_302"),
        (200, b"<html>welcome</html>", "bad_answer"),
        (200, b'{"error": {"code": "oops"}}', "oops"),
        (429, json.dumps({"error": {"code": "<b>\n" * 99}}).encode(), "<b>?" * 16),
    ],
)
def test_a_refusal_has_a_code_whoever_says_it(status: int, body: bytes, code: str) -> None:
    assert read(body, headers=JSON, status=status).code == code


def test_how_long_was_waited_in_vain_is_kept() -> None:
    body = b'{"error": {"code": "queue_timeout", "waited_seconds": 60.0}}'
    sample = read(body, headers=JSON, status=504)
    assert (sample.code, sample.wait_s) == ("queue_timeout", 60.0)


@pytest.mark.parametrize("waited", ["1" + "0" * 400, "-1", "1e300", "true and more"])
def test_a_wait_that_cannot_have_been_is_not_kept(waited: str) -> None:
    body = f'{{"error": {{"code": "queue_timeout", "waited_seconds": {waited}}}}}'.encode()
    sample = read(body, headers=JSON, status=504)
    assert sample.wait_s is None
    assert not sample.is_ok


def test_when_to_come_again_is_read() -> None:
    assert reading({"retry-after": "3"}, 429).retry_after_s == 3.0
    assert reading({"retry-after": "3", "retry-after-ms": "2500"}, 429).retry_after_s == 2.5
    assert reading({"retry-after": "Wed, 21 Oct"}, 429).retry_after_s is None
