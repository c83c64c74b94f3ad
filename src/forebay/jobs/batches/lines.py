"""Parsing and validation of a batch's input, line by line.

A file is never held in memory whole. The first error of each line is reported, ERRORS_MAX in all; a
batch with any error runs nothing, so that its caller corrects the file instead of half an output. A
body is kept as the text that it is; only what a live request is checked for is checked.

A line ends with a line feed; blank ones are skipped, but counted, so that line numbers are those of
an editor. Limits: LINES_MAX requests, LINE_BYTES_MAX for each line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from forebay.errors import NotAllowed
from forebay.jobs.builtin import FAMILY
from forebay.relay.members import InvalidBody

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MODELS_MAX = 100
"""Models in one batch: each takes a ticket in the queue."""
LINES_MAX = 50_000
LINE_BYTES_MAX = 32 * 1024 * 1024
"""The gateway's default limit for the body of a request."""
ERRORS_MAX = 100
CUSTOM_ID_MAX = 512
MODEL_MAX = 1024
BOM = b"\xef\xbb\xbf"


class LineError(Struct, frozen=True):
    """An error in the format of OpenAI."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class BatchLine(Struct, frozen=True):
    """One request of a batch."""

    number: int
    """From 1, as an editor counts."""
    custom_id: str
    model: str
    body: str
    """JSON, as it is in the file."""


class RawLine(Struct, frozen=True):
    """A line as it is in the file."""

    number: int
    end: int
    """Offset of the next line, in bytes."""
    text: bytes
    """Without its end; cut off after LINE_BYTES_MAX + 1 bytes."""


class _Request(Struct):
    custom_id: Raw | UnsetType = UNSET
    method: Raw | UnsetType = UNSET
    url: Raw | UnsetType = UNSET
    body: Raw | UnsetType = UNSET


class _Body(Struct):
    model: Raw | UnsetType = UNSET
    stream: Raw | UnsetType = UNSET


class WrongLine(NotAllowed):
    """A line is not valid."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.fault = (code, message, param)


_REQUEST = msgspec.json.Decoder(_Request)
_BODY = msgspec.json.Decoder(_Body)
_ANY = msgspec.json.Decoder()


def raw_lines(file: BinaryIO, number: int = 0) -> Iterator[RawLine]:
    """Yield the lines of a file from its position on; `number` lines lie before that."""
    end = file.tell()
    while True:
        text = file.readline(LINE_BYTES_MAX + 2)
        if not text:
            return
        number += 1
        end += len(text)
        rest = text
        while not rest.endswith(b"\n"):  # too long: the rest is read, but not kept
            rest = file.readline(LINE_BYTES_MAX)
            if not rest:
                break
            end += len(rest)
        yield RawLine(number, end, text.rstrip(b"\r\n"))


def read(raw: RawLine, endpoint: str) -> BatchLine | None:
    """Parse a line; None for a blank one. Raises WrongLine."""
    if len(raw.text) > LINE_BYTES_MAX:
        raise WrongLine("line_too_long", f"The line is longer than {LINE_BYTES_MAX} bytes.")
    if raw.number == 1 and raw.text.startswith(BOM):
        raise WrongLine(
            "invalid_encoding", "The file begins with a byte order mark; save it without."
        )
    try:
        raw.text.decode()
    except UnicodeDecodeError:
        raise WrongLine("invalid_encoding", "The line is not valid UTF-8.") from None
    if not raw.text.strip():
        return None
    request = _decoded(_REQUEST, raw.text, "The line is not a JSON object", None)
    custom_id = _text(request.custom_id, "custom_id", CUSTOM_ID_MAX)
    if _text(request.method, "method", None) != "POST":
        raise WrongLine("invalid_method", "The method must be POST.", "method")
    if _text(request.url, "url", None) != endpoint:
        raise WrongLine(
            "mismatched_url", f"The url must be the batch's endpoint, {endpoint}.", "url"
        )
    if request.body is UNSET:
        raise _missing("body")
    body = bytes(request.body)
    return BatchLine(raw.number, custom_id, _model(body), body.decode())


