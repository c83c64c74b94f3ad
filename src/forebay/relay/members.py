"""The members of a JSON object, one by one, in small steps.

`scan_members` reads the outermost object as RFC 8259 has it and says where each member's value
lies. It is a generator that pauses (yields a number), so that the event loop can do other things
between two steps.

Up to 512 KiB msgspec reads a body at once, in 4 ms at worst and a quarter of one usually
(`_read_values`). It has no decoder that keeps two members with one name, or gives up after so many;
but it asks an enum about every name that the enum does not have. Ours has none that anybody can
know, counts the names, and answers with one place after the other.

Of a larger body it reads pieces, being fifty times faster than anything in Python: a piece that
ends before a comma, put in brackets, is valid JSON only if it holds whole values (`_take_piece`).
Where that fails, patterns run over plain values to the next bracket (`_FIRST` after an opening one,
`_NEXT` after a comma, `_AFTER` after a value), and where a pattern cannot move, because a text goes
on beyond its window, one value is read by hand. A stack of closing brackets is all the memory.
"""

from __future__ import annotations

import secrets
import threading
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec

from forebay.errors import NotAllowed
from forebay.relay.json_text import (
    ARRAY,
    BLANKS,
    DIGITS,
    ESCAPE_BYTES,
    LITERAL,
    MEMBER,
    NAME,
    OBJECT,
    SLICE,
    TEXT,
    count_opening,
    has_more_opening,
    is_deeper,
    is_json,
)

if TYPE_CHECKING:
    from collections.abc import Generator

WHOLE_BYTES: Final = 524_288
"""A body up to here is read by msgspec at once."""
MEMBERS_MAX: Final = 1024
"""How many members the outermost object may have; requests have a few dozen."""
WINDOW: Final = 4_096
"""How much a pattern is given at once."""
STEP_WORK: Final = 160
"""What a step in Python counts for beside its bytes: it takes as long as msgspec for so many."""
PATTERN_WORK: Final = 12
"""What a byte read by a pattern counts for."""
DEPTH_MAX: Final = 512
"""How deep members may nest at least; more than any request needs, less than any parser's limit."""
BRACKETS_FREE: Final = 65_536
"""So few are not looked at: msgspec has a limit of its own, and to count the depth takes longer."""

T = TypeVar("T")
Member: TypeAlias = tuple[bytes, int, int]
"""The name as it is written, quotes and all, and where the value begins and ends."""

