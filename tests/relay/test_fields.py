"""Reading what must be known of a body, small or large, and naming the field that is wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.relay.anthropic import ANTHROPIC
from forebay.relay.fields import LARGE_BYTES, prompt_tokens
from forebay.relay.members import InvalidBody
from forebay.relay.ollama import OLLAMA
from forebay.relay.openai import OPENAI

from .test_members import bodies, pairs_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.relay.family import Family
    from forebay.relay.fields import Fields

READ = {
    "small": OPENAI.reader.read,
    "large": lambda body: OPENAI.reader.read_large(body)[0],
}
OURS = {"model", "stream", "user"}  # those of our fields that `bodies` may draw
both_ways = pytest.mark.parametrize("read", READ.values(), ids=READ)


def is_acceptable(pairs: list[tuple[str, Any]]) -> bool:
    """Say, in other words than the reader's, whether a body of these members can be served."""
    ours = [(name, value) for name, value in pairs if name in OURS]
    said = dict(ours)
    return (
        len(said) == len(ours)
        and isinstance(said.get("model"), str)
        and 1 <= len(said["model"]) <= 1024
        and isinstance(said.get("stream"), bool | None)
        and isinstance(said.get("user"), str | None)
    )


@both_ways
@settings(deadline=None, max_examples=60)
@given(body=bodies())
def test_a_body_is_read_as_python_s_own_parser_reads_it(
    read: Callable[[bytes], Fields], body: bytes
) -> None:
    pairs = pairs_of(body)
    if not is_acceptable(pairs):
        with pytest.raises(InvalidBody):
            read(body)
        return
    fields, said = read(body), dict(pairs)
    assert fields.model == said["model"]
    assert OPENAI.is_stream(fields, "") == bool(said.get("stream"))
    assert fields.named_user() == (said.get("user") or None)


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=60))
def test_what_is_accepted_is_json(body: bytes) -> None:
    try:
        OPENAI.reader.read(body)
    except InvalidBody:
        return
    assert "model" in json.loads(body)


@settings(deadline=None, max_examples=60)
@given(body=bodies(), data=st.data())
def test_a_body_with_one_byte_changed_is_refused_or_still_json(
    body: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(body) - 1))
    changed = body[:at] + bytes([data.draw(st.integers(0, 255))]) + body[at + 1 :]
    try:
        OPENAI.reader.read(changed)
    except InvalidBody:
        return
    json.loads(changed.decode())


@both_ways
@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{}", "model"),
        (b'{"model": null}', "model"),
        (b'{"model": ["m"]}', "model"),
        (b'{"model": "m", "stream": 1}', "stream"),
        (b'{"model": "m", "user": {}}', "user"),
        (b'{"model": "m", "max_tokens": true}', "max_tokens"),
        (b'{"model": "m", "max_completion_tokens": "1"}', "max_completion_tokens"),
        (b'{"model": "m", "model": "m"}', "model"),
        (b'{"model": "m", "\\u006dodel": "n"}', "model"),
        (b'{"model": "m", "user": "a", "user": "b"}', "user"),
        (b'{"model": "m", "stream": false, "stream": true}', "stream"),
        (b'{"model": "m", "x": "\xc3("}', "body"),
        (b'{"model": "m"', "body"),
        (b"[1]", "body"),
    ],
)
def test_what_is_wrong_is_named(read: Callable[[bytes], Fields], body: bytes, param: str) -> None:
    with pytest.raises(InvalidBody) as error:
        read(body)
    assert error.value.param == param
    assert str(error.value)


@both_ways
def test_names_that_come_again_inside_others_are_nobody_s_business(
    read: Callable[[bytes], Fields],
) -> None:
    body = (
        b'{"model": "m", "messages": [{"model": "x", "user": "y"}, {"user": "z"}], "odd":1,"odd":2}'
    )
    assert read(body).model == "m"
    assert read(body).named_user() is None


@both_ways
def test_depth_is_refused_and_does_not_break_anything(read: Callable[[bytes], Fields]) -> None:
    body = b'{"model": "m", "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    with pytest.raises(InvalidBody, match="deep"):
        read(body)