class Validation:
    """Validates a whole file, line by line."""

    def __init__(self, endpoint: str, may_use: Callable[[str], bool]) -> None:
        self._endpoint = endpoint
        self._may_use = may_use
        self._seen: set[str] = set()
        self._allowed: dict[str, bool] = {}
        self.total = 0
        self.errors: list[LineError] = []

    def run(
        self, found: Iterator[RawLine], check_stopping: Callable[[], object] = lambda: None
    ) -> list[LineError]:
        """Return the errors; `check_stopping` is called before each line and may raise."""
        for raw in found:
            check_stopping()
            try:
                self._check(raw)
            except WrongLine as wrong:
                self._note(wrong, raw.number)
            if len(self.errors) >= ERRORS_MAX or self.total > LINES_MAX:
                return self.errors
        if not self.total and not self.errors:
            self._note(WrongLine("empty_file", "The file holds no requests."), None)
        return self.errors

    def _check(self, raw: RawLine) -> None:
        line = read(raw, self._endpoint)
        if line is None:
            return
        self.total += 1
        if self.total > LINES_MAX:
            raise WrongLine("too_many_lines", f"A batch has {LINES_MAX} requests at most.")
        if line.custom_id in self._seen:
            raise WrongLine("duplicate_custom_id", "The custom_id was used before.", "custom_id")
        self._seen.add(line.custom_id)
        if line.model not in self._allowed:  # the owner's key is checked once for each
            if len(self._allowed) >= MODELS_MAX:
                raise WrongLine(
                    "too_many_models", f"A batch asks {MODELS_MAX} models at most.", "body.model"
                )
            self._allowed[line.model] = self._may_use(line.model)
        if not self._allowed[line.model]:
            raise WrongLine("model_not_allowed", "The key may not use this model.", "body.model")

    def _note(self, wrong: WrongLine, number: int | None) -> None:
        code, message, param = wrong.fault
        self.errors.append(LineError(code, message, number, param))


def _model(body: bytes) -> str:
    fields = _decoded(_BODY, body, "The body is not a JSON object", "body")
    model = _text(fields.model, "body.model", MODEL_MAX)
    if fields.stream is not UNSET and bytes(fields.stream) == b"true":
        raise WrongLine("unsupported", "A batch cannot stream: leave stream out.", "body.stream")
    try:
        # As for a live request: a duplicate member would be read differently by the node.
        *_, unsupported = FAMILY.reader.read(body).told()
    except InvalidBody as error:
        param = "body" if error.param == "body" else f"body.{error.param}"
        raise WrongLine("invalid_value", f"The body cannot be used: {error}.", param) from None
    if unsupported is not None:
        param = f"body.{unsupported.param}"
        raise WrongLine("unsupported", f"The body cannot be used: {unsupported.message}.", param)
    return model


def _decoded(decoder: msgspec.json.Decoder[Any], text: bytes, words: str, param: str | None) -> Any:
    try:
        return decoder.decode(text)
    except RecursionError:
        raise WrongLine("invalid_json_line", "The line is nested too deeply.", param) from None
    except msgspec.ValidationError:
        raise WrongLine("invalid_type", f"{words}.", param) from None
    except msgspec.DecodeError as error:
        raise WrongLine(
            "invalid_json_line", f"The line is not valid JSON: {error}.", param
        ) from None


def _text(raw: Raw | UnsetType, name: str, length_max: int | None) -> str:
    """Return a member that must be a string; one with a bound is stored and may not be empty."""
    if raw is UNSET:
        raise _missing(name)
    value = None
    if bytes(raw)[:1] == b'"':  # else it may be large, and is wrong anyway
        value = _decoded(_ANY, bytes(raw), "", name)
    if not isinstance(value, str):
        raise WrongLine("invalid_type", f"{name} must be a string.", name)
    if length_max is not None:
        if not 0 < len(value) <= length_max:
            raise WrongLine(
                "invalid_value", f"{name} must have 1 to {length_max} characters.", name
            )
        if "\0" in value:  # PostgreSQL cannot keep it
            raise WrongLine("invalid_value", f"{name} holds a NUL character.", name)
    return value


def _missing(name: str) -> WrongLine:
    return WrongLine("missing_required_parameter", f"{name} is missing.", name)
