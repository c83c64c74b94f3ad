"""The scanner of a body's members, held against Python's own JSON parser."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.relay import members
from forebay.relay.json_text import SLICE
from forebay.relay.members import BRACKETS_FREE, DEPTH_MAX, MEMBERS_MAX, WHOLE_BYTES, InvalidBody
from tools.compile import modules

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TRICKY = st.sampled_from(
    ['"', "\\", '\\"', "}", "]", "{", "[", ",", ":", "/", "\n", "é", "漢", "😀"]
)
NAMES = st.one_of(
    st.sampled_from(["model", "stream", "user", "mode", "odd", "MODEL", "User", "\u017ftream"]),
    TEXT,
    TRICKY,
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False,
              allow_infinity=False), TEXT, TRICKY),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)  # fmt: skip
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=6)
BLANKS = st.text(" \t\r\n", max_size=3)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Draw an object as any serialiser might write it: blanks, escapes, names given twice."""
    ascii_only = draw(st.booleans())
    indent = draw(st.sampled_from([None, 0, 2]))
    members = []
    for name, value in draw(PAIRS):
        written = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
        key = json.dumps(name, ensure_ascii=ascii_only)
        members.append(f"{draw(BLANKS)}{key}{draw(BLANKS)}:{draw(BLANKS)}{written}{draw(BLANKS)}")
    inside = ",".join(members) or draw(BLANKS)
    return f"{draw(BLANKS)}{{{inside}}}{draw(BLANKS)}".encode()


def scan_members(body: bytes) -> list[tuple[str, tuple[int, int]]]:
    """Return all members, the pauses left out."""
    found = [one for one in members.scan_members(body) if isinstance(one, tuple)]
    return [(json.loads(name.decode()), (start, end)) for name, start, end in found]


@contextmanager
def read_so(how: str) -> Iterator[None]:
    """Let every drawn body be read like a large one, or cut everywhere."""
    with pytest.MonkeyPatch.context() as patch:
        if how != AT_ONCE:
            patch.setattr(members, "WHOLE_BYTES", 0)
        if how == SMALL:
            sizes = {
                "SLICE": SMALL_SLICE,
                "WINDOW": 13,
                "PIECE_MIN": 3,
                "BRACKETS_FREE": FEW_BRACKETS,
            }
            for name, size in sizes.items():
                patch.setattr(members, name, size)
        yield


AT_ONCE, SMALL = "at once", "in small slices"
SMALL_SLICE = 24
FEW_BRACKETS = 8
WAYS = (AT_ONCE, "in slices", SMALL)
all_ways = pytest.mark.parametrize("how", WAYS)
"""Where bodies are drawn, each is read in all of them: drawing one takes longer."""


def pairs_of(body: bytes) -> list[tuple[str, Any]]:
    """Return the members of the outermost object as Python's parser sees them."""
    value: list[tuple[str, Any]] = json.loads(body.decode(), object_pairs_hook=lambda found: found)
    return value


@settings(deadline=None, max_examples=100)
@given(body=bodies())
def test_members_are_those_that_python_s_own_parser_finds(body: bytes) -> None:
    pairs = pairs_of(body)
    for how in WAYS:
        with read_so(how):
            spans = scan_members(body)
        found = [
            (name, json.loads(body[start:end], object_pairs_hook=lambda pairs: pairs))
            for name, (start, end) in spans
        ]
        assert found == pairs, how


@settings(deadline=None, max_examples=60)
@given(body=bodies(), data=st.data())
def test_what_python_s_parser_refuses_at_the_outermost_level_is_refused(
    body: bytes, data: st.DataObject
) -> None:
    whole = body.rstrip()
    broken = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(ValueError):  # noqa: PT011 - a part of an object is none
        json.loads(broken)
    for how in WAYS:
        with read_so(how), pytest.raises(InvalidBody):
            scan_members(broken)


@settings(deadline=None, max_examples=60)
@given(body=st.binary(max_size=40))
def test_any_bytes_are_read_or_refused_and_nothing_else(body: bytes) -> None:
    for how in WAYS:
        with read_so(how), suppress(InvalidBody):
            list(members.scan_members(body))


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": 1,}', b'{"a" 1}', b'{"a": }', b'{a: 1}', b"{'a': 1}", b'{"a": 01}', b'{"a": 1} x',
        b'{"a": [1}', b'{"a": {"b": 1]}', b'{"a": "b}', b'{"a": tru}', b'{"a": NaN}', b"{,}",
        b'{"a": [1,]}', b'{"a": [1 2]}', b'{"a": [1,,2]}', b'{"a": [,1]}', b'{"a": {"b" 1}}',
        b'{"a": {"b": 1,}}', b'{"a": [01]}', b'{"a": "\\x"}', b'{"a": ["\\ud800"]}',
        b'{"a": "\\udc00"}', b'{"a": ["\x01"]}',
        b'{"a": 1.}', b'{"a": [-]}', b'{"a": 1e}', b'{"a": [1]]}',
        b'{"a": 1 "b": 2}', b'{"\n": 1}', b'"text"', b"null", b"", b"   ", b"\xef\xbb\xbf{}",
    ],
)  # fmt: skip
@all_ways
def test_what_is_not_json_is_refused(how: str, body: bytes) -> None:
    with read_so(how), pytest.raises(InvalidBody):
        list(scan_members(body))


