"""Reading an answer: whole or streamed, from a Forebay gateway or any other server.

Fed with bytes and the time they came at; does no I/O. What is kept is small, whatever is sent.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec
from msgspec import Struct

from forebay.sse import BadStream, SseLines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.load.samples import RequestSample

BODY_BYTES_MAX = 16 * 1024 * 1024
"""Of an answer in one piece: more than the million tokens that may be asked for."""
LINE_BYTES_MAX = 4 * 1024 * 1024
CODE_LENGTH_MAX = 64
MESSAGE_LENGTH_MAX = 300
COUNT_MAX = 10**9
"""Of tokens, or of seconds that were waited: what is more than that was not counted."""
FINISH_ERROR = "finish_error"
"""The answer ended, and says that it did for an error."""
_STARTED = re.compile(rb"started(?: node=(\S+))?(?: waited_ms=(\d+))?")


class _Usage(Struct):
    prompt_tokens: Any = None
    completion_tokens: Any = None


class _Delta(Struct):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: Any = None
    refusal: Any = None


class _Choice(Struct):
    message: Any = None
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Piece(Struct):
    """A whole answer, or one event of a stream."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode_piece = msgspec.json.Decoder(_Piece).decode


def error_code(error: object, fallback: str) -> str:
    """Return the code of an error body, fit to be shown.

    >>> error_code({"code": "queue_full", "type": "x"}, "http_429"), error_code("no", "http_500")
    ('queue_full', 'http_500')
    """
    if isinstance(error, dict):
        for field in ("code", "type"):
            if isinstance(found := error.get(field), str) and found:
                return plain(found)
    return fallback


def plain(text: str, length_max: int = CODE_LENGTH_MAX) -> str:
    """Return a short text without anything that a terminal or a table would mind."""
    return "".join(c if c.isprintable() else "?" for c in text[:length_max])


