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
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, TypeAlias, cast

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from forebay.relay.limits import bounded_limit
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


class Reading:
    """What has been read of a body."""

    __slots__ = (
        "fields", "is_plain", "model_span", "output_limit", "prompt_tokens", "tier",
        "unsupported", "user",
    )  # fmt: skip

    def __init__(
        self,
        fields: Fields,
        prompt_tokens: int,
        model_span: tuple[int, int] = (0, 0),
        plain_limit: int = -1,
    ) -> None:
        """Ask the fields what they say; one with a `plain_limit` gives a model and limits only.

        Of such a body, as most are, they need not be asked: their methods are not compiled.
        """
        self.fields = fields
        self.prompt_tokens = prompt_tokens
        self.model_span = model_span
        """Where `model` is; (0, 0) when nobody has looked."""
        self.is_plain = plain_limit >= 0
        self.output_limit = plain_limit if plain_limit >= 0 else fields.output_limit()
        self.user: str | None = None
        self.tier: str | None = None
        self.unsupported: Unsupported | None = None
        if not self.is_plain:
            self.user, self.tier = fields.named_user(), fields.tier()
            self.unsupported = fields.unsupported()


class FieldsReader:
    """Reads one family's bodies into its struct of fields."""

    def __init__(
        self,
        struct: type[msgspec.Struct],
        nested: tuple[str, str] = ("", ""),
        limits: tuple[str, ...] = (),
    ) -> None:
        """Read into `struct`; `nested` names a member that is an object, and what is read of it.

        `limits` are the fields that cap the output; of several, the first that is given counts.
        """
        self._decoder = msgspec.json.Decoder(struct)
        self._names = [field.encode_name for field in msgspec.structs.fields(struct)]
        self._limits = [self._names.index(name) for name in limits]
        plain = ("model", *limits)
        self._others = [at for at, name in enumerate(self._names) if name not in plain]
        self._quoted = [b'"%b"' % name.encode() for name in self._names]
        self._nested = nested
        self._nested_quoted = b'"%b"' % nested[1].encode()

    def read(self, body: bytes) -> Fields:
        """Return the fields of a body; raises InvalidBody."""
        return self.look_at(body).fields

    def look_at(self, body: bytes) -> Reading:
        """Like `read`, and say what else is known of the body."""
        if not body.isascii():
            check_utf8(body)
        fields = self._decode(body)
        values = astuple(cast("msgspec.Struct", fields))
        if self._may_repeat(values, body):
            self._refuse_repeated(body)
        return Reading(fields, prompt_tokens(body), (0, 0), self._plain_limit(values))

    def _plain_limit(self, values: tuple[Any, ...]) -> int:
        """Return the limit of a body that gives only a model and limits; -1 where it says more."""
        absent = UNSET
        for index in self._others:
            if values[index] is not absent:
                return -1
        for index in self._limits:
            if values[index]:  # UNSET, None and 0 are none
                return bounded_limit(values[index])
        return 0

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

    def _may_repeat(self, values: tuple[Any, ...], body: bytes) -> bool:
        """Say whether a name that was found may be there again, as far as a quick look tells."""
        absent = UNSET
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