def test_names_are_counted_for_each_thread_alone() -> None:
    """Jobs read the params of large ones beside the event loop."""
    bodies = [b'{"%d":1%b}' % (at, b',"%d":1' % at * (MEMBERS_MAX - 1)) for at in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(len(bodies)) as threads:
            for found in threads.map(members.read_names, bodies * 100):
                assert len(found) == MEMBERS_MAX
                assert len(set(found)) == 1
    finally:
        sys.setswitchinterval(interval)


def test_values_longer_than_a_slice_are_found_whole() -> None:
    long = b"x" * (WHOLE_BYTES // 2)
    body = b'{"a": "%b", "b": [%b"%b"], "model": "m"%b}' % (long, b" " * SLICE, long, b" " * SLICE)
    spans = dict(scan_members(body))
    assert list(spans) == ["a", "b", "model"]
    assert body[slice(*spans["model"])] == b'"m"'


@all_ways
@pytest.mark.parametrize("slashes", range(1, 6))
def test_a_quote_after_backslashes_on_the_edge_of_a_slice_is_read_right(
    how: str, slashes: int
) -> None:
    edge = SMALL_SLICE if how == SMALL else SLICE
    brackets = b"[]," * FEW_BRACKETS  # so many: their depth is looked at
    for shift in range(-8, 8):
        text = "x" * (edge + shift) + "\\" * slashes + '"'
        body = b'{"a": %b, "b": [%b[]], "model": "m"}' % (json.dumps(text).encode(), brackets)
        with read_so(how), pytest.MonkeyPatch.context() as patch:
            patch.setattr(members, "BRACKETS_FREE", FEW_BRACKETS)
            spans = dict(scan_members(body))
        assert json.loads(body[slice(*spans["a"])]) == text


@all_ways
@pytest.mark.parametrize("opening", [b"[", b'{"]":', b'{"\\\\\\"}":0,"":'])
def test_depth_is_bounded(how: str, opening: bytes) -> None:
    closing = b"]" if opening == b"[" else b"}"
    others = b"[]," * BRACKETS_FREE + b'"[[[[",'

    def nested(depth: int) -> bytes:
        return b'{"a": [%b%b1%b]}' % (others, opening * depth, closing * depth)

    with read_so(how):
        list(scan_members(nested(DEPTH_MAX - 1)))
        with pytest.raises(InvalidBody, match="too deep"):
            list(scan_members(nested(DEPTH_MAX)))


@pytest.mark.parametrize("number", ["1", "-1", "1.5", "-0.5", "1e1", "5.0E-1"])
def test_a_number_may_be_as_long_as_it_likes(number: str) -> None:
    long = number[:-1].encode() + number[-1].encode() * (WHOLE_BYTES // 2)
    spans = dict(scan_members(b'{"a": [%b], "b": %b, "c": 1}' % (long, long)))
    assert spans["b"][1] - spans["b"][0] == len(long)
    for broken in (long + b".", long + b"e", long + b"-", long + b"x"):
        with pytest.raises(InvalidBody):
            scan_members(b'{"b": %b}' % broken)


def test_a_piece_of_blanks_is_no_value() -> None:
    for shape in (b'{"a": [1,%b,2]}', b'{"a": [%b,2]}', b'{"a": {%b,"b": 2}}'):
        with pytest.raises(InvalidBody):
            scan_members(shape % (b" " * 1000))


def test_depth_counts_what_msgspec_reads_too() -> None:
    element = b"[" * DEPTH_MAX + b"]" * DEPTH_MAX
    with pytest.raises(InvalidBody, match="too deep"):
        scan_members(b'{"a": [%b]}' % b",".join([b"1"] * 1000 + [element] * 140 + [b"1"] * 1000))


def test_the_scanner_is_never_compiled() -> None:
    """Jobs look for the model of large params in a thread, and compiled code lets no other on."""
    assert "forebay/relay/fields.py" in modules()
    assert "forebay/relay/members.py" not in modules()
