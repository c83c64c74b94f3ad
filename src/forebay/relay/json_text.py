"""What JSON is made of, as patterns, and a few quick questions about it.

Every pattern is possessive: it never goes back, so that its work is linear in what it reads.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Generator

SLICE: Final = 65_536
"""How much msgspec is given at once of a large body, and what may be done between two pauses."""
_PIECE: Final = 16_384
"""How much is split at its quotes at once: it may be nothing else."""
_OTHERS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_STEPS: Final = {0x5B: 1, 0x5D: -1}

_BLANKS = rb"[ \t\r\n]*+"
_HEX = rb"[0-9a-fA-F]"
_ESCAPE = (
    rb'\\(?:["\\/bfnrt]|u(?:(?![dD][89a-fA-F])%b{4}|[dD][89abAB]%b{2}\\u[dD][c-fC-F]%b{2}))'
    % (_HEX, _HEX, _HEX)
)
ESCAPE_BYTES: Final = 12
"""The longest escape, a pair of surrogates."""
_TEXT = rb'(?:[^"\\\x00-\x1f]++|%b)*+' % _ESCAPE
_LITERAL = rb"(?:true|false|null|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+)"
_PLAIN = rb'(?:"%b"|%b)' % (_TEXT, _LITERAL)


def _patterns(name: bytes, closing: bytes) -> tuple[re.Pattern[bytes], ...]:
    """Return the three patterns of a container; a group is there where one ends at a bracket."""
    blanks, plain = _BLANKS, _PLAIN
    run = rb"(?:%b%b%b%b,)*+(?:%b%b(?:([\[{])|%b%b(%b)))?+" % (
        blanks, name, plain, blanks, blanks, name, plain, blanks, closing,
    )  # fmt: skip
    first = rb"(?:%b(%b)|%b)" % (blanks, closing, run)
    after = rb"%b(?:(%b)|,%b)" % (blanks, closing, run)
    return re.compile(first), re.compile(run), re.compile(after)


OBJECT: Final = _patterns(rb'"%b"%b:%b' % (_TEXT, _BLANKS, _BLANKS), rb"\}")
ARRAY: Final = _patterns(b"", rb"\]")
BLANKS: Final = re.compile(_BLANKS)
TEXT: Final = re.compile(_TEXT)
DIGITS: Final = re.compile(rb"[0-9]*+")
LITERAL: Final = re.compile(_LITERAL)
NAME: Final = re.compile(rb'%b("%b")%b:%b' % (_BLANKS, _TEXT, _BLANKS, _BLANKS))
MEMBER: Final = re.compile(rb"%b[{,]%b" % (_BLANKS, NAME.pattern))
_RAW: Final = msgspec.json.Decoder(msgspec.Raw)
_BRACKETS_SIZE: Final = 128


def cut_short(body: bytes, start: int, size_bytes: int) -> bytes:
    """Return the text that begins at `start`, as JSON, but no more of it than so many bytes."""
    found = TEXT.match(body, start + 1, start + size_bytes)
    end = found.end() if found is not None else start + 1
    return b'"%b"' % body[start + 1 : end].decode(errors="ignore").encode()


def has_more_opening(text: bytes, count: int) -> bool:
    """Say whether there are more opening brackets than that, in texts or outside."""
    for start in range(0, len(text), SLICE):
        count -= count_opening(text[start : start + SLICE])
        if count < 0:
            return True
    return False


def count_opening(text: bytes) -> int:
    """Return how many opening brackets there are; faster than `count`, which has no memchr."""
    return 2 * len(text) - len(text.replace(b"[", b"")) - len(text.replace(b"{", b""))


def is_json(text: bytes) -> bool:
    """Say whether a text is valid JSON, not caring for UTF-8."""
    try:
        _RAW.decode(text)
    except msgspec.DecodeError:
        return False
    return True


def outside_texts(body: bytes) -> Generator[bytes, None, None]:
    """Yield what is not inside of a text, from 16 KiB of a body at a time.

    >>> list(outside_texts(b'{"a]": ["b", 1]}'))
    [b'{: [, 1]}']
    """
    at, in_text = 0, False
    while at < len(body):
        piece = body[at : at + _PIECE]
        at += len(piece)
        if b"\\" in piece:
            if (len(piece) - len(piece.rstrip(b"\\"))) % 2 and at < len(body):
                piece, at = piece[:-1], at - 1  # an escape is not cut in two
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.split(b'"')
        yield b"".join(parts[1::2] if in_text else parts[::2])
        in_text ^= len(parts) % 2 == 0


def is_deeper(body: bytes, depth_max: int) -> Generator[int, None, bool]:
    """Say whether valid JSON nests deeper than that; yields the bytes looked at, now and then."""
    depth = 0
    for outside in outside_texts(body):
        brackets = outside.translate(_SQUARE, _OTHERS)
        for start in range(0, len(brackets), _BRACKETS_SIZE):
            some = brackets[start : start + _BRACKETS_SIZE]
            opening = some.count(b"[")
            if depth + opening > depth_max:  # it may be too deep in the middle
                depths = accumulate(map(_STEPS.__getitem__, some), initial=depth)
                if max(depths) > depth_max:
                    return True
            depth += 2 * opening - len(some)
        yield _PIECE
    return False
