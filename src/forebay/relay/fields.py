"""Reading the few fields of a body that the gateway must know, and refusing what is not JSON.

msgspec reads them in under a microsecond and skips the rest, but lets three things pass: bytes
that are not UTF-8 inside skipped strings, a name given twice (the node might read the other one:
whom do we queue for then?), and depth, which it answers with RecursionError. So the text must be
UTF-8, and where a name might come twice the members are looked at one by one (`members`).

A decode of 30 MiB holds the interpreter for 20-60 ms, in a thread too. Large bodies are
therefore read in small steps by `members`, and meant to be read in a thread.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final, Protocol, TypeAlias, cast

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from forebay.relay.members import InvalidBody, base64_bytes, check_utf8, scan_members

if TYPE_CHECKING:
    from forebay.relay.problem import Unsupported

LARGE_BYTES: Final = 524_288
"""From here on a body is read off the event loop; below, it takes under a millisecond."""

Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
Limit: TypeAlias = int | float | UnsetType | None
Text: TypeAlias = str | UnsetType | None
Flag: TypeAlias = bool | UnsetType | None

_ESCAPED_LETTER = re.compile(rb"\\u00[2-7]")
_PATH = re.compile(r"`\$\.?([^`]*)`")
STEP: Final = 4096


class Fields(Protocol):
    """What every family's body says."""

    model: str
    stream: Flag

    def named_user(self) -> str | None: ...  # noqa: D102
    def tier(self) -> str | None: ...  # noqa: D102
    def output_limit(self) -> int: ...  # noqa: D102
    def unsupported(self) -> Unsupported | None: ...  # noqa: D102


class FieldsReader:
    """Reads one family's bodies into its struct of fields."""

    def __init__(self, struct: type[msgspec.Struct], nested: tuple[str, str] = ("", "")) -> None:
        """Read into `struct`; `nested` names a member that is an object, and what is read of it."""
        self._decoder = msgspec.json.Decoder(struct)
        self._names = [field.encode_name for field in msgspec.structs.fields(struct)]
        self._quoted = [b'"%b"' % name.encode() for name in self._names]
        self._nested = nested
        self._nested_quoted = b'"%b"' % nested[1].encode()

    def read(self, body: bytes) -> Fields:
        """Return the fields of a body; raises InvalidBody."""
        if not body.isascii():
            check_utf8(body)
        fields = self._decode(body)
        if self._may_repeat(fields, body):
            self._refuse_repeated(body)
        return fields

    def read_large(self, body: bytes) -> tuple[Fields, tuple[int, int]]:
        """Like `read`, in small steps that let other threads on; also says where `model` is."""
        check_utf8(body)
        spans = self._refuse_repeated(body)
        small = b",".join(
            [
                b'"%b":%b' % (name.encode(), body[spans[name][0] : spans[name][1]])
                for name in self._names
                if name in spans
            ]
        )
        return self._decode(b"{%b}" % small), spans["model"]

    def _decode(self, body: bytes) -> Fields:
        try:
            return cast("Fields", self._decoder.decode(body))
        except msgspec.ValidationError as error:
            raise InvalidBody(*_explain(str(error))) from None
        except msgspec.DecodeError as error:
            raise InvalidBody(f"the body is not valid JSON: {error}", "body") from None
        except RecursionError:
            raise InvalidBody("the body is nested too deeply", "body") from None

    def _may_repeat(self, fields: Fields, body: bytes) -> bool:
        """Say whether a name that was found may be there again, as far as a quick look tells."""
        values, absent = astuple(cast("msgspec.Struct", fields)), UNSET
        for index, quoted in enumerate(self._quoted):
            if values[index] is not absent and body.count(quoted) > 1:
                return True
        if self._nested[0] and body.count(self._nested_quoted) > 1:
            return True
        # Not `in`: inside CPython it raises and swallows an exception before it looks, for 0.4 µs.
        slash = body.find(b"\\")
        return slash >= 0 and _ESCAPED_LETTER.search(body, slash) is not None

    def _refuse_repeated(self, body: bytes) -> dict[str, tuple[int, int]]:
        spans: dict[str, tuple[int, int]] = {}
        for name, span in scan_members(body):
            if name in spans and name in self._names:
                raise InvalidBody(f"`{name}` is given more than once", name)
            spans[name] = span
        outer, inner = self._nested
        if outer in spans and body[spans[outer][0] : spans[outer][0] + 1] == b"{":
            names = [name for name, _ in scan_members(body[spans[outer][0] : spans[outer][1]])]
            if names.count(inner) > 1:
                raise InvalidBody(f"`{outer}.{inner}` is given more than once", f"{outer}.{inner}")
        return spans


def prompt_tokens(body: bytes) -> int:
    """Guess the tokens of a prompt: text bytes / 4, with base64 (pictures) left out.

    Four thousand bytes of ASCII without a blank or a comma are base64: text has blanks, lists of
    tokens have commas.
    """
    size = len(body)
    if size >= 2 * STEP:
        size -= base64_bytes(body, STEP)
    return size // 4


def find_model(body: bytes) -> tuple[int, int]:
    """Return where the value of `model` lies; raises InvalidBody for what cannot be rewritten."""
    members = list(scan_members(body))  # to its end: all of it must be readable
    return next(span for name, span in members if name == "model")


def replace_model(body: bytes, span: tuple[int, int], model: str) -> bytes:
    """Return the body with another model, every other byte as it was."""
    return body[: span[0]] + msgspec.json.encode(model) + body[span[1] :]


def _explain(text: str) -> tuple[str, str]:
    """Turn msgspec's words into ours: what is wrong, and with which field."""
    if missing := re.search(r"missing required field `([^`]*)`", text):
        return f"`{missing[1]}` is required", missing[1]
    found = _PATH.search(text)
    param = found[1] if found else ""
    if not param:
        return "the body must be a JSON object", "body"
    return f"`{param}`: {text.split(' - at ')[0]}", param