def test_a_large_body_is_read_like_a_small_one() -> None:
    value = {"pad": "é" * LARGE_BYTES, "model": "m", "user": "u", "max_tokens": 7}
    fields, _ = OPENAI.reader.read_large(json.dumps(value, ensure_ascii=False).encode())
    assert (fields.model, fields.named_user(), fields.output_limit()) == ("m", "u", 7)


@pytest.mark.parametrize(
    ("family", "said", "limit"),
    [
        (OPENAI, {"max_tokens": 5}, 5),
        (OPENAI, {"max_completion_tokens": 6, "max_tokens": 5}, 6),
        (OPENAI, {"max_output_tokens": 7}, 7),
        (OPENAI, {"max_tokens": None}, 0),
        (OPENAI, {"max_tokens": 5.0}, 5),
        (OPENAI, {}, 0),
        (ANTHROPIC, {"max_tokens": 8}, 8),
        (OLLAMA, {"options": {"num_predict": 9}}, 9),
        (OLLAMA, {"options": {"num_ctx": 4096}}, 0),
        (OLLAMA, {"options": None}, 0),
    ],
)
def test_the_caller_s_own_limit_is_found(family: Family, said: dict[str, Any], limit: int) -> None:
    fields = family.reader.read(json.dumps({"model": "m", **said}).encode())
    assert fields.output_limit() == limit


LIMITS = st.sampled_from([None, 0, 1, 5, -1, 2.5, 10**12])
SAID = st.fixed_dictionaries(
    {},
    optional={
        "stream": st.sampled_from([None, True, False]),
        "user": st.sampled_from([None, "", "ann"]),
        "service_tier": st.sampled_from([None, "", "flex"]),
        "max_tokens": LIMITS,
        "max_completion_tokens": LIMITS,
        "max_output_tokens": LIMITS,
        "previous_response_id": st.sampled_from([None, "", "resp_1"]),
        "background": st.sampled_from([None, False, True]),
        "metadata": st.sampled_from([None, {}, {"user_id": "ann"}]),
        "options": st.sampled_from([None, {}, {"num_predict": 3}]),
        "temperature": st.just(0.5),
    },
)


@pytest.mark.parametrize("family", [OPENAI, ANTHROPIC, OLLAMA], ids=lambda family: family.name)
@settings(deadline=None, max_examples=200)
@given(said=SAID)
def test_a_plain_body_says_what_its_fields_would_if_asked(
    family: Family, said: dict[str, Any]
) -> None:
    reading = family.reader.look_at(json.dumps({"model": "m", **said}).encode())
    fields = reading.fields
    assert (reading.user, reading.tier) == (fields.named_user(), fields.tier())
    assert reading.unsupported == fields.unsupported()
    assert reading.output_limit == fields.output_limit()
    if reading.is_plain:
        assert family.is_stream(fields, "") == family.streams_by_default


@pytest.mark.parametrize(
    ("family", "default"), [(OPENAI, False), (ANTHROPIC, False), (OLLAMA, True)]
)
@pytest.mark.parametrize("stream", ["", ',"stream":true', ',"stream":false', ',"stream":null'])
def test_each_family_has_its_own_default_of_streaming(
    family: Family, default: bool, stream: str
) -> None:
    fields = family.reader.read(b'{"model":"m"%b}' % stream.encode())
    expected = {"": default, ',"stream":null': default}.get(stream, "true" in stream)
    assert family.is_stream(fields, "") is expected


def test_a_prompt_is_a_quarter_of_its_bytes_in_tokens_pictures_left_out() -> None:
    text = b'{"model":"m","prompt":"' + b"word " * 2000 + b'"}'
    assert prompt_tokens(text) == len(text) // 4
    picture = b"data:image/png;base64," + b"A" * 300_000
    with_picture = text[:-1] + b',"image":"%b"}' % picture
    assert len(text) // 4 <= prompt_tokens(with_picture) <= len(text) // 4 + 2048