class MeasuredAnswer:
    """One answer as it comes in; writes what it learns into a sample.

    Times are kept relative to `origin_s`, when the request should have been sent.
    """

    def __init__(self, sample: RequestSample, origin_s: float) -> None:
        self.sample = sample
        self.retry_after_s: float | None = None
        self.message = ""
        """What the server said about a failure."""
        self._origin_s = origin_s
        self._is_stream = False
        self._buffer = bytearray()
        """An answer in one piece, as far as it has come."""
        self._lines = SseLines(LINE_BYTES_MAX)
        self._is_done = False
        self._is_finished = False
        """The model has said why it ended: an answer may be empty."""
        self._pieces = 0
        self._usage_out: int | None = None
        self._first_s = 0.0
        self._last_s = 0.0

    # -- as it comes

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        """Take the status and the headers; names are in lower case."""
        sample = self.sample
        sample.status = status
        kind = headers.get("content-type", "").strip().lower()
        self._is_stream = status < 300 and kind.startswith("text/event-stream")
        wait = headers.get("x-queue-wait-ms", "")
        if wait.isascii() and wait.isdigit() and len(wait) < 12:
            sample.wait_s = int(wait) / 1000
        queued = headers.get("x-queue-status")
        if queued in ("direct", "queued"):
            sample.queued = queued == "queued"
        sample.node = plain(headers.get("x-forebay-node", ""))
        self.retry_after_s = _retry_after_s(headers)

    def body(self, data: bytes, now_s: float) -> None:
        if self.sample.code:
            return
        if not self._is_stream:
            self._buffer += data
            if len(self._buffer) > BODY_BYTES_MAX:
                self._fail("answer_too_large")
            return
        try:
            for line in self._lines.feed(data):
                self._line(line, now_s)
        except BadStream:
            self._fail("answer_too_large")

    def end(self, now_s: float) -> None:
        sample = self.sample
        sample.total_s = now_s - self._origin_s
        if not self._is_stream:
            self._whole()
        elif not sample.code:
            self._end_stream()
        self._settle()

    def broken(self, code: str, now_s: float) -> None:
        """Take it that nothing more will come."""
        self.sample.total_s = now_s - self._origin_s
        self.sample.code = self.sample.code or code
        self._settle()

    @property
    def is_hopeless(self) -> bool:
        """Say whether what is still to come is of no use: it may be without end."""
        return self.sample.code in ("answer_too_large", "bad_answer")

    # -- inside

    def _fail(self, code: str, message: object = None) -> None:
        self.sample.code = code
        self.message = plain(str(message), MESSAGE_LENGTH_MAX) if message else ""
        self._buffer.clear()

    def _end_stream(self) -> None:
        if not self._is_done:
            self._fail("stream_cut")
        elif not (self._pieces or self._usage_out or self._is_finished):
            self._fail("bad_answer", "a stream without a word")

    def _whole(self) -> None:
        sample = self.sample
        if sample.code:
            return
        try:
            answer = _decode_piece(bytes(self._buffer))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            answer = _Piece()
        if sample.status >= 300 or answer.error:
            self._refused(answer.error, f"http_{sample.status}")
            return
        if answer.usage is not None:
            self._note_usage(answer.usage.prompt_tokens, answer.usage.completion_tokens)
        choices = answer.choices or []
        if all(choice == _Choice() for choice in choices):
            self._fail("bad_answer", "an answer without a choice")
        elif any(_is_failure(choice.finish_reason) for choice in choices):
            self._fail(FINISH_ERROR)

    def _refused(self, error: object, code: str) -> None:
        self._note_wait(error)
        message = error.get("message") if isinstance(error, dict) else error
        self._fail(error_code(error, code), message)

    def _line(self, line: bytes, now_s: float) -> None:
        if self.sample.code:
            return
        if line.startswith(b"data:"):
            data = line[5:].strip()
            if data == b"[DONE]":
                self._is_done = True
            elif data:
                self._piece(data, now_s)
        elif line.startswith(b":"):
            self._comment(line[1:].strip())

    def _comment(self, text: bytes) -> None:
        found = _STARTED.fullmatch(text)
        if found is not None:
            if found[1]:
                self.sample.node = plain(found[1].decode("utf-8", "replace"))
            if found[2] and len(found[2]) < 12:
                self.sample.wait_s = int(found[2]) / 1000

    def _piece(self, data: bytes, now_s: float) -> None:
        try:
            piece = _decode_piece(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._fail("bad_answer")
            return
        if piece.error:
            self._refused(piece.error, "stream_error")
            return
        if piece.usage is not None:
            self._note_usage(piece.usage.prompt_tokens, piece.usage.completion_tokens)
        for choice in piece.choices or ():
            if _is_failure(choice.finish_reason):
                self._fail(FINISH_ERROR)
                return
            if choice.finish_reason:
                self._is_done = self._is_finished = True
            if _has_tokens(choice):
                self._token(now_s - self._origin_s)

    def _token(self, at_s: float) -> None:
        if self._pieces == 0:
            self.sample.ttft_s = self._first_s = at_s
        else:
            gap_s = at_s - self._last_s
            self.sample.gap_max_s = max(gap_s, self.sample.gap_max_s or 0.0)
        self._pieces += 1
        self._last_s = at_s

    def _note_usage(self, tokens_in: object, tokens_out: object) -> None:
        if _is_count(tokens_in):
            self.sample.tokens_in = tokens_in
        if _is_count(tokens_out):
            self._usage_out = tokens_out

    def _note_wait(self, error: object) -> None:
        waited_s = error.get("waited_seconds") if isinstance(error, dict) else None
        if isinstance(waited_s, int | float) and 0 <= waited_s <= COUNT_MAX:
            self.sample.wait_s = float(waited_s)

    def _settle(self) -> None:
        """Count the tokens: as the server says, else one for each piece."""
        self._buffer.clear()
        sample = self.sample
        sample.tokens_out = self._pieces if self._usage_out is None else self._usage_out
        gaps = max(sample.tokens_out, self._pieces) - 1
        if self._pieces > 1 and gaps > 0:
            sample.gap_s = (self._last_s - self._first_s) / gaps


def _is_count(value: object) -> TypeGuard[int]:
    """Say whether it can be believed as a number of tokens."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= COUNT_MAX


def _is_failure(finish_reason: object) -> bool:
    """Say whether a model ended because something failed: so gateways tell it that have no code."""
    return finish_reason == "error"


def _has_tokens(choice: _Choice) -> bool:
    delta = choice.delta
    if delta is None:
        return bool(choice.text)
    said = (delta.content, delta.reasoning_content, delta.reasoning, delta.tool_calls)
    return any(said) or bool(delta.refusal)


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 10:
            return int(text) * unit_s
    return None
