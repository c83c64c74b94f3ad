"""What it costs to read a body, whatever is in it: counted in bytes and steps, never in time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from forebay.relay import fields, members
from forebay.relay.fields import INLINE_BYTES, FieldsReader
from forebay.relay.json_text import SLICE
from forebay.relay.members import WHOLE_BYTES, InvalidBody
from forebay.relay.ollama import OLLAMA, OllamaFields
from forebay.relay.openai import OPENAI, OpenAIFields
from harness.function_calls import functions_called

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from forebay.relay.family import Family

TIMES_MAX = 4
"""How often a byte may be looked at, on average."""
CALLS_MAX = 6000
"""How many calls a step may make: half a millisecond's worth."""
SIZE = 500 * 1024


def filled(begin: bytes, unit: bytes, end: bytes, size: int = SIZE) -> bytes:
    """Return a body that is nearly all the same."""
    return begin + unit * ((size - len(begin) - len(end)) // len(unit)) + end


LIST, TEXT = b'{"model":"m","x":[0', b'{"model":"m","x":"'
CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": ["user", "assistant"][i % 2], "content": "so, it is " * 40} for i in (0, 1)
    ],
    "user": "ann",
    "stream": False,
    "temperature": 0.7,
}
HOSTILE = {
    "lists": (LIST, b",[]", b"]}"),
    "objects": (LIST, b",{}", b"]}"),
    "small objects": (LIST, b',{"user":0}', b"]}"),
    "numbers": (LIST, b",1", b"]}"),
    "empty texts": (LIST, b',""', b"]}"),
    "texts that look like ends": (LIST, b',[],"],",{},"},","}"', b"]}"),
    "depth": (LIST, b"," + b"[" * 500 + b"]" * 500, b"]}"),
    "depth and texts": (LIST, b"," + b'["],",' * 250 + b"0" + b"]" * 250, b"]}"),
    "half a window each": (LIST, b',"%b"' % (b"x" * 2500), b"]}"),
    "more than half a slice each": (LIST, b',["],","%b"]' % (b"x" * 40_000), b"]}"),
    "members": (b'{"model":"m"', b',"a":1', b"}"),
    "members without a name": (b'{"model":"m"', b',"":1', b"}"),
    "escaped members": (b'{"model":"m"', b',"\\u0061":1', b"}"),
    "our members": (b'{"model":"m"', b',"user":"u"', b"}"),
    "letters": (TEXT, b"x", b'"}'),
    "letters of two bytes": (TEXT, "é".encode(), b'"}'),
    "quotes": (TEXT, b'\\"', b'"}'),
    "backslashes": (TEXT, b"\\\\", b'"}'),
    "escaped letters": (TEXT, b"\\u0061", b'"}'),
    "pairs of surrogates": (TEXT, b"\\ud83d\\ude00", b'"}'),
    "a name of escapes": (b'{"model":"m","', b"\\u0061", b'":1}'),
    "a user of escapes": (b'{"model":"m","user":"', b"\\u0061", b'"}'),
    "blanks": (b'{"model":"m","x":', b" ", b"1}"),
    "blanks before a comma": (LIST, b"," + b" " * 300 + b"1", b"]}"),
    "digits": (b'{"model":"m","x":', b"1", b"}"),
    "a list without an end": (LIST, b',["user"', b""),
    "a text without an end": (TEXT, b"\\n", b""),
}
hostile = pytest.mark.parametrize("what", HOSTILE)


def in_slices(body: bytes, family: Family = OPENAI) -> Generator[int, None, None]:
    """Read to the end, whatever that is."""
    try:
        yield from family.reader.read_in_slices(body)
    except InvalidBody:
        return


@hostile
@pytest.mark.parametrize("size", [INLINE_BYTES + 1, SIZE, 4 * SIZE])
def test_a_byte_is_looked_at_four_times_at_most(what: str, size: int) -> None:
    body = filled(*HOSTILE[what], size)
    steps = list(in_slices(body))
    assert sum(steps) <= TIMES_MAX * len(body)
    assert max(steps) <= max(2 * SLICE, size if size <= WHOLE_BYTES else 0)


