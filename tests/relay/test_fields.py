"""Reading what must be known of a body, small or large, and naming the field that is wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from forebay.relay.anthropic import ANTHROPIC
from forebay.relay.fields import (
    INLINE_BYTES,
    bounded_limit,
    find_model,
    prompt_tokens,
    replace_model,
)
from forebay.relay.members import BRACKETS_FREE, DEPTH_MAX, MEMBERS_MAX, InvalidBody
from forebay.relay.ollama import OLLAMA
from forebay.relay.openai import OPENAI, OpenAIFields

from .test_members import NAMES, WAYS, bodies, pairs_of, read_so, scan_members

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.relay.family import Family
    from forebay.relay.fields import BodyReading, Fields


def in_slices(body: bytes, family: Family = OPENAI) -> BodyReading:
    """Read a body in slices, to its end."""
    slices = family.reader.read_in_slices(body)
    while True:
        try:
            next(slices)
        except StopIteration as end:
            reading: BodyReading = end.value
            return reading


READ: dict[str, Callable[[bytes], Fields]] = {
    "small": OPENAI.reader.read,
    "large": lambda body: in_slices(body).fields,
}
PUT = [
    b'"',
    b"\\",
    b",",
    b"]",
    b"}",
    b'"Model":1,',
    b'"user":null,',
    b"\\ud800",
    b"\\u0061",
    b"\xc5\xbf",
]
NAMES_READ = {field.encode_name for field in msgspec.structs.fields(OpenAIFields)}
OURS = {"model", "stream", "user"}  # those of our fields that `bodies` may draw
both_ways = pytest.mark.parametrize("read", READ.values(), ids=READ)


def is_acceptable(pairs: list[tuple[str, Any]]) -> bool:
    """Say, in other words than the reader's, whether a body of these members can be served."""
    ours = [(name, value) for name, value in pairs if name in OURS]
    said = dict(ours)
    return (
        len(said) == len(ours)
        and not any(
            n not in OURS and n.lower().replace("\u017f", "s") in NAMES_READ for n, _ in pairs
        )
        and isinstance(said.get("model"), str)
        and 1 <= len(said["model"]) <= 1024
        and isinstance(said.get("stream"), bool | None)
        and isinstance(said.get("user"), str | None)
    )


@settings(deadline=None, max_examples=60)
@given(body=bodies())
def test_a_body_is_read_as_python_s_own_parser_reads_it(body: bytes) -> None:
    pairs = pairs_of(body)
    for read in READ.values():
        if not is_acceptable(pairs):
            with pytest.raises(InvalidBody):
                read(body)
            continue
        fields, said = read(body), dict(pairs)
        assert fields.model == said["model"]
        assert OPENAI.is_stream(fields, "") == bool(said.get("stream"))
        assert (fields.told()[0] or None) == (said.get("user") or None)


def expected(body: bytes) -> str:
    """Return the model that a body asks for, or nothing where it must be refused.

    Written for nothing but to be plainly right: Python's parser, and the rules one by one.
    """
    try:
        pairs = json.loads(body.decode(), object_pairs_hook=Pairs, parse_constant=refuse)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(pairs, Pairs) or has_surrogates(pairs):
        return ""
    names = [name for name, _ in pairs]
    for name in names:
        folded = name.replace("\u017f", "s").replace("\u212a", "k")
        folded = "".join(letter.lower() if letter.isascii() else letter for letter in folded)
        if folded in NAMES_READ and (name != folded or names.count(name) > 1):
            return ""
    return dict(pairs)["model"] if is_acceptable(pairs) else ""


class Pairs(list[tuple[str, Any]]):
    """The members of an object, so that it is not taken for a list."""


def refuse(constant: str) -> None:
    """Refuse NaN and its like, which Python's parser takes for numbers."""
    raise ValueError(constant)


def has_surrogates(value: object) -> bool:
    """Say whether there is half a surrogate pair anywhere."""
    try:
        str(value).encode()
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def read_somehow(read: Callable[[bytes], Fields], body: bytes) -> str:
    """Return the model that is found, or nothing where the body is refused."""
    try:
        return read(body).model
    except InvalidBody:
        return ""


