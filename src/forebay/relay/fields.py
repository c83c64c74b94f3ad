"""Reading the few fields of a body that the gateway must know, and refusing what is not JSON.

msgspec reads JSON very fast, but lets three things pass that must not: bytes that are not UTF-8, a
depth that others choke on, and names that a node may take for ours: one of ours given twice, or
written with other capitals (servers in Go match names without case, and take the last). So every
name of the outermost object is looked at, and none further down.

Small bodies are read where they arrive, in microseconds: msgspec gives the members as a dict, which
keeps one of two that have the same name. Written down again it is then shorter than the body, so
one comparison of lengths says that none came twice, but for blanks. Larger ones are read in slices
by a generator, so that no body can hold the event loop.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import UnsetType

from forebay.relay.json_text import SLICE, cut_short
from forebay.relay.members import (
    MEMBERS_MAX,
    UNREADABLE,
    InvalidBody,
    given_twice,
    read_names,
    scan_members,
    too_many,
    unreadable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from forebay.relay.problem import Unsupported

INLINE_BYTES: Final = 32_768
"""A body up to here is read where it arrives: in 2 ms, whatever is in it."""
OUTPUT_LIMIT_MAX: Final = 1_000_000_000
"""How far a caller's own cap on output tokens is believed."""
TEXT_BYTES_MAX: Final = 16_384
"""More than any name that is believed; of a text in a large body no more is read."""

Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
Limit: TypeAlias = int | float | UnsetType | None
Text: TypeAlias = str | UnsetType | None
Flag: TypeAlias = bool | UnsetType | None
Told: TypeAlias = "tuple[Text, Text, Limit, Unsupported | None]"
"""The end user, the class and the cap on output tokens that a body names, each nothing (false)
where it names none; and a field that asks for what is not offered."""

_MORE = re.compile(rb'[ \t\r\n]*"')
_PATH = re.compile(r"`\$\.?([^`]*)`")
_BOM: Final = b"\xef\xbb\xbf"
_decode_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode: Final = msgspec.json.Encoder().encode  # bound once: a lookup is a tenth of such a call
_KNOWN_MAX: Final = 1024
_KNOWN_BYTES: Final = 256
_READ_TWICE_BYTES: Final = 2048
"""Up to here, reading a body a second time takes less than writing down what is ours in it."""
_OPEN_OBJECT, _QUOTE = 0x7B, 0x22
_STEP, _SAMPLE = 4096, 512


class Fields(Protocol):
    """What every family's body says."""

    model: str
    stream: Flag

    def told(self) -> Told:
        """Return the rest at once: a call that is not compiled costs more than what it finds."""
        ...


class Frame:
    """What is written around the name of a model that takes the place of another, or of none."""

    __slots__ = ("after", "before", "in_json")

    def __init__(self, before: bytes, after: bytes, *, in_json: bool) -> None:
        self.before = before
        self.after = after
        self.in_json = in_json

    def write(self, model: str) -> bytes:
        return self.before + (_encode(model) if self.in_json else model.encode()) + self.after


class BodyReading(NamedTuple):
    """What has been read of a body that was too large to be read at once, or is a form."""

    fields: Fields
    body: bytes
    """What to pass on: all that came, but for a byte order mark."""
    prompt_tokens: int
    model_span: tuple[int, int] = (0, 0)
    """Where `model` is; (0, 0) when it is not there."""
    frame: Frame | None = None
    """What stands around another model's name, where that is no JSON in place of JSON."""


