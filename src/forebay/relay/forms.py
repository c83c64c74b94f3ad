"""Forms with files (`multipart/form-data`) of which the gateway reads the model, in small steps.

The form is not taken apart: every boundary is found, every part's head is read, and where the value
of `model` lies is remembered, so that all else goes on byte for byte.

A node must find the same model in it. So what parsers read in different ways is refused: a boundary
that does not stand at the beginning of a line, text before the first part or after the last, folded
or repeated headers, names that are escaped or come twice, coded values, other character sets.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from forebay.relay.fields import BodyReading, Frame
from forebay.relay.members import InvalidBody
from forebay.relay.openai import OpenAILooseFields

if TYPE_CHECKING:
    from collections.abc import Generator

WINDOW: Final = 262_144
"""How much is searched in a step: a tenth of a millisecond."""
PARTS_MAX: Final = 256
"""OpenAI's largest form has 16 pictures and two dozen fields."""
HEAD_BYTES_MAX: Final = 4096
VALUE_BYTES_MAX: Final = 4096
"""Of a field that is read."""
NAME_LENGTH_MAX: Final = 1024
END_BYTES_MAX: Final = 1024
"""Blanks after the last part."""

_TYPE = re.compile(rb"multipart/form-data[ \t]*((?:;.*)?)", re.IGNORECASE)
_DISPOSITION = re.compile(rb"form-data[ \t]*((?:;.*)?)", re.IGNORECASE)
_PARAMETER = re.compile(
    rb"[ \t]*;[ \t]*([A-Za-z0-9!#$%&'*+.^_`|~-]+)=(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;\"]+))[ \t]*"
)
_BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
_HEADER = re.compile(rb"([A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_LINE_END = re.compile(rb"[ \t]{0,16}\r\n")
_PLAIN_CODINGS: Final = (b"", b"7bit", b"8bit", b"binary")
_READ: Final = ("model", "user")


class FormReader:
    """Reads forms with one boundary."""

    __slots__ = ("_mark",)

    def __init__(self, boundary: bytes) -> None:
        self._mark = b"--" + boundary

    def read_in_slices(self, body: bytes) -> Generator[int, None, BodyReading]:
        """Find the model; raises InvalidBody. Yields after each step of the way."""
        mark = self._mark
        at = first = 2 if body.startswith(b"\r\n") else 0
        if not body.startswith(mark, at):
            raise InvalidBody("the form does not begin with its boundary")
        found: dict[str, tuple[int, int]] = {}
        parts = text = 0
        while not _is_last(body, at + len(mark)):
            parts += 1
            if parts > PARTS_MAX:
                raise InvalidBody(f"the form has more than {PARTS_MAX} parts")
            start, name, is_file = _read_head(body, at + len(mark))
            at = yield from self._find_mark(body, start)
            if name in found:
                raise InvalidBody(f"`{name}` is given more than once", name)
            if name in _READ:
                found[name] = (start, at - 2)
            if not is_file:
                text += at - start
        fields = OpenAILooseFields(_text(body, "model", found), user=_text(body, "user", found))
        if "model" in found:
            span, frame = found["model"], Frame(b"", b"", in_json=False)
        else:
            head = b'\r\nContent-Disposition: form-data; name="model"\r\n\r\n'
            span, frame = (first, first), Frame(mark + head, b"\r\n", in_json=False)
        return BodyReading(fields, body, text // 4, span, frame)

    def _find_mark(self, body: bytes, start: int) -> Generator[int, None, int]:
        """Return where the next boundary begins; it must begin a line."""
        mark, at = self._mark, start
        while at < len(body):
            found = body.find(mark, at, at + WINDOW + len(mark))
            yield WINDOW
            if found >= 0:
                # the line break before it may be that of an empty value
                if body[found - 2 : found] != b"\r\n" or found - 2 < start:
                    raise InvalidBody("the boundary of the form is inside a part")
                return found
            at += WINDOW
        raise InvalidBody("the form ends in the middle")


def form_reader(content_type: bytes) -> FormReader | None:
    """Return who reads forms of that type; None where it does not say how they are cut.

    >>> form_reader(b'multipart/form-data; boundary="x y"') is None
    False
    >>> form_reader(b"multipart/form-data") is None
    True
    """
    parameters = _parameters(_TYPE, content_type)
    if parameters is None or not _is_utf8(parameters):
        return None
    boundary = parameters.get(b"boundary", b"")
    return FormReader(boundary) if _BOUNDARY.fullmatch(boundary) is not None else None


def _is_last(body: bytes, at: int) -> bool:
    """Say whether the boundary that ends there is the last, after which nothing may come."""
    if body[at : at + 2] != b"--":
        return False
    if len(body) - at > END_BYTES_MAX or body[at + 2 :].strip(b" \t\r\n"):
        raise InvalidBody("something follows the end of the form")
    return True


def _read_head(body: bytes, at: int) -> tuple[int, str, bool]:
    """Return where the value of a part begins, what it is called, and whether it is a file."""
    line = _LINE_END.match(body, at)
    if line is None:
        raise InvalidBody("the boundary of the form is inside a part")
    start = line.end()
    end = body.find(b"\r\n\r\n", start, start + HEAD_BYTES_MAX)
    if end < 0:
        raise InvalidBody("the head of a part is too long, or does not end")
    headers: dict[bytes, bytes] = {}
    for header in body[start:end].split(b"\r\n"):
        matched = _HEADER.fullmatch(header)
        if matched is None or matched[1].lower() in headers:
            raise InvalidBody("a part of the form has a header that cannot be read")
        headers[matched[1].lower()] = matched[2].strip()
    parameters = _parameters(_DISPOSITION, headers.get(b"content-disposition", b""))
    name = _name(parameters)
    is_file = parameters is not None and any(
        key in parameters for key in (b"filename", b"filename*")
    )
    if name in _READ and (is_file or not _is_plain(headers)):
        raise InvalidBody(f"`{name}` must be a plain field of the form", name)
    return end + 4, name, is_file


def _name(parameters: dict[bytes, bytes] | None) -> str:
    """Return what a part is called; raises InvalidBody where others may read it otherwise."""
    given = None if parameters is None else parameters.get(b"name")
    if given is None or parameters is None or b"name*" in parameters:
        raise InvalidBody("a part of the form has no name, or more than one")
    name = given.decode("utf-8", "replace")
    folded = name.strip().casefold().replace("\\", "")
    if folded == "_charset_" or (folded in _READ and name != folded):
        raise InvalidBody(f"a field of the form may not be called {ascii(name)[:64]}", folded)
    return name


def _is_plain(headers: dict[bytes, bytes]) -> bool:
    """Say whether a value is text as it stands."""
    if headers.get(b"content-transfer-encoding", b"").lower() not in _PLAIN_CODINGS:
        return False
    _, cut, rest = headers.get(b"content-type", b"").partition(b";")
    parameters = _split(cut + rest)
    return parameters is not None and _is_utf8(parameters)


def _is_utf8(parameters: dict[bytes, bytes]) -> bool:
    return parameters.get(b"charset", b"utf-8").lower() in (b"utf-8", b"utf8", b"us-ascii")


def _parameters(kind: re.Pattern[bytes], value: bytes) -> dict[bytes, bytes] | None:
    """Return the parameters of a header that is of a kind; None where it is not."""
    matched = kind.fullmatch(value)
    return None if matched is None else _split(matched[1])


def _split(text: bytes) -> dict[bytes, bytes] | None:
    """Return parameters by their names in lower case; None where one cannot be read, or is twice.

    >>> _split(b'; name="a b"; Filename=c.wav')
    {b'name': b'a b', b'filename': b'c.wav'}
    >>> _split(b"; name=a; name=b") is None, _split(b'; name="a') is None
    (True, True)
    """
    parameters: dict[bytes, bytes] = {}
    at = 0
    while at < len(text):
        matched = _PARAMETER.match(text, at)
        if matched is None or matched[1].lower() in parameters:
            return None
        quoted, plain = matched[2], matched[3]
        parameters[matched[1].lower()] = plain if quoted is None else quoted
        at = matched.end()
    return parameters


def _text(body: bytes, name: str, found: dict[str, tuple[int, int]]) -> str:
    """Return the value of a field that is read, "" where it is not there; raises InvalidBody."""
    if name not in found:
        return ""
    start, end = found[name]
    if end - start > VALUE_BYTES_MAX:
        raise InvalidBody(f"`{name}` is too long", name)
    try:
        value = body[start:end].decode()
    except UnicodeDecodeError:
        raise InvalidBody(f"`{name}` is not valid UTF-8", name) from None
    if name == "model" and not 0 < len(value) <= NAME_LENGTH_MAX:
        raise InvalidBody(f"`{name}` must have 1 to {NAME_LENGTH_MAX} characters", name)
    return value
