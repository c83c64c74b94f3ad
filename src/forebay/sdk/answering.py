"""Putting an answer of OpenAI's chat route together: from a stream's chunks, or from one body."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from forebay.sdk.errors import BadAnswer, error_of
from forebay.sdk.values import Answer, Delta, Queued, Started, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

ANSWER_BYTES_MAX = 64 * 1024 * 1024
QUEUED = re.compile(r"queued position=(\d+)(?: eta=(\d+(?:\.\d+)?))?")
STARTED = re.compile(r"started node=(\S+) waited_ms=(\d+)")


class Answering:
    """One answer as it comes."""

    def __init__(self) -> None:
        self.is_complete = False
        """The model has said that it is done."""
        self._texts: list[str] = []
        self._reasoning: list[str] = []
        self._bytes = 0
        self._tool_calls: dict[int, dict[str, Any]] = {}
        self._known: dict[str, Any] = {}

    def note_headers(self, headers: Mapping[str, str]) -> Started | None:
        """Take what the head of the answer says; a Started where a node is named."""
        known = {
            "node": headers.get("x-forebay-node"),
            "waited_ms": _whole(headers.get("x-queue-wait-ms")),
            "position": _whole(headers.get("x-queue-position")),
            "request_id": headers.get("x-request-id"),
        }
        self._known |= {name: value for name, value in known.items() if value is not None}
        return self._started() if known["node"] is not None else None

    def note_comment(self, text: str) -> Queued | Started | None:
        """Take a comment of the gateway: news from the line, or nothing."""
        queued = QUEUED.match(text)
        if queued is not None:
            place = int(queued[1])
            self._known.setdefault("position", place)
            return Queued(place, None if queued[2] is None else float(queued[2]))
        started = STARTED.match(text)
        if started is None:
            return None
        self._known |= {"node": started[1], "waited_ms": int(started[2])}
        return self._started()

    def note_place(self, place: int) -> None:
        """Take the first place that was seen, where the gateway has not said one."""
        self._known.setdefault("position", place)

    def take_chunk(self, data: str) -> Delta | None:
        """Take one `data:` of the stream; raises GatewayError for one that says it failed."""
        if data.strip() == "[DONE]":
            self.is_complete = True
            return None
        chunk = self._read(data)
        choice = self._choice(chunk)
        return self._add(choice.get("delta") or {})

    def take_whole(self, content: bytes) -> Delta | None:
        """Take an answer that came in one piece, as of a node that does not stream."""
        choice = self._choice(self._read(content))
        self.is_complete = True
        return self._add(choice.get("message") or {})

    def answer(self) -> Answer:
        """Return all that came."""
        return Answer(
            text="".join(self._texts),
            reasoning="".join(self._reasoning),
            tool_calls=tuple(self._tool_calls[index] for index in sorted(self._tool_calls)),
            **self._known,
        )

    # -- inside

    def _started(self) -> Started:
        return Started(self._known.get("node"), self._known.get("waited_ms"))

    def _read(self, content: bytes | str) -> dict[str, Any]:
        self._bytes += len(content)
        if self._bytes > ANSWER_BYTES_MAX:
            raise BadAnswer(f"an answer of more than {ANSWER_BYTES_MAX:,} bytes")
        try:
            chunk = msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadAnswer(f"a piece of the answer is not JSON: {error}") from error
        if not isinstance(chunk, dict):
            raise BadAnswer("a piece of the answer is no JSON object")
        if chunk.get("error"):
            raise error_of(200, chunk)
        return chunk

    def _choice(self, chunk: dict[str, Any]) -> dict[str, Any]:
        """Return the first choice, and keep what stands beside it."""
        usage, model = chunk.get("usage"), chunk.get("model")
        if isinstance(usage, dict):
            counts = (usage.get("prompt_tokens"), usage.get("completion_tokens"))
            self._known["usage"] = Usage(*(n if isinstance(n, int) else 0 for n in counts))
        if isinstance(model, str):
            self._known["model"] = model
        choices = chunk.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else {}
        choice: dict[str, Any] = first if isinstance(first, dict) else {}
        if isinstance(choice.get("finish_reason"), str):
            self._known["finish_reason"] = choice["finish_reason"]
            self.is_complete = True
        return choice

    def _add(self, said: dict[str, Any]) -> Delta | None:
        text = said.get("content")
        thought = said.get("reasoning_content") or said.get("reasoning")
        for call in said.get("tool_calls") or ():
            self._add_tool_call(call)
        delta = Delta(
            text if isinstance(text, str) else "", thought if isinstance(thought, str) else ""
        )
        if not delta.text and not delta.reasoning:
            return None
        self._texts.append(delta.text)
        self._reasoning.append(delta.reasoning)
        return delta

    def _add_tool_call(self, piece: dict[str, Any]) -> None:
        """Join a piece of a tool call to what came of it: its arguments come letter by letter."""
        index = piece.get("index", len(self._tool_calls))
        kept = self._tool_calls.setdefault(index, {"id": None, "type": "function", "function": {}})
        kept["id"] = piece.get("id") or kept["id"]
        function = piece.get("function") or {}
        for name in ("name", "arguments"):
            if isinstance(function.get(name), str):
                kept["function"][name] = kept["function"].get(name, "") + function[name]


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
