"""What JSON is made of, as patterns, and a few quick questions about it.

Every pattern is possessive: it never goes back, so that its work is linear in what it reads.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

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
_SMALL: Final = re.compile(rb"%b|\[\]|\{\}" % _PLAIN)
_FOLLOWING: Final = b" \t\r\n,}"
_RAW: Final = msgspec.json.Decoder(msgspec.Raw)
_MEMBER: Final = re.compile(rb"%b[{,]%b" % (_BLANKS, NAME.pattern))


def find_member(body: bytes, members: dict[str, msgspec.Raw], wanted: str) -> tuple[int, int]:
    """Return where a value is in an object whose members are known; (0, 0) if that is not clear.

    Of two members with one name only the last is known: the other is passed if it is a small one.
    """
    found = _MEMBER.match(body)
    while found is not None:
        name = msgspec.json.decode(found[1], type=str)
        start, value = found.end(), bytes(members[name])
        end = start + len(value)
        if not body.startswith(value, start) or body[end] not in _FOLLOWING:
            other = _SMALL.match(body, start)
            end = other.end() if other is not None else start
        if name == wanted:
            return start, end
        found = _MEMBER.match(body, end)
    return 0, 0


def cut_short(body: bytes, start: int, size_bytes: int) -> bytes:
    """Return the text that begins at `start`, as JSON, but no more of it than so many bytes."""
    found = TEXT.match(body, start + 1, start + size_bytes)
    end = found.end() if found is not None else start + 1
    return b'"%b"' % body[start + 1 : end].decode(errors="ignore").encode()


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