@settings(deadline=None, max_examples=200)
@given(body=bodies(), data=st.data())
def test_all_ways_to_read_a_body_and_a_plain_reference_agree(
    body: bytes, data: st.DataObject
) -> None:
    if data.draw(st.booleans()):
        at = body.index(b"{") + 1
        rest = b"," if pairs_of(body) else b""
        body = body[:at] + b'"model":"x"' + rest + body[at:]
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, len(body)))
        put = data.draw(st.one_of(st.binary(max_size=1), st.sampled_from(PUT)))
        body = body[:at] + put + body[at + data.draw(st.integers(0, 1)) :]
    agreed = dict.fromkeys(READ, expected(body.removeprefix(b"\xef\xbb\xbf")))
    for how in WAYS:
        with read_so(how):
            found = {name: read_somehow(read, body) for name, read in READ.items()}
        assert found == agreed, (how, body)


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
        (b'{"model": "m", "MODEL": "n"}', "model"),
        (b'{"Model": "n", "model": "m"}', "model"),
        (b'{"model": "m", "Stream": true}', "stream"),
        ('{"model": "m", "\u017ftream": true}'.encode(), "stream"),
        ('{"model": "m", "max_to\u212aens": 1}'.encode(), "max_tokens"),
        (b'{"model": "m", "max_to\\u212Aens": 1}', "max_tokens"),
        (b'{"model": "m", "\\u0055ser": "u"}', "user"),
        (b'{"Model": "m"}', "model"),
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


SCHEMA = {"properties": {"Model": {}, "MODEL": {}, "user": {}, "User": {}, "stream": {"Stream": 1}}}


@both_ways
def test_names_further_down_are_nobody_s_business(read: Callable[[bytes], Fields]) -> None:
    said = {"model": "m", "messages": [{"model": "x", "User": "y"}, {"user": "z"}], "tools": SCHEMA}
    body = json.dumps(said).encode()
    body = body[:-1] + b', "odd":1,"odd":2,"Odd":3}'
    assert read(body).model == "m"
    assert not read(body).told()[0]


@both_ways
def test_only_what_simple_case_folding_makes_ours_is_refused(
    read: Callable[[bytes], Fields],
) -> None:
    for name in (
        "\ufb06ream",
        "modél",
        "models",
        "mod\u00ebl",
        "us\u0435r",
        "max-tokens",
        "mode\\u006c\\n",
    ):
        assert read(f'{{"model": "m", "{name}": 1}}'.encode()).model == "m"


@pytest.mark.parametrize("in_one_go", [True, False])
@pytest.mark.parametrize(
    ("family", "inside", "param"),
    [
        (OLLAMA, '{"num_predict": 5, "num_predict": 6}', "options.num_predict"),
        (OLLAMA, '{"num_predict": 5, "num_\\u0070redict": 6}', "options.num_predict"),
        (OLLAMA, '{"Num_Predict": 6}', "options.num_predict"),
        (OLLAMA, '{"num_predict": 5, "NUM_PREDICT": 6}', "options.num_predict"),
        (OLLAMA, '{"num_predict": 5, "model": 1, "x": {"Num_Predict": 1}, "x": 2}', None),
        (OLLAMA, "null", None),
        (ANTHROPIC, '{"user_id": "a", "user_id": "b"}', "metadata.user_id"),
        (ANTHROPIC, '{"user_id": "a"}', None),
    ],
)
def test_the_one_object_that_is_read_is_held_to_the_same_rule(
    family: Family, inside: str, param: str | None, in_one_go: bool
) -> None:
    outer = "options" if family is OLLAMA else "metadata"
    body = f'{{"model": "m", "{outer}": {inside}}}'.encode()

    def read() -> None:
        _ = family.reader.read(body) if in_one_go else in_slices(body, family)

    if param is None:
        read()
        return
    with pytest.raises(InvalidBody) as error:
        read()
    assert error.value.param == param