_ENDS: Final = {0x22: b'",', 0x5B: b"],", 0x7B: b"},"}
"""What the last comma between two values follows, where they are like the one that comes next."""
REACH_MIN: Final = 8_192
"""How far the first piece may go."""
PIECE_MIN: Final = 256
"""Less than this is not worth a call."""
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for a body; `unreadable` says it in our words."""
_FIRST, _NEXT, _AFTER = 0, 1, 2
_BLANK_MAX, _QUOTE, _COMMA, _COLON = 0x20, 0x22, 0x2C, 0x3A
_MINUS, _POINT, _EXPONENT, _SIGNS = 0x2D, 0x2E, (0x45, 0x65), (0x2B, 0x2D)
_OPEN_OBJECT, _CLOSE_OBJECT, _CLOSE_ARRAY = 0x7B, 0x7D, 0x5D
_OPENING: Final = (0x7B, 0x5B)


class InvalidBody(NotAllowed):
    """The body cannot be read; `param` names the field at fault."""

    code = "invalid_request"

    def __init__(self, message: str, param: str = "body") -> None:
        super().__init__(message)
        self.param = param


class _Name(Enum):
    """What msgspec takes names for."""

    __hash__ = object.__hash__

    @classmethod
    def _missing_(cls, name: Any) -> Any:
        names = _seen.names
        place = _PLACES[len(names)]
        names.append(name)
        return place


class _Seen(threading.local):
    """The names of the body that this thread reads: jobs read large ones beside the loop."""

    def __init__(self) -> None:
        self.names: list[str] = []


_places = {f"at_{at}": secrets.token_hex() for at in range(MEMBERS_MAX)}
_Place: Any = _Name("_Place", _places)  # type: ignore[call-arg]
_PLACES: Final = list(_Place)
_seen: Final = _Seen()
_VALUES: Final = msgspec.json.Decoder(dict[_Place, msgspec.Raw])


def scan_members(body: bytes) -> Generator[int | Member, None, None]:
    """Yield each member of the outermost object, and now and then the bytes looked at since.

    >>> [found[0] for found in scan_members(b'{"a": [1, "]"], "b":2}') if isinstance(found, tuple)]
    [b'"a"', b'"b"']
    """
    return _scan_at_once(body) if len(body) <= WHOLE_BYTES else _Scan(body).members()


def read_names(body: bytes) -> list[str]:
    """Return the names of all members in their order; the body is a small one."""
    _read_values(body)
    return _seen.names


def read_members(body: bytes) -> Generator[int, None, dict[str, msgspec.Raw]]:
    """Return the members of an object, in slices; raises InvalidBody, also for a name twice."""
    members: dict[str, msgspec.Raw] = {}
    for found in scan_members(body):
        if isinstance(found, int):
            yield found
            continue
        quoted, start, end = found
        name = msgspec.json.decode(quoted, type=str)
        if name in members:
            raise given_twice(name)
        members[name] = msgspec.Raw(body[start:end])
        if len(members) > MEMBERS_MAX:
            raise too_many()
    return members


def check_depth(body: bytes) -> Generator[int, None, None]:
    """Refuse, in slices, what is nested too deeply and was read by msgspec; raises InvalidBody."""
    depth_max = DEPTH_MAX + 1  # with the outermost object
    if has_more_opening(body, BRACKETS_FREE) and (yield from is_deeper(body, depth_max)):
        raise InvalidBody("the body is nested too deeply")


def too_many() -> InvalidBody:
    """Return the refusal of an object that has too many members."""
    return InvalidBody(f"the body has more than {MEMBERS_MAX} members")


def given_twice(name: str) -> InvalidBody:
    """Return the refusal of a member of which a second reader may take the other value."""
    name = name[:64]
    return InvalidBody(f"`{name}` is given more than once", name)


def decode_json(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Return what msgspec makes of a body that must be an object; raises InvalidBody."""
    try:
        return decoder.decode(body)
    except UNREADABLE as error:
        raise unreadable(error) from None


def unreadable(error: Exception) -> InvalidBody:
    """Return the refusal of a body that msgspec could not read."""
    if isinstance(error, msgspec.ValidationError):
        return InvalidBody("the body must be a JSON object")
    if isinstance(error, UnicodeDecodeError):
        return InvalidBody("the body is not valid UTF-8")
    if isinstance(error, RecursionError):
        return InvalidBody("the body is nested too deeply")
    return InvalidBody(f"the body is not valid JSON: {error}")


def _scan_at_once(body: bytes) -> Generator[int | Member, None, None]:
    values = _read_values(body)
    yield len(body)
    yield from check_depth(body)
    end = 0
    for value in values:
        found = MEMBER.match(body, end)
        assert found is not None  # msgspec has seen it
        start = found.end()
        end = start + memoryview(value).nbytes
        yield found[1], start, end


def _read_values(body: bytes) -> list[msgspec.Raw]:
    names = _seen.names = []
    try:
        return list(decode_json(_VALUES, body).values())
    except InvalidBody:
        if len(names) == MEMBERS_MAX:
            raise too_many() from None
        raise


