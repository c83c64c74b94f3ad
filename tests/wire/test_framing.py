"""Bodies are cut out of a connection's bytes exactly, however they come."""

from __future__ import annotations

import contextlib
from typing import Any

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.wire.body import (
    CHUNKS_AT_ONCE,
    CHUNKS_MAX,
    EXTENSION_BYTES_MAX,
    TRAILER_BYTES_MAX,
    BadFraming,
    BodyFraming,
    TooManyChunks,
)

NEXT = b"GET /next HTTP/1.1\r\n\r\n"


def read(length: int, *data: bytes) -> tuple[bytes, bytes]:
    """Return the body and what follows it."""
    framing, pieces, left = BodyFraming(length), list[bytes](), b""
    for piece in data:
        at = 0
        while at < len(piece) and not framing.is_whole:
            at = framing.take(piece, at, pieces)
        left += piece[at:]
    assert framing.is_whole
    return b"".join(pieces), left


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True) if a < b]


CUTS = st.lists(st.integers(0, 10_000), max_size=30)


@given(body=st.binary(max_size=300), cuts=CUTS)
def test_a_body_of_known_length_ends_there_wherever_it_is_split(
    body: bytes, cuts: list[int]
) -> None:
    assert read(len(body), *split(body + NEXT, cuts)) == (body, NEXT)


CHUNK = st.tuples(st.binary(min_size=1, max_size=40), st.sampled_from([b"", b";a", b';a="b;c"']))


@given(chunks=st.lists(CHUNK, max_size=8), trailers=st.integers(0, 3), cuts=CUTS)
def test_chunks_are_read_wherever_they_are_split(
    chunks: list[tuple[bytes, bytes]], trailers: int, cuts: list[int]
) -> None:
    wire = b"".join(b"%X%b\r\n%b\r\n" % (len(data), more, data) for data, more in chunks)
    wire += b"0\r\n" + b"X-Sum: 1\r\n" * trailers + b"\r\n"
    body = b"".join(data for data, _ in chunks)
    assert read(-1, *split(wire + NEXT, cuts)) == (body, NEXT)


class Reference:
    """The same body as llhttp reads it."""

    def __init__(self) -> None:
        self.body = b""
        self.whole = False

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.whole = True


PIECES = [
    b"0", b"1", b"a", b"5", b"\r\n", b"\r", b"\n", b";x", b" ", b"-", b"abcde", b"X: y", b"",
    b"=", b';x="', b'"', b"\\", b"0;", b"\xff",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=14).map(b"".join))
