"""The answers of the simulated node in each dialect: whole, and as events of a stream.

A dialect turns a `SimAnswer` into one JSON object, or into the pieces of a stream: what comes
before the first word, around each word, and after the last. Each is written from its reference
and checked in the tests by the real `openai` and `anthropic` clients.
"""

from collections.abc import Iterator
from typing import Protocol

import msgspec
from msgspec import Struct


class SimAnswer(Struct, frozen=True):
    """Everything about one answer, known before its first word is due."""

    id: str
    model: str
    words: list[str]
    prompt_tokens: int
    is_cut: bool
    """It ends because the caller's limit was reached."""
    wants_usage: bool
    """OpenAI's `stream_options.include_usage`."""

    @property
    def text(self) -> str:
        return "".join(self.words)


class Dialect(Protocol):
    """How one route writes its answers."""

    def whole(self, answer: SimAnswer) -> object: ...

    def opening(self, answer: SimAnswer) -> Iterator[bytes]:
        """Yield what goes out with the first word."""
        ...

    def word(self, answer: SimAnswer, word: str) -> bytes: ...

    def closing(self, answer: SimAnswer) -> Iterator[bytes]:
        """Yield what follows the last word."""
        ...


def event(value: object, name: str = "") -> bytes:
    """Write one server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + msgspec.json.encode(value) + b"\n\n"


def _openai_usage(answer: SimAnswer) -> dict[str, int]:
    output = len(answer.words)
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": output,
        "total_tokens": answer.prompt_tokens + output,
    }


class Chat:
    """`POST /v1/chat/completions`."""

    def whole(self, answer: SimAnswer) -> object:
        """Return a `chat.completion`."""
        message = {"role": "assistant", "content": answer.text}
        choice = {"index": 0, "message": message, "finish_reason": self._reason(answer)}
        return self._head(answer, "chat.completion") | {
            "choices": [choice],
            "usage": _openai_usage(answer),
        }

    def opening(self, answer: SimAnswer) -> Iterator[bytes]:
        """Yield the chunk that names the role."""
        yield self._chunk(answer, {"role": "assistant", "content": ""}, None)

    def word(self, answer: SimAnswer, word: str) -> bytes:
        return self._chunk(answer, {"content": word}, None)

    def closing(self, answer: SimAnswer) -> Iterator[bytes]:
        """Yield the reason, the usage if wanted, and the mark of the end."""
        yield self._chunk(answer, {}, self._reason(answer))
        if answer.wants_usage:
            head = self._head(answer, "chat.completion.chunk")
            yield event(head | {"choices": [], "usage": _openai_usage(answer)})
        yield b"data: [DONE]\n\n"

    def _chunk(self, answer: SimAnswer, delta: dict[str, str], reason: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return event(self._head(answer, "chat.completion.chunk") | {"choices": [choice]})

    def _head(self, answer: SimAnswer, kind: str) -> dict[str, object]:
        # `created` is 0: the engine reads no wall clock, and no client depends on it.
        return {
            "id": f"chatcmpl-{answer.id}",
            "object": kind,
            "created": 0,
            "model": answer.model,
            "system_fingerprint": "forebay-sim",
        }

    def _reason(self, answer: SimAnswer) -> str:
        return "length" if answer.is_cut else "stop"


class Completion:
    """`POST /v1/completions`."""

    def whole(self, answer: SimAnswer) -> object:
        """Return a `text_completion`."""
        reason = "length" if answer.is_cut else "stop"
        return self._body(answer, answer.text, reason) | {"usage": _openai_usage(answer)}

    def opening(self, answer: SimAnswer) -> Iterator[bytes]:
        """Yield nothing: the first word is the first event."""
        yield from ()

    def word(self, answer: SimAnswer, word: str) -> bytes:
        return event(self._body(answer, word, None))

    def closing(self, answer: SimAnswer) -> Iterator[bytes]:
        """Yield the reason, the usage if wanted, and the mark of the end."""
        yield event(self._body(answer, "", "length" if answer.is_cut else "stop"))
        if answer.wants_usage:
            last = self._body(answer, "", None) | {"choices": [], "usage": _openai_usage(answer)}
            yield event(last)
        yield b"data: [DONE]\n\n"

    def _body(self, answer: SimAnswer, text: str, reason: str | None) -> dict[str, object]:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
        return {
            "id": f"cmpl-{answer.id}",
            "object": "text_completion",
            "created": 0,
            "model": answer.model,
            "choices": [choice],
        }


class Messages:
    """`POST /v1/messages`, Anthropic's dialect."""

    def whole(self, answer: SimAnswer) -> object:
        """Return a `message`."""
        content = [{"type": "text", "text": answer.text}]
        usage = {"input_tokens": answer.prompt_tokens, "output_tokens": len(answer.words)}
        return self._message(answer) | {
            "content": content,
            "stop_reason": self._reason(answer),
            "usage": usage,
        }

    def opening(self, answer: SimAnswer) -> Iterator[bytes]:
        """Yield the empty message and the start of its one block."""
        yield event({"type": "message_start", "message": self._message(answer)}, "message_start")
        block = {"type": "text", "text": ""}
        start = {"type": "content_block_start", "index": 0, "content_block": block}
        yield event(start, "content_block_start")
        yield event({"type": "ping"}, "ping")

    def word(self, answer: SimAnswer, word: str) -> bytes:
        delta = {"type": "text_delta", "text": word}
        body = {"type": "content_block_delta", "index": 0, "delta": delta}
        return event(body, "content_block_delta")

    def closing(self, answer: SimAnswer) -> Iterator[bytes]:
        """Yield the end of the block, the reason with the usage, and the end."""
        yield event({"type": "content_block_stop", "index": 0}, "content_block_stop")
        delta = {"stop_reason": self._reason(answer), "stop_sequence": None}
        usage = {"output_tokens": len(answer.words)}
        yield event({"type": "message_delta", "delta": delta, "usage": usage}, "message_delta")
        yield event({"type": "message_stop"}, "message_stop")

    def _message(self, answer: SimAnswer) -> dict[str, object]:
        return {
            "id": f"msg_{answer.id}",
            "type": "message",
            "role": "assistant",
            "model": answer.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": answer.prompt_tokens, "output_tokens": 0},
        }

    def _reason(self, answer: SimAnswer) -> str:
        return "max_tokens" if answer.is_cut else "end_turn"