class _Scan:
    """One pass over a body."""

    __slots__ = ("_at", "_body", "_closing", "_reach", "_scanned", "_wasted", "_work")

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0
        self._closing = bytearray()
        """The brackets that must come yet, the next one last."""
        self._reach = REACH_MIN
        """How far to look for the end of a piece; more after each success."""
        self._wasted = 0
        """Bytes that were looked at for a piece which was none."""
        self._scanned = 0
        self._work = 0

    def members(self) -> Generator[int | Member, None, None]:
        """Yield the members, and numbers for pauses."""
        yield from self._blanks()
        self._expect(_OPEN_OBJECT, "{")
        yield from self._blanks()
        if self._next() != _CLOSE_OBJECT:
            yield from self._member()
            while self._next() == _COMMA:
                self._goes_to(self._at + 1)
                yield from self._blanks()
                yield from self._member()
        self._expect(_CLOSE_OBJECT, "}")
        yield from self._blanks()
        if self._at != len(self._body):
            raise self._wrong("trailing characters")

    # -- inside

    def _member(self) -> Generator[int | Member, None, None]:
        name = yield from self._name()
        start = self._at
        yield from self._value()
        yield name, start, self._at
        yield from self._blanks()
        if self._work >= SLICE:
            yield self._paused()

    def _blanks(self) -> Generator[int, None, None]:
        while self._are_blanks_cut():
            yield self._paused()

    def _name(self) -> Generator[int, None, bytes]:
        """Go past a name and its colon, to the value; return the name."""
        start, end = self._at, self._at + WINDOW
        found = NAME.match(self._body, start, end)
        if found is not None and found.end() < end:
            self._goes_to(found.end())
            return found[1]
        self._looked(end - start)  # it is wrong, or longer than any that matters
        yield from self._text()
        name = self._body[start : self._at]
        yield from self._blanks()
        self._expect(_COLON, ":")
        yield from self._blanks()
        return name

    def _value(self) -> Generator[int, None, None]:
        """Go past one value, whatever it is."""
        first = self._next()
        if first in _OPENING:
            self._opens(first)
            yield from self._container()
        elif first == _QUOTE:
            yield from self._text()
        else:
            yield from self._literal()

    def _container(self) -> Generator[int, None, None]:
        """Go past what is in an object or a list, and its end."""
        body, closing, state = self._body, self._closing, _FIRST
        while closing:
            if self._may_try():
                state = yield from self._pieces(state)
            start, end = self._at, self._at + WINDOW
            patterns = OBJECT if closing[-1] == _CLOSE_OBJECT else ARRAY
            found = patterns[state].match(body, start, end)
            if found is None or found.end() == start:
                self._looked(min(end, len(body)) - start)
                state = yield from self._by_hand(state)
            elif found.lastindex is None:  # the window ends here, or what follows is wrong
                self._looked(min(end, len(body)) - found.end())
                self._goes_to(found.end())
                state = _NEXT
            else:
                self._goes_to(found.end() - 1)
                state = self._bracket(body[self._at])
            if self._work >= SLICE:
                yield self._paused()

    def _pieces(self, state: int) -> Generator[int, None, int]:
        """Go past as many values as msgspec can be asked about; return the next state."""
        while True:
            while self._are_blanks_cut():
                yield self._paused()
            first = self._next()
            if state == _AFTER and first == _COMMA:
                self._at += 1
                state = _NEXT
            elif state == _AFTER or first == self._closing[-1] or not self._take_piece(first):
                return state
            else:
                state = _NEXT
                if self._work >= SLICE:
                    yield self._paused()

    def _take_piece(self, first: int) -> bool:
        """Go past as many whole values, each with its comma, as msgspec may read at once."""
        body, start = self._body, self._at
        is_object = self._closing[-1] == _CLOSE_OBJECT
        end = min(start + self._reach, len(body))
        ending = b"}," if is_object else _ENDS.get(first, b",")
        comma = body.find(b",", body.rfind(ending, start, end))
        if start + PIECE_MIN <= comma < end:
            piece = body[start:comma]
            depth_left = DEPTH_MAX - len(self._closing)
            opening = count_opening(piece)
            self._work += 2 * len(piece) + STEP_WORK
            if opening > depth_left:  # so many might be too deep: take less
                self._reach = max((end - start) * depth_left // opening, PIECE_MIN)
            elif is_json(b"{%b}" % piece if is_object else b"[%b]" % piece):
                self._looked(end - start)
                self._at = comma + 1
                if opening < depth_left // 4:
                    self._reach = min(2 * self._reach, SLICE)
                return True
            else:
                self._reach = max(self._reach // 4, REACH_MIN // 4)
        else:
            self._reach = max(self._reach // 4, REACH_MIN // 4)
        self._wastes(end - start)
        return False

    def _may_try(self) -> bool:
        """Say whether msgspec is worth a try: no longer where too much was wasted on it."""
        return 2 * self._wasted <= self._at + REACH_MIN

    def _wastes(self, size_bytes: int) -> None:
        self._work += STEP_WORK
        self._looked(size_bytes)
        self._wasted += size_bytes

    def _by_hand(self, state: int) -> Generator[int, None, int]:
        """Go past one value inside a container, or what is between two; return the next state."""
        yield from self._blanks()
        if state != _NEXT and self._next() == self._closing[-1]:
            return self._bracket(self._closing[-1])
        if state == _AFTER:
            self._expect(_COMMA, "a comma or the end")
            return _NEXT
        if self._closing[-1] == _CLOSE_OBJECT:
            yield from self._name()
        first = self._next()
        if first in _OPENING:
            return self._bracket(first)
        yield from self._value()
        return _AFTER

    def _bracket(self, bracket: int) -> int:
        """Go past a bracket that opens or closes; return the next state."""
        if bracket not in _OPENING:
            self._closing.pop()
            self._goes_to(self._at + 1)
            return _AFTER
        self._opens(bracket)
        return _FIRST

    def _opens(self, bracket: int) -> None:
        self._closing.append(_CLOSE_OBJECT if bracket == _OPEN_OBJECT else _CLOSE_ARRAY)
        if len(self._closing) > DEPTH_MAX:
            raise InvalidBody("the body is nested too deeply")
        self._goes_to(self._at + 1)

    def _text(self) -> Generator[int, None, None]:
        """Go past a text, however long it is."""
        self._expect(_QUOTE, "a text")
        while True:
            start, end = self._at, self._at + WINDOW
            if not self._take_text():
                found = TEXT.match(self._body, start, end)
                self._goes_to(found.end() if found is not None else start)
                if self._next() != _QUOTE and self._at < end - ESCAPE_BYTES:
                    raise self._wrong("invalid text")  # it was not the window's end that stopped it
            if self._next() == _QUOTE:
                self._at += 1
                return
            if self._work >= SLICE:
                yield self._paused()

    def _take_text(self) -> bool:
        """Go on in a text with msgspec, as far as no quote and no escape is in doubt."""
        body, start = self._body, self._at
        if not self._may_try():
            return False
        end = min(start + self._reach, len(body))
        quote = body.find(b'"', start, end)
        stop = quote if quote >= 0 else end
        edge = max(start, stop - ESCAPE_BYTES)
        if stop - start < PIECE_MIN or body.rfind(b"\\", edge, stop) >= 0:
            self._wastes(stop - start)
            return False
        self._looked(stop - start)
        self._work += 2 * (stop - start) + STEP_WORK
        if not is_json(b'"%b"' % body[start:stop]):
            raise self._wrong("invalid text")
        self._at = stop
        self._reach = min(2 * self._reach, SLICE)
        return True

    def _literal(self) -> Generator[int, None, None]:
        found = LITERAL.match(self._body, self._at, self._at + WINDOW)
        if found is None:
            raise self._wrong("no value")
        if found.end() - self._at < WINDOW - len(".e+"):  # else it may go on beyond the window
            self._goes_to(found.end())
            return
        self._at += self._next() == _MINUS
        yield from self._digits()
        if self._next() == _POINT:
            self._at += 1
            yield from self._digits()
        if self._next() in _EXPONENT:
            self._at += 1
            self._at += self._next() in _SIGNS
            yield from self._digits()

    def _digits(self) -> Generator[int, None, None]:
        start = self._at
        while True:
            end = self._at + SLICE
            found = DIGITS.match(self._body, self._at, end)
            self._goes_to(found.end() if found is not None else self._at)
            if self._at == start:
                raise self._wrong("a digit is missing")
            if self._at < end:
                return
            yield self._paused()

    def _are_blanks_cut(self) -> bool:
        """Go past blanks; say whether there may be more of them after a pause."""
        if self._next() > _BLANK_MAX:
            return False
        end = self._at + SLICE
        found = BLANKS.match(self._body, self._at, end)
        self._goes_to(found.end() if found is not None else self._at)
        return self._at == end

    def _next(self) -> int:
        return self._body[self._at] if self._at < len(self._body) else -1

    def _expect(self, what: int, words: str) -> None:
        if self._next() != what:
            raise self._wrong(f"expected {words}")
        self._goes_to(self._at + 1)

    def _goes_to(self, at: int) -> None:
        self._looked(at - self._at)
        self._work += PATTERN_WORK * (at - self._at) + STEP_WORK
        self._at = at

    def _looked(self, size_bytes: int) -> None:
        self._scanned += size_bytes

    def _paused(self) -> int:
        scanned, self._scanned, self._work = self._scanned, 0, 0
        return scanned

    def _wrong(self, words: str) -> InvalidBody:
        return InvalidBody(f"the body is not valid JSON: {words} (byte {self._at})")
