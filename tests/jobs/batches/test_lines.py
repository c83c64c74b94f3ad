"""What is wrong with a batch's input, line by line."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from forebay.jobs.batches import lines as batch_lines
from forebay.jobs.batches.lines import (
    LINE_BYTES_MAX,
    MODELS_MAX,
    BatchLine,
    LineError,
    Validation,
    raw_lines,
)

from ..desk import CHAT, jsonl, line

GOOD = line("good")


def validate(data: bytes, endpoint: str = CHAT) -> Validation:
    checked = Validation(endpoint, lambda model: model != "secret")
    checked.run(raw_lines(io.BytesIO(data)))
    return checked


def lines(data: bytes) -> list[BatchLine | None]:
    return [batch_lines.read(place, CHAT) for place in raw_lines(io.BytesIO(data))]


def test_a_line_is_read_with_its_body_as_it_is() -> None:
    body = '{ "model" : "m",\t"messages":[1.0, "\\u00e9\\n"], "seed":00000000000000000001e0}'
    body = body.replace("00000000000000000001e0", "12345678901234567890123456789")
    text = f'{{"body": {body} , "custom_id": "\\u00e9", "method": "POST", "url": "{CHAT}"}}'
    assert lines(text.encode()) == [BatchLine(1, "é", "m", body)]


def test_blank_lines_count_but_are_not_requests() -> None:
    data = b"\n" + jsonl([line("a")]) + b" \t\r\n\n" + jsonl([line("b")]).replace(b"\n", b"\r\n")
    checked = validate(data)
    assert (checked.total, checked.errors) == (2, [])
    assert [one.number for one in lines(data) if one is not None] == [2, 5]


def test_the_last_line_needs_no_end() -> None:
    assert validate(jsonl([line("a"), line("b")]).rstrip(b"\n")).total == 2


def test_places_say_where_the_next_line_begins() -> None:
    data = jsonl([line("a"), line("b"), line("c")])
    found = list(raw_lines(io.BytesIO(data)))
    assert found[-1].end == len(data)
    file = io.BytesIO(data)
    file.seek(found[0].end)
    assert list(raw_lines(file, 1)) == found[1:]


def changed(**members: Any) -> bytes:
    """A line with members replaced; None takes one away."""
    made = {name: value for name, value in {**GOOD, **members}.items() if value is not None}
    return json.dumps(made).encode()


def body(**members: Any) -> bytes:
    return changed(body={**GOOD["body"], **members})


WRONG = {
    "not JSON": (b"{custom_id: 1}", "invalid_json_line", None),
    "half a line": (changed()[:-2], "invalid_json_line", None),
    "two values": (changed() + b" {}", "invalid_json_line", None),
    "no object": (b"[1]", "invalid_type", None),
    "a number": (b"1", "invalid_type", None),
    "null": (b"null", "invalid_type", None),
    "not UTF-8": (changed(custom_id="x").replace(b'"x"', b'"\xff"'), "invalid_encoding", None),
    "not UTF-8 deep inside": (body(a="x").replace(b'"x"', b'"\xff"'), "invalid_encoding", None),
    "UTF-16": ("{}".encode("utf-16"), "invalid_encoding", None),
    "byte order mark": (b"\xef\xbb\xbf" + changed(), "invalid_encoding", None),
    "too deep": (body(a=1).replace(b": 1}", b": " + b"[" * 99999 + b"]" * 99999 + b"}"),
                 "invalid_json_line", None),
    "raw control character": (body(a="x").replace(b'"x"', b'"\x01"'), "invalid_json_line", None),
    "no custom_id": (changed(custom_id=None), "missing_required_parameter", "custom_id"),
    "custom_id a number": (changed(custom_id=7), "invalid_type", "custom_id"),
    "custom_id null": (changed().replace(b'"good", "method"', b'null, "method"'),
                       "invalid_type", "custom_id"),
    "custom_id empty": (changed(custom_id=""), "invalid_value", "custom_id"),
    "custom_id too long": (changed(custom_id="x" * 513), "invalid_value", "custom_id"),
    "custom_id with NUL": (changed(custom_id="a\0"), "invalid_value", "custom_id"),
    "custom_id half a pair": (changed(custom_id="\ud800"), "invalid_json_line", None),
    "no method": (changed(method=None), "missing_required_parameter", "method"),
    "method GET": (changed(method="GET"), "invalid_method", "method"),
    "method post": (changed(method="post"), "invalid_method", "method"),
    "method a list": (changed(method=["POST"]), "invalid_type", "method"),
    "no url": (changed(url=None), "missing_required_parameter", "url"),
    "another url": (changed(url="/v1/embeddings"), "mismatched_url", "url"),
    "whole url": (changed(url=f"http://here{CHAT}"), "mismatched_url", "url"),
    "no body": (changed(body=None), "missing_required_parameter", "body"),
    "body a list": (changed(body=[]), "invalid_type", "body"),
    "body a string": (changed(body="{}"), "invalid_type", "body"),
    "no model": (changed(body={"messages": []}), "missing_required_parameter", "body.model"),
    "model a number": (body(model=1), "invalid_type", "body.model"),
    "model null": (body(model=None), "invalid_type", "body.model"),
    "model empty": (body(model=""), "invalid_value", "body.model"),
    "model too long": (body(model="m" * 1025), "invalid_value", "body.model"),
    "model with NUL": (body(model="m\0"), "invalid_value", "body.model"),
    "model not allowed": (body(model="secret"), "model_not_allowed", "body.model"),
    "stream": (body(stream=True), "unsupported", "body.stream"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_line_is_named_with_its_number_and_field(name: str) -> None:
    text, code, param = WRONG[name]
    (error,) = validate(text + b"\n").errors
    assert (error.code, error.line, error.param) == (code, 1, param)
    assert error.message.endswith(".")


def test_right_lines_around_a_wrong_one_do_not_hide_it() -> None:
    data = jsonl([line("a")]) + b"\n{}\n" + jsonl([line("b")])
    checked = validate(data)
    assert [(error.line, error.param) for error in checked.errors] == [(3, "custom_id")]


def test_stream_false_and_null_are_fine() -> None:
    assert validate(jsonl([line("a", stream=False), line("b", stream=None)])).errors == []


def test_the_same_custom_id_twice_is_said_of_the_second() -> None:
    errors = validate(jsonl([line("a"), line("b"), line("a")])).errors
    assert [(error.code, error.line) for error in errors] == [("duplicate_custom_id", 3)]


@pytest.mark.parametrize("data", [b"", b"\n", b" \r\n\n"])
def test_a_file_without_requests_is_said_to_be_empty(data: bytes) -> None:
    assert validate(data).errors == [LineError("empty_file", "The file holds no requests.")]


def test_the_first_hundred_errors_are_kept() -> None:
    errors = validate(b"{}\n" * 500).errors
    assert [error.line for error in errors] == list(range(1, 101))


def test_one_request_too_many_is_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_lines, "LINES_MAX", 3)
    some = [line(str(i)) for i in range(5)]
    assert validate(jsonl(some[:3])).errors == []
    errors = validate(jsonl(some)).errors
    assert [(error.code, error.line) for error in errors] == [("too_many_lines", 4)]


@pytest.mark.parametrize(("more", "codes"), [(0, []), (1, ["line_too_long"])])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_line_has_a_bound_and_the_next_one_is_read_all_the_same(
    more: int, codes: list[str], end: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_lines, "LINE_BYTES_MAX", 5000)
    text = json.dumps(line("a", pad="")).encode()
    text = text.replace(b'"pad": ""', b'"pad": "' + b"x" * (5000 + more - len(text)) + b'"')
    errors = validate(text + end).errors
    assert [(error.code, error.line) for error in errors] == [(code, 1) for code in codes]
    long = b"x" * 20_000 + b"\n" + b"{}\n"
    assert [error.line for error in validate(long).errors] == [1, 2]


def test_the_bound_is_what_the_gateway_takes_of_one_request() -> None:
    assert LINE_BYTES_MAX == 33_554_432


def test_a_stop_ends_it_between_two_lines() -> None:
    def stop() -> None:
        raise InterruptedError

    checked = Validation(CHAT, lambda _: True)
    with pytest.raises(InterruptedError):
        checked.run(raw_lines(io.BytesIO(jsonl([line("a")]))), stop)


def test_a_batch_asks_a_bounded_number_of_models() -> None:
    made = [line(f"c{i}", model=f"m{i}") for i in range(MODELS_MAX + 1)]
    (error,) = validate(jsonl(made)).errors
    assert (error.code, error.line, error.param) == (
        "too_many_models",
        MODELS_MAX + 1,
        "body.model",
    )


def test_a_name_given_twice_in_a_body_is_refused_as_it_is_live() -> None:
    text = jsonl([line("a")]).replace(b'"model": "m"', b'"model": "secret", "model": "m"')
    (error,) = validate(text).errors
    assert (error.code, error.param) == ("invalid_value", "body.model")
