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
from typing import Annotated, Protocol, TypeAlias, cast

import msgspec

from forebay.relay.members import InvalidBody, check_utf8, scan_members

LARGE_BYTES = 524_288
"""From here on a body is read off the event loop; below, it takes under a millisecond."""

Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
Limit: TypeAlias = int | float | None

_ESCAPED_LETTER = re.compile(rb"\\u00[2-7]")
_PATH = re.compile(r"`\$\.?([^`]*)`")
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{512,}={0,2}")
_STEP = 65_536


class Unsupported(msgspec.Struct, frozen=True, gc=False):
    """A field that asks for something this gateway does not offer."""

    param: str
    message: str


class Fields(Protocol):
    """What every family's body says."""

    model: str
    stream: bool | None

    @property
    def user(self) -> str | None: ...  # noqa: D102
    @property
    def service_tier(self) -> str | None: ...  # noqa: D102
    def output_limit(self) -> float: ...  # noqa: D102
    def unsupported(self) -> Unsupported | None: ...  # noqa: D102


class FieldsReader:
    """Reads one family's bodies into its struct of fields."""

    def __init__(self, struct: type[msgspec.Struct]) -> None:
        self._decoder = msgspec.json.Decoder(struct)
        self._names = [field.encode_name for field in msgspec.structs.fields(struct)]
        self._quoted = [b'"%b"' % name.encode() for name in self._names]

    def read(self, body: bytes) -> Fields:
        """Return the fields of a body; raises InvalidBody."""
        if not body.isascii():
            check_utf8(body)
        if self._may_repeat(body):
            self._refuse_repeated(body)
        return self._decode(body)

    def read_large(self, body: bytes) -> Fields:
        """Like `read`, in small steps that let other threads on."""
        check_utf8(body)
        spans = self._refuse_repeated(body)
        small = b",".join(
            b'"%b":%b' % (name.encode(), body[slice(*spans[name])])
            for name in self._names
            if name in spans
        )
        return self._decode(b"{%b}" % small)

    def _decode(self, body: bytes) -> Fields:
        try:
            return cast("Fields", self._decoder.decode(body))
        except msgspec.ValidationError as error:
            raise InvalidBody(*_explain(str(error))) from None
        except msgspec.DecodeError as error:
            raise InvalidBody(f"the body is not valid JSON: {error}", "body") from None
        except RecursionError:
            raise InvalidBody("the body is nested too deeply", "body") from None

    def _may_repeat(self, body: bytes) -> bool:
        for quoted in self._quoted:
            if body.count(quoted) > 1:
                return True
        return b"\\u00" in body and _ESCAPED_LETTER.search(body) is not None

    def _refuse_repeated(self, body: bytes) -> dict[str, tuple[int, int]]:
        spans: dict[str, tuple[int, int]] = {}
        for name, span in scan_members(body):
            if name in spans and name in self._names:
                raise InvalidBody(f"`{name}` is given more than once", name)
            spans[name] = span
        return spans


def prompt_tokens(body: bytes) -> int:
    """Guess the tokens of a prompt: text bytes / 4, with base64 (pictures) left out."""
    size = len(body)
    if size > 4096 and (b"base64" in body or b'"images"' in body):
        for start in range(0, size, _STEP):
            for match in _BASE64.finditer(body, start, min(start + _STEP, len(body))):
                size -= match.end() - match.start()
    return size // 4


def replace_model(body: bytes, model: str) -> bytes:
    """Return the body with another model, every other byte as it was."""
    for name, (start, end) in scan_members(body):
        if name == "model":
            return body[:start] + msgspec.json.encode(model) + body[end:]
    return body


def _explain(text: str) -> tuple[str, str]:
    """Turn msgspec's words into ours: what is wrong, and with which field."""
    if missing := re.search(r"missing required field `([^`]*)`", text):
        return f"`{missing[1]}` is required", missing[1]
    found = _PATH.search(text)
    param = found[1] if found else ""
    if not param:
        return "the body must be a JSON object", "body"
    return f"`{param}`: {text.split(' - at ')[0]}", param