def test_nothing_is_taken_for_a_whole_body_that_llhttp_does_not_take(wire: bytes) -> None:
    framing, pieces = BodyFraming(-1), list[bytes]()
    with contextlib.suppress(BadFraming):
        at = framing.take(wire, 0, pieces)
        if framing.is_whole:
            reference = Reference()
            parser = httptools.HttpRequestParser(reference)
            parser.feed_data(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
            parser.feed_data(wire[:at])
            assert (reference.whole, reference.body) == (True, b"".join(pieces))


@pytest.mark.parametrize(
    "wire",
    [
        b"5\nhello\n", b"5\r\nhello\n", b"5\r\nhelloo\r\n", b"-5\r\n", b"+5\r\n", b" 5\r\n",
        b"5 \r\n", b"0x5\r\n", b"\r\n", b";x\r\n", b"fffffffffffffffff\r\n", b"5;a\rb\r\n",
        b"5;a\x00\r\n", b"5;a \r\n", b"5;\r\n", b"5;a=\r\n",
        b'5;a="b\r\n', b'5;a="b"c\r\n',
        b"0\r\nX y\r\n", b"0\r\n X: y\r\n", b"0\r\nX : y\r\n", b"0\r\nX: a\nb\r\n",
    ],
)  # fmt: skip
def test_a_body_that_could_be_read_in_two_ways_is_refused(wire: bytes) -> None:
    with pytest.raises(BadFraming):
        read(-1, wire, b"\r\n" * 10)


@pytest.mark.parametrize("pieces", [1, 7])
def test_extensions_have_a_bound_in_one_chunk_and_over_all(pieces: int) -> None:
    def wire(size: int) -> bytes:
        each, rest = divmod(size, pieces)
        sizes = [each + (rest if i == 0 else 0) for i in range(pieces)]
        return b"".join(b"1%b\r\nx\r\n" % (b";" + b"e" * (n - 1)) for n in sizes) + b"0\r\n\r\n"

    assert read(-1, wire(EXTENSION_BYTES_MAX)) == (b"x" * pieces, b"")
    with pytest.raises(BadFraming, match="extensions"):
        read(-1, wire(EXTENSION_BYTES_MAX + 1))


def test_an_extension_that_never_ends_is_refused_before_it_ends() -> None:
    with pytest.raises(BadFraming, match="extensions"):
        read(-1, *[b"1;" + b"e" * 1000] * 6)


def test_trailers_have_a_bound() -> None:
    line = b"X: " + b"t" * 59 + b"\r\n"
    body = b"0\r\n" + line * (TRAILER_BYTES_MAX // len(line))
    assert read(-1, body + b"\r\n") == (b"", b"")
    with pytest.raises(BadFraming, match="trailers"):
        read(-1, body + b"X: y\r\n\r\n")


def test_chunks_have_a_bound_and_are_read_so_many_at_a_time() -> None:
    framing, pieces = BodyFraming(-1), list[bytes]()
    wire = b"1\r\nx\r\n" * (CHUNKS_AT_ONCE + 5)
    stopped = framing.take(wire, 0, pieces)
    assert len(pieces) <= CHUNKS_AT_ONCE
    assert stopped < len(wire)
    with pytest.raises(TooManyChunks):
        read(-1, *[wire] * (CHUNKS_MAX // CHUNKS_AT_ONCE + 1))


def test_a_body_of_no_length_is_whole_at_once() -> None:
    empty: Any = BodyFraming(0)
    assert empty.is_whole


@given(data=st.binary(min_size=1, max_size=5000), upper=st.booleans())
def test_a_whole_chunk_is_taken_at_once_or_like_any_other(data: bytes, upper: bool) -> None:
    line = b"%X" % len(data) if upper else b"%x" % len(data)
    chunk = line + b"\r\n" + data + b"\r\n"
    assert BodyFraming(-1).take_chunk(chunk) in (data, b"")
    if not upper and len(chunk) < 4096:
        assert BodyFraming(-1).take_chunk(chunk) == data


@given(
    chunk=st.binary(max_size=12).map(lambda data: b"%x\r\n%b\r\n" % (len(data), data)),
    at=st.integers(0, 20),
    byte=st.binary(min_size=1, max_size=2),
)
def test_what_is_not_one_whole_chunk_is_not_taken_at_once(
    chunk: bytes, at: int, byte: bytes
) -> None:
    """Whatever `take_chunk` takes, the thorough way takes as the same, and is then where it was."""
    odd = chunk[:at] + byte + chunk[at:]
    quick = BodyFraming(-1)
    piece = quick.take_chunk(odd)
    if piece:
        pieces: list[bytes] = []
        thorough = BodyFraming(-1)
        assert thorough.take(odd, 0, pieces) == len(odd)
        assert pieces == [piece]
        for framing in (quick, thorough):
            assert framing.take(b"0\r\n\r\n", 0, pieces) == 5
            assert framing.is_whole


def test_inside_a_chunk_nothing_is_taken_for_a_chunk() -> None:
    framing, pieces = BodyFraming(-1), list[bytes]()
    framing.take(b"a\r\n", 0, pieces)
    inside = b"5\r\nhello\r\n"
    assert framing.take_chunk(inside) == b""
    assert framing.take(inside, 0, pieces) == len(inside)
    assert pieces == [inside]
