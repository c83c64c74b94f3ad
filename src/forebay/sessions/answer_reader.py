"""Reads the text out of a node's answer as it comes: OpenAI's chat stream, or one JSON body.

Only what a session needs is looked at; chunks that make no sense are passed over, because nodes
send all sorts of extras, and the relay has already judged whether the whole is an answer. Bounded:
a line by LINE_BYTES_MAX, the text by ANSWER_CHARS_MAX.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from forebay.sessions.prompt import Usage

LINE_BYTES_MAX = 1_048_576
ANSWER_CHARS_MAX = 1_000_000
"""Some 250,000 tokens: more than any model writes in one turn."""
REFUSAL_CHARS_MAX = 500
"""How much of a node's own words about a refusal is passed on."""


class _Delta(Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _Counts(Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Chunk(Struct):
    choices: list[_Choice] = []
    usage: _Counts | None = None
    model: str | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode


class TooLong(Exception):
    """The answer does not end where it should."""


class AnswerReader:
    """Takes bytes; collects text."""

    def __init__(self) -> None:
        self.is_stream = True
        """Whether the answer comes in events, not as one JSON body; set by who sees the head."""
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        self.error: str | None = None
        """The node's own words, where it ended its stream with an error."""
        self._pieces: list[str] = []
        self._chars = 0
        self._line = b""
        self._new: list[str] = []
        self._thoughts: list[str] = []

    @property
    def text(self) -> str:
        """All of the answer so far."""
        return "".join(self._pieces)

    def feed(self, data: bytes) -> tuple[str, str]:
        """Take a piece; return the text and the thoughts that it brought. Raises TooLong."""
        lines = (self._line + data).split(b"\n")
        self._line = lines.pop()
        if len(self._line) > LINE_BYTES_MAX:
            raise TooLong
        if not self.is_stream:
            self._line = b"\n".join([*lines, self._line])
            return "", ""
        for line in lines:
            if line.startswith(b"data:"):
                self._take(line[5:].strip())
        return self._brought()

    def end(self) -> str:
        """Take the end; return text that came without a line end, or with a whole JSON body."""
        line, self._line = self._line, b""
        if not self.is_stream:
            self._take(line)
        elif line.startswith(b"data:"):
            self._take(line[5:].strip())
        return self._brought()[0]

    def _brought(self) -> tuple[str, str]:
        text, thoughts = "".join(self._new), "".join(self._thoughts)
        self._new, self._thoughts = [], []
        if self._chars > ANSWER_CHARS_MAX:
            raise TooLong
        return text, thoughts

    def _take(self, data: bytes) -> None:
        try:
            chunk = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return  # `[DONE]`, or something of the node's own
        if chunk.error is not None:
            self.error = _said(chunk.error) or "it ended its answer with an error"
        if chunk.usage is not None and chunk.usage.completion_tokens >= 0:
            self.usage = Usage(chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
        for choice in chunk.choices[:1]:
            said = choice.delta or choice.message
            if said is not None:
                self._hear(said)
            self.finish_reason = choice.finish_reason or self.finish_reason

    def _hear(self, said: _Delta) -> None:
        if said.content:
            self._new.append(said.content)
            self._pieces.append(said.content)
            self._chars += len(said.content)
        thought = said.reasoning_content or said.reasoning
        if thought:
            self._thoughts.append(thought)
            self._chars += len(thought)


def words_of(body: bytes) -> str:
    """Return what a node says in an error body, cut short; empty where it says nothing readable.

    >>> words_of(b'{"error": {"message": "too long"}}'), words_of(b'"no"'), words_of(b"<html>")
    ('too long', 'no', '')
    """
    try:
        return _said(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def _said(value: Any) -> str:
    for name in ("error", "message", "detail"):
        if isinstance(value, dict) and name in value:
            value = value[name]
    if isinstance(value, dict):
        value = value.get("message", "")
    text = value if isinstance(value, str) else ""
    return "".join(letter if letter.isprintable() else " " for letter in text)[:REFUSAL_CHARS_MAX]