class FieldsReader:
    """Reads one family's bodies into its struct of fields."""

    def __init__(
        self, struct: type[msgspec.Struct], nested: tuple[str, str] = ("metadata", "user_id")
    ) -> None:
        """Read into `struct`; `nested` names a member that is an object, and what is read of it."""
        self._decode_struct: Callable[[bytes], Any] = msgspec.json.Decoder(struct).decode
        self._outer, inner = nested
        fields = [field.encode_name for field in msgspec.structs.fields(struct)]
        self._rule = _Names([*fields, self._outer])
        self._inner_rule = _Names([inner], f"{self._outer}.")
        self._good_inside: set[bytes] = set()
        """Nested objects that have been looked at: a client sends the same ones again."""

    def read(self, body: bytes) -> Fields:
        """Return the fields of a body, however long it takes; raises InvalidBody."""
        fields = self.read_small(body)
        slices = self.read_in_slices(body)
        while fields is None:
            try:
                next(slices)
            except StopIteration as end:
                fields = end.value.fields
        return fields

    def read_small(self, body: bytes) -> Fields | None:
        """Return what a body says; None where it has to be read in slices. Raises InvalidBody."""
        if len(body) > INLINE_BYTES or body.startswith(_BOM):
            return None
        members = _members(body)
        self._rule.check(members, body)
        if self._outer in members:
            self._check_inside(bytes(members[self._outer]))
        if not body.isascii():
            _check_utf8(body)
        return self._decode(body if len(body) <= _READ_TWICE_BYTES else self._ours_of(members))

    def _check_inside(self, inside: bytes) -> None:
        if inside in self._good_inside or inside[:1] != b"{":
            return
        self._inner_rule.check(_members(inside), inside)
        if len(self._good_inside) >= _KNOWN_MAX:
            self._good_inside = set()
        if len(inside) <= _KNOWN_BYTES:
            self._good_inside.add(inside)

    def read_in_slices(self, body: bytes) -> Generator[int, None, BodyReading]:
        """Read a body in steps of half a millisecond at most; raises InvalidBody.

        Yields after each step, saying how many bytes were looked at; may be dropped at any time.
        """
        if body.startswith(_BOM):
            body = body[len(_BOM) :]
        size = yield from text_bytes(body)
        spans = yield from _spans(body, self._rule)
        if self._outer in spans:
            start, end = spans[self._outer]
            if end - start > INLINE_BYTES:
                raise InvalidBody(f"`{self._outer}` is too large", self._outer)
            if body[start] == _OPEN_OBJECT:
                yield from _spans(body[start:end], self._inner_rule)
        given = {name: _given(body, name, *spans[name]) for name in spans}
        fields = self._decode(_encode(given))
        return BodyReading(fields, body, size // 4, spans.get("model", (0, 0)))

    def _ours_of(self, members: dict[str, msgspec.Raw]) -> bytes:
        """Return an object of those members that are ours; the others may be large."""
        ours = self._rule.ours
        given: dict[str, msgspec.Raw] = {}
        for name in members:
            if name in ours:
                given[name] = members[name]
        return _encode(given)

    def _decode(self, text: bytes) -> Fields:
        try:
            fields: Fields = self._decode_struct(text)
            return fields
        except msgspec.ValidationError as error:
            raise InvalidBody(*_explain(str(error))) from None


def _members(text: bytes) -> dict[str, msgspec.Raw]:
    """Return the members of an object, the last of each name; raises InvalidBody."""
    try:
        members = _decode_members(text)
    except UNREADABLE as error:
        raise unreadable(error) from None
    if len(members) > MEMBERS_MAX:
        raise too_many()
    return members


class _Names:
    """The names that are read of an object, and what may not stand beside them."""

    def __init__(self, names: list[str], path: str = "") -> None:
        self.ours = frozenset(names)
        self._path = path
        self._longest = 6 * max(map(len, names)) + 2
        """Bytes that a name may take, with every letter escaped; longer ones are not ours."""
        self._again = min(map(len, names)) + len('"":0,')
        """Bytes that another member with the shortest name takes at least."""
        self._known = set(names)
        """Ours, and others that have been looked at."""

    def check(self, members: dict[str, msgspec.Raw], body: bytes) -> None:
        """Refuse names of ours that are written otherwise or are there twice; raises InvalidBody.

        A member that was there twice is missing from what the members come to.
        """
        if not self._known.issuperset(members):
            for name in members:
                self._look_at(name)
        if len(body) - len(_encode(members)) < self._again:
            return
        names = read_names(body)  # it may be but blanks
        if len(names) > len(members):
            for name in self.ours:
                if names.count(name) > 1:
                    raise self.refuse_twice(name)

    def named(self, quoted: bytes) -> str:
        """Return which of ours a name is, or nothing; raises InvalidBody for other capitals."""
        if len(quoted) > self._longest:
            return ""
        name = msgspec.json.decode(quoted, type=str)
        if name in self.ours:
            return name
        self._look_at(name)
        return ""

    def refuse_twice(self, name: str) -> InvalidBody:
        return given_twice(self._path + name)

    def _look_at(self, name: str) -> None:
        if name in self._known:
            return
        folded = name.casefold()
        if folded in self.ours and len(folded) == len(name):  # what becomes longer is not folded
            path = self._path + folded
            words = f"write `{path}` just so: some servers take other capitals for the same name"
            raise InvalidBody(words, path)
        if len(self._known) >= _KNOWN_MAX:  # somebody makes them up
            self._known = set(self.ours)
        if len(name) <= self._longest:
            self._known.add(name)


def bounded_limit(limit: Limit) -> int:
    """Return a limit on output tokens from 0 (none) to `OUTPUT_LIMIT_MAX`.

    >>> bounded_limit(None), bounded_limit(5), bounded_limit(-1), bounded_limit(10**400)
    (0, 5, 0, 1000000000)
    """
    if type(limit) is int and 0 < limit < OUTPUT_LIMIT_MAX:
        return limit
    return int(min(max(limit, 0), OUTPUT_LIMIT_MAX)) if limit else 0


def prompt_tokens(body: bytes) -> int:
    """Guess the tokens of a prompt: text bytes / 4, with base64 (pictures) left out.

    Where hundreds of bytes of ASCII have no blank and no comma, there is base64: text has blanks,
    lists of tokens have commas.
    """
    size = len(body)
    if size >= 2 * _STEP:
        size -= _base64_bytes(body)
    return size // 4


def find_model(body: bytes, name: str = "model") -> tuple[int, int]:
    """Return where the value of `model` lies in a body that has been read."""
    for found in scan_members(body):
        if isinstance(found, tuple) and msgspec.json.decode(found[0], type=str) == name:
            return found[1], found[2]
    raise InvalidBody("`model` is required", "model")


def place_for_model(body: bytes) -> tuple[tuple[int, int], Frame]:
    """Return where and how to name the model in an object that has been read and names none."""
    at = body.index(b"{") + 1
    is_empty = not _MORE.match(body, at)
    return (at, at), Frame(b'"model":', b"" if is_empty else b",", in_json=True)


def replace_model(
    body: bytes, span: tuple[int, int], model: str, frame: Frame | None = None
) -> bytes:
    """Return the body with another model, every other byte as it was."""
    return body[: span[0]] + _named(model, frame) + body[span[1] :]


def cut_at_model(
    body: bytes, span: tuple[int, int], model: str, frame: Frame | None = None
) -> list[bytes | memoryview]:
    """Like `replace_model`, in pieces: of a large body nothing is copied."""
    view = memoryview(body)
    return [view[: span[0]], _named(model, frame), view[span[1] :]]


def _named(model: str, frame: Frame | None) -> bytes:
    return _encode(model) if frame is None else frame.write(model)


def _explain(text: str) -> tuple[str, str]:
    """Turn msgspec's words into ours: what is wrong, and with which field."""
    if missing := re.search(r"missing required field `([^`]*)`", text):
        return f"`{missing[1]}` is required", missing[1]
    found = _PATH.search(text)
    param = found[1] if found else ""
    if not param:
        return "the body must be a JSON object", "body"
    return f"`{param}`: {text.split(' - at ')[0]}", param


def _spans(body: bytes, rule: _Names) -> Generator[int, None, dict[str, tuple[int, int]]]:
    """Return where the values of our names are; raises InvalidBody where a name is wrong."""
    spans: dict[str, tuple[int, int]] = {}
    count = 0
    for found in scan_members(body):
        if isinstance(found, int):
            yield found
            continue
        quoted, start, end = found
        count += 1
        if count > MEMBERS_MAX:
            raise too_many()
        name = rule.named(quoted)
        if name in spans:
            raise rule.refuse_twice(name)
        if name:
            spans[name] = (start, end)
    return spans


def _given(body: bytes, name: str, start: int, end: int) -> msgspec.Raw:
    """Return what is given for a name; of a text that is very long, as much as can matter."""
    if end - start <= INLINE_BYTES:
        return msgspec.Raw(body[start:end])
    if body[start] == _QUOTE:
        return msgspec.Raw(cut_short(body, start, TEXT_BYTES_MAX))
    raise InvalidBody(f"`{name}` is too long", name)


def text_bytes(body: bytes) -> Generator[int, None, int]:
    """Return the size without base64, in slices; raises InvalidBody for what is not UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    left_out = 0
    try:
        for start in range(0, len(body), SLICE):
            piece = body[start : start + SLICE]
            decoder.decode(piece)
            if len(body) >= 2 * _STEP:
                left_out += _base64_bytes(piece)
            yield len(piece) + len(piece) * _SAMPLE // _STEP
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise InvalidBody("the body is not valid UTF-8") from None
    return len(body) - left_out


def _check_utf8(body: bytes) -> None:
    try:
        body.decode()
    except UnicodeDecodeError:
        raise InvalidBody("the body is not valid UTF-8") from None


def _base64_bytes(body: bytes) -> int:
    """Return how many bytes lie in steps that begin with ASCII without a blank or a comma."""
    found = 0
    for start in range(0, len(body), _STEP):
        sample = body[start : start + _SAMPLE]
        if sample.find(b" ") < 0 and sample.find(b",") < 0 and sample.isascii():
            found += min(_STEP, len(body) - start)
    return found
