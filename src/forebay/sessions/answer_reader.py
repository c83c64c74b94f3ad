"""Read the text out of a node's answer as it arrives: OpenAI's chat stream, or one JSON body.

Only what a session needs is read, and nothing is trusted: nodes send extra fields and wrong types,
and an invalid side field must not cost the text beside it. An answer of which nothing could be read
is an error (`understood`). Bounded: a line of a stream and a
whole JSON body by LINE_BYTES_MAX, the text by ANSWER_CHARS_MAX; linear in what comes.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from forebay.sessions.prompt import TokenUsage
from forebay.sse import BadStream, SseLines

LINE_BYTES_MAX = 4_194_304
ANSWER_CHARS_MAX = 1_000_000
"""Some 250,000 tokens: more than any model writes in one turn."""
REFUSAL_CHARS_MAX = 2048
"""How much of a node's own words about a refusal is passed on."""
TOKENS_MAX = 1_000_000_000

_decode = msgspec.json.Decoder().decode


class TooLong(Exception):
    """The answer, or one line of it, is longer than a session can hold."""


class AnswerReader:
    """Incremental parser of one answer."""

    def __init__(self) -> None:
        self.is_stream = True
        """Whether the answer comes in events, not as one JSON body; set by who sees the head."""
        self.understood = False
        """Whether anything of it was an answer."""
        self.finish_reason: str | None = None
        self.usage: TokenUsage | None = None
        self.error: str | None = None
        """The node's own words, where it ended its stream with an error."""
        self._pieces: list[str] = []
        self._chars = 0
        self._lines = SseLines(LINE_BYTES_MAX)
        self._body = bytearray()
        """What has come of an answer that is one JSON body."""
        self._new: list[str] = []
        self._thoughts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def feed(self, data: bytes) -> tuple[str, str]:
        """Take a piece; return the text and the thoughts that it brought. Raises TooLong."""
        if self.is_stream:
            try:
                lines = self._lines.feed(data)
            except BadStream:
                raise TooLong from None
            for line in lines:
                self._take_line(line)
        else:
            self._body += data
            if len(self._body) > LINE_BYTES_MAX:
                raise TooLong
        return self._brought()

    def end(self) -> str:
        """Take the end; return text that came without a line end, or with a whole JSON body."""
        if self.is_stream:
            self._take_line(self._lines.end())
        else:
            self._take(bytes(self._body))
        return self._brought()[0]

    def _take_line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._take(line[5:].strip())

    def _brought(self) -> tuple[str, str]:
        text, thoughts = "".join(self._new), "".join(self._thoughts)
        self._new, self._thoughts = [], []
        if self._chars > ANSWER_CHARS_MAX:
            raise TooLong
        return text, thoughts

    def _take(self, data: bytes) -> None:
        chunk = _decoded(data)
        if not isinstance(chunk, dict):
            return  # `[DONE]`, or something of the node's own
        if chunk.get("error"):
            self.error = _said(chunk["error"]) or "it ended its answer with an error"
        self.usage = _usage(chunk.get("usage")) or self.usage
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            return
        self.understood = True
        for choice in choices[:1]:
            if isinstance(choice, dict):
                self._read_choice(choice)

    def _read_choice(self, choice: dict[str, Any]) -> None:
        reason = _text(choice.get("finish_reason"))
        if 0 < len(reason) <= 64:
            self.finish_reason = reason
        said = choice.get("delta") or choice.get("message")
        if not isinstance(said, dict):
            return
        text = _text(said.get("content"))
        if text:
            self._new.append(text)
            self._pieces.append(text)
        thought = _text(said.get("reasoning_content")) or _text(said.get("reasoning"))
        if thought:
            self._thoughts.append(thought)
        self._chars += len(text) + len(thought)


def _decoded(data: bytes) -> Any:
    """Return what JSON says; None where it says nothing."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:  # more lenient: it accepts half a surrogate pair, which nodes cut from a character
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _text(content: object) -> str:
    """Return a text, or the texts of a list of parts."""
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        content = "".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str):
        return ""
    try:
        content.encode()
    except UnicodeEncodeError:
        content = content.encode("utf-8", "replace").decode()
    return content


def _usage(given: object) -> TokenUsage | None:
    """Return counts that make sense, else None."""
    if not isinstance(given, dict):
        return None
    counts = [given.get(name) for name in ("prompt_tokens", "completion_tokens")]
    known = [
        int(count)
        for count in counts
        if isinstance(count, int | float)
        and not isinstance(count, bool)
        and 0 <= count <= TOKENS_MAX
    ]
    return TokenUsage(known[0], known[1]) if len(known) == 2 else None


def words_of(body: bytes) -> str:
    """Return what a node says in an error body, cut short; empty where it says nothing readable.

    >>> words_of(b'{"error": {"message": "too long"}}'), words_of(b'"no"'), words_of(b"<html>")
    ('too long', 'no', '')
    """
    return _said(_decoded(body))


def _said(value: Any) -> str:
    for name in ("error", "message", "detail"):
        if isinstance(value, dict) and name in value:
            value = value[name]
    if isinstance(value, dict):
        value = value.get("message", "")
    text = _text(value)[: 2 * REFUSAL_CHARS_MAX]
    return "".join(letter if letter.isprintable() else " " for letter in text)[:REFUSAL_CHARS_MAX]
