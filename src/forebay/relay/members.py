"""The members of a JSON object, one by one, in small steps.

A scanner of the outermost object: it finds each member's name and where its value lies, skipping
nested values by brackets and strings. Work is linear in the body and done in slices of 64 KiB at
most, so that a thread that scans 30 MiB lets others on every few milliseconds; a decoder written
in C would hold the interpreter for the whole of it.

It does not validate what is inside nested values: the node does that when it reads the body.

This module is not compiled, and must not be: compiled code never looks whether another thread
wants the interpreter, so that 10 MiB of brackets held up the event loop for 4.8 s; here it is 9 ms.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING

import msgspec

from forebay.errors import NotAllowed

if TYPE_CHECKING:
    from collections.abc import Iterator

SLICE = 65_536
DEPTH_MAX = 512
"""How deep values may nest; more than any request needs, less than any parser's limit."""

_BLANK = re.compile(rb"[ \t\r\n]*")
_BRACKET = re.compile(rb'["{}\[\]]')
_LITERAL = re.compile(rb"(?:true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")
_CLOSING = {ord("{"): ord("}"), ord("["): ord("]")}


class InvalidBody(NotAllowed):
    """The body cannot be read; `param` names the field at fault."""

    code = "invalid_request"

    def __init__(self, message: str, param: str = "body") -> None:
        super().__init__(message)
        self.param = param


def check_utf8(body: bytes) -> None:
    """Raise unless the bytes are UTF-8 throughout."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(body), SLICE):
            decoder.decode(body[start : start + SLICE])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise InvalidBody("the body is not valid UTF-8") from None


def base64_bytes(body: bytes, step: int) -> int:
    """Return how many bytes lie in steps of ASCII without a blank or a comma."""
    found = 0
    for start in range(0, len(body), step):
        end = min(start + step, len(body))
        if body.find(b" ", start, end) < 0 and body.find(b",", start, end) < 0:
            found += (end - start) * body[start:end].isascii()
    return found


def scan_members(body: bytes) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the name and the span of the value of each member of the outermost object.

    >>> [(name, b'{"a": [1, "]"], "b":2}'[i:j]) for name, (i, j) in scan_members(
    ...     b'{"a": [1, "]"], "b":2}')]
    [('a', b'[1, "]"]'), ('b', b'2')]
    """
    at = _expect(body, _skip(body, 0), b"{")
    at = _skip(body, at)
    if body[at : at + 1] != b"}":
        while True:
            end = _string_end(body, _expect(body, at, b'"'))
            name = _text(body[at:end])
            start = _skip(body, _expect(body, _skip(body, end), b":"))
            end = _value_end(body, start)
            yield name, (start, end)
            at = _skip(body, end)
            if body[at : at + 1] != b",":
                break
            at = _skip(body, at + 1)
    at = _skip(body, _expect(body, at, b"}"))
    if at != len(body):
        raise InvalidBody(f"the body is not valid JSON: trailing characters (byte {at})")


def _expect(body: bytes, at: int, what: bytes) -> int:
    if body[at : at + 1] != what:
        raise InvalidBody(f"the body is not valid JSON: expected {what.decode()} (byte {at})")
    return at + 1


def _skip(body: bytes, at: int) -> int:
    """Return where the next character that is not blank is."""
    while True:
        match = _BLANK.match(body, at, at + SLICE)
        end = match.end() if match else at
        if end - at < SLICE:
            return end
        at = end


def _string_end(body: bytes, start: int) -> int:
    """Return where a string ends whose first character is at `start`."""
    at = start
    while at < len(body):
        quote = body.find(b'"', at, at + SLICE)
        if quote < 0:
            at += SLICE
            continue
        slash = quote
        while slash > start and body[slash - 1] == 0x5C:
            slash -= 1
        if (quote - slash) % 2 == 0:
            return quote + 1
        at = quote + 1
    raise InvalidBody("the body is not valid JSON: a string does not end")


def _text(raw: bytes) -> str:
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.MsgspecError as error:
        raise InvalidBody(f"the body is not valid JSON: {error}") from None


def _value_end(body: bytes, start: int) -> int:
    first = body[start : start + 1]
    if first == b'"':
        return _string_end(body, start + 1)
    if first in (b"{", b"["):
        return _nested_end(body, start)
    literal = _LITERAL.match(body, start, start + SLICE)
    if literal is None:
        raise InvalidBody(f"the body is not valid JSON: no value (byte {start})")
    return literal.end()


def _nested_end(body: bytes, start: int) -> int:
    """Return where the object or list that begins at `start` ends."""
    open_brackets = bytearray()
    at = start
    while at < len(body):
        match = _BRACKET.search(body, at, at + SLICE)
        if match is None:
            at += SLICE
            continue
        at = match.end()
        bracket = body[at - 1]
        if bracket == 0x22:
            at = _string_end(body, at)
        elif bracket in _CLOSING:
            open_brackets.append(_CLOSING[bracket])
            if len(open_brackets) > DEPTH_MAX:
                raise InvalidBody("the body is nested too deeply")
        elif open_brackets.pop() != bracket:
            raise InvalidBody(f"the body is not valid JSON: brackets do not match (byte {at - 1})")
        if not open_brackets:
            return at
    raise InvalidBody("the body is not valid JSON: it ends too early")