def test_a_byte_order_mark_is_cut_off() -> None:
    body = b'{"model": "m"}'
    assert OPENAI.reader.read_small(b"\xef\xbb\xbf" + body) is None
    large = in_slices(b"\xef\xbb\xbf" + body)
    assert large.body == body
    assert large.body[slice(*large.model_span)] == b'"m"'
    with pytest.raises(InvalidBody):
        OPENAI.reader.read(b"\xef\xbb\xbf" * 2 + body)


@both_ways
def test_depth_is_refused_and_does_not_break_anything(read: Callable[[bytes], Fields]) -> None:
    body = b'{"model": "m", "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    with pytest.raises(InvalidBody, match="deep"):
        read(body)


@both_ways
def test_depth_has_the_same_bound_among_many_brackets(read: Callable[[bytes], Fields]) -> None:
    deep = b'{"model": "m", "x": [%b1%b%b]}'
    others = b",[]" * BRACKETS_FREE
    read(deep % (b"[" * (DEPTH_MAX - 1), b"]" * (DEPTH_MAX - 1), others))
    with pytest.raises(InvalidBody, match="deep"):
        read(deep % (b"[" * DEPTH_MAX, b"]" * DEPTH_MAX, others))


@both_ways
def test_there_may_be_so_many_members_and_no_more(read: Callable[[bytes], Fields]) -> None:
    others = [b'"a%d":1' % number for number in range(MEMBERS_MAX)]
    read(b'{"model":"m",%b}' % b",".join(others[1:]))
    with pytest.raises(InvalidBody, match="members"):
        read(b'{"model":"m",%b}' % b",".join(others))


def test_a_large_body_is_read_like_a_small_one() -> None:
    value = {"pad": "é" * INLINE_BYTES, "model": "m", "user": "u", "max_tokens": 7}
    body = json.dumps(value, ensure_ascii=False).encode()
    assert OPENAI.reader.read_small(body) is None
    reading = in_slices(body)
    fields = reading.fields
    assert (fields.model, fields.told()[0], fields.told()[2]) == ("m", "u", 7)
    assert body[slice(*reading.model_span)] == b'"m"'
    assert reading.prompt_tokens == prompt_tokens(body)


def test_of_a_very_long_text_as_much_is_read_as_can_matter() -> None:
    body = json.dumps({"model": "m", "user": "n\n\u00e9\U0001f600" * INLINE_BYTES}).encode()
    user = OPENAI.reader.read(body).told()[0]
    assert isinstance(user, str)
    assert user.startswith("n\n\u00e9\U0001f600n")
    assert 1024 < len(user) < INLINE_BYTES


@pytest.mark.parametrize(
    ("family", "said"),
    [
        (OPENAI, {"model": "m" * INLINE_BYTES}),
        (OPENAI, {"model": "m", "max_tokens": [0] * INLINE_BYTES}),
        (OLLAMA, {"model": "m", "options": {"stop": "x" * INLINE_BYTES}}),
    ],
)
def test_no_other_field_may_take_long_to_read(family: Family, said: dict[str, Any]) -> None:
    with pytest.raises(InvalidBody) as error:
        family.reader.read(json.dumps(said).encode())
    assert error.value.param == list(said)[-1]


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
    assert bounded_limit(fields.told()[2]) == limit


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


@settings(deadline=None, max_examples=60)
@given(bodies(), NAMES)
def test_another_model_changes_the_model_and_no_other_byte(body: bytes, model: str) -> None:
    if "model" not in dict(pairs_of(body)):
        at = body.index(b"{") + 1
        body = body[:at] + b'"model":"x"' + (b"," if pairs_of(body) else b"") + body[at:]
    before = pairs_of(body)
    assume([name for name, _ in before].count("model") == 1)  # others are refused before that
    after = replace_model(body, find_model(body), model)
    at = [name for name, _ in before].index("model")
    assert pairs_of(after) == [*before[:at], ("model", model), *before[at + 1 :]]
    span = list(scan_members(body))[at][1]
    assert after.startswith(body[: span[0]])
    assert after.endswith(body[span[1] :])