@hostile
@pytest.mark.interpreted("makes no calls that can be counted")
def test_a_step_is_a_small_one(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are few in a step, and so are calls, which cost more than bytes."""
    slices = in_slices(filled(*HOSTILE[what]))
    going: list[object] = [0]
    while going[-1] is not None:
        calls = functions_called(lambda: going.append(next(slices, None)))
        assert len(calls) <= CALLS_MAX


class Counted:
    """Stands for a decoder, and counts what it is given."""

    def __init__(self, decode: Callable[[bytes], Any]) -> None:
        self._decode = decode
        self.bytes = 0

    def decode(self, body: bytes) -> Any:
        self.bytes += len(body)
        return self._decode(body)


REPLACING = pytest.mark.interpreted("its decoders cannot be replaced")


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> Callable[[FieldsReader, bytes], int]:
    """Count what is looked at when a body is read at once, and in slices where it must be."""

    def count(reader: FieldsReader, body: bytes) -> int:
        by_name, by_place = Counted(fields._decode_members), Counted(members._VALUES.decode)
        with monkeypatch.context() as patch:
            patch.setattr(fields, "_decode_members", by_name.decode)
            patch.setattr(members, "_VALUES", by_place)
            try:
                is_read = reader.read_small(body) is not None
            except InvalidBody:
                is_read = True
        in_all = by_name.bytes + by_place.bytes
        if is_read:
            return in_all + len(body)  # UTF-8
        try:
            return in_all + sum(reader.read_in_slices(body))
        except InvalidBody:
            return in_all + 2 * len(body)

    return count


@hostile
@REPLACING
def test_a_small_body_is_looked_at_no_more_often(
    what: str, scanned: Callable[[FieldsReader, bytes], int]
) -> None:
    body = filled(*HOSTILE[what], INLINE_BYTES)
    assert scanned(FieldsReader(OpenAIFields), body) <= TIMES_MAX * len(body)
    assert scanned(FieldsReader(OllamaFields, ("options", "num_predict")), body) <= TIMES_MAX * len(
        body
    )


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" , ", " : ")])
@pytest.mark.parametrize("indent", [None, 2])
def test_an_ordinary_body_is_read_at_once(separators: tuple[str, str], indent: int | None) -> None:
    body = json.dumps(CHAT, separators=separators, indent=indent).encode()
    assert OPENAI.reader.read_small(body) is not None
    assert OPENAI.reader.read_small(body + b"\n") is not None
    ollama = {**CHAT, "options": {"num_predict": 1, "num_ctx": 4096}}
    body = json.dumps(ollama, separators=separators, indent=indent).encode()
    assert OLLAMA.reader.read_small(body) is not None


@REPLACING
def test_the_usual_body_is_looked_at_once_beside_its_utf8(
    scanned: Callable[[FieldsReader, bytes], int],
) -> None:
    body = json.dumps(CHAT, separators=(",", ":")).encode()
    assert scanned(FieldsReader(OpenAIFields), body) == 2 * len(body)


def test_made_up_names_are_not_kept_for_ever() -> None:
    reader = FieldsReader(OpenAIFields)
    for number in range(5000):
        assert reader.read_small(b'{"model":"m","made_up_%d":1}' % number) is not None
    assert len(reader._rule._known) <= 1024


@pytest.mark.parametrize(
    "before",
    [b'"x":"m","x":"m",', b'"x":12,"x":1,', b'"x":1,"x":12,', b'"":[],"":"m",', b'"x":{},"x":[0],'],
)
def test_the_model_is_found_beside_names_that_come_twice(
    before: bytes,
) -> None:
    body = b'{%b"model":"m"}' % before
    start, end = fields.find_model(body)
    assert (start, body[start:end]) == (len(body) - 4, b'"m"')
