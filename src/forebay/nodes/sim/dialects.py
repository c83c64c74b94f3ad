"""The answers of the simulated node in each dialect: whole, and as events of a stream.

A dialect turns a `SimAnswer` into one JSON object, or into the pieces of a stream: what comes
before the first word, around each word, and after the last. Each is written from its reference
and checked in the tests by the real `openai` and `anthropic` clients.
"""

from collections.abc import Iterator
from typing import TypeAlias

import msgspec
from msgspec import Struct


class SimAnswer(Struct, frozen=True):
    """Everything about one answer, known before its first token is due."""

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


def event(value: object, name: str = "") -> bytes:
    """Write one server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + msgspec.json.encode(value) + b"\n\n"


class _OpenAi:
    """What the two older routes of OpenAI's have in common."""

    def closing(self, answer: SimAnswer) -> Iterator[bytes]:
        """Yield the reason, the usage if wanted, and the mark of the end."""
        yield event(self._chunk(answer, "", self._reason(answer)))
        if answer.wants_usage:
            last = {"choices": [], "usage": self._usage(answer)}
            yield event(self._chunk(answer, "", None) | last)
        yield b"data: [DONE]\n\n"

    def word(self, answer: SimAnswer, word: str) -> bytes:
        return event(self._chunk(answer, word, None))

    def _chunk(self, answer: SimAnswer, text: str, reason: str | None) -> dict[str, object]:
        raise NotImplementedError

    def _body(self, answer: SimAnswer, name: str, kind: str) -> dict[str, object]:
        # `created` is 0: the engine reads no wall clock, and no client depends on it.
        return {"id": f"{name}-{answer.id}", "object": kind, "created": 0, "model": answer.model}

    def _usage(self, answer: SimAnswer) -> dict[str, int]:
        prompt, output = answer.prompt_tokens, len(answer.words)
        total = prompt + output
        return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": total}

    def _reason(self, answer: SimAnswer) -> str:
        return "length" if answer.is_cut else "stop"


class Chat(_OpenAi):
    """`POST /v1/chat/completions`."""

    def whole(self, answer: SimAnswer) -> object:
        """Return a `chat.completion`."""
        message = {"role": "assistant", "content": answer.text}
        choice = {"index": 0, "message": message, "finish_reason": self._reason(answer)}
        whole = {"choices": [choice], "usage": self._usage(answer)}
        return self._head(answer, "chat.completion") | whole

    def opening(self, answer: SimAnswer) -> Iterator[bytes]:
        """Yield the chunk that names the role."""
        yield event(self._of_delta(answer, {"role": "assistant", "content": ""}, None))

    def _chunk(self, answer: SimAnswer, text: str, reason: str | None) -> dict[str, object]:
        return self._of_delta(answer, {} if not text else {"content": text}, reason)

    def _of_delta(
        self, answer: SimAnswer, delta: dict[str, str], reason: str | None
    ) -> dict[str, object]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return self._head(answer, "chat.completion.chunk") | {"choices": [choice]}

    def _head(self, answer: SimAnswer, kind: str) -> dict[str, object]:
        return self._body(answer, "chatcmpl", kind) | {"system_fingerprint": "forebay-sim"}


class Completion(_OpenAi):
    """`POST /v1/completions`."""

    def whole(self, answer: SimAnswer) -> object:
        """Return a `text_completion`."""
        whole = self._chunk(answer, answer.text, self._reason(answer))
        return whole | {"usage": self._usage(answer)}

    def opening(self, answer: SimAnswer) -> Iterator[bytes]:
        """Yield nothing: the first word is the first event."""
        yield from ()

    def _chunk(self, answer: SimAnswer, text: str, reason: str | None) -> dict[str, object]:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
        return self._body(answer, "cmpl", "text_completion") | {"choices": [choice]}


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


class Responses:
    """Writes a response with one message of one text part. One object serves one request."""

    def __init__(self) -> None:
        self._sequence = 0

    def whole(self, answer: SimAnswer) -> object:
        """Return a finished `response`."""
        return self._response(answer, is_done=True)

    def opening(self, answer: SimAnswer) -> Iterator[bytes]:
        """Yield the start of the response, of its message and of the text."""
        begun = self._response(answer, is_done=False)
        yield self._event("response.created", response=begun)
        yield self._event("response.in_progress", response=begun)
        item = self._item(answer, is_done=False)
        yield self._event("response.output_item.added", output_index=0, item=item)
        yield self._part_event("response.content_part.added", answer, part=_part(""))

    def word(self, answer: SimAnswer, word: str) -> bytes:
        return self._part_event("response.output_text.delta", answer, delta=word, logprobs=[])

    def closing(self, answer: SimAnswer) -> Iterator[bytes]:
        """Yield the end of everything that was begun, the response last."""
        text = answer.text
        yield self._part_event("response.output_text.done", answer, text=text, logprobs=[])
        yield self._part_event("response.content_part.done", answer, part=_part(text))
        item = self._item(answer, is_done=True)
        yield self._event("response.output_item.done", output_index=0, item=item)
        ending = "response.incomplete" if answer.is_cut else "response.completed"
        yield self._event(ending, response=self._response(answer, is_done=True))

    def _part_event(self, kind: str, answer: SimAnswer, **fields: object) -> bytes:
        item_id = f"msg_{answer.id}"
        return self._event(kind, item_id=item_id, output_index=0, content_index=0, **fields)

    def _event(self, kind: str, **fields: object) -> bytes:
        body = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return event(body, kind)

    def _item(self, answer: SimAnswer, is_done: bool) -> dict[str, object]:
        return {
            "id": f"msg_{answer.id}",
            "type": "message",
            "role": "assistant",
            "status": self._status(answer) if is_done else "in_progress",
            "content": [_part(answer.text)] if is_done else [],
        }

    def _response(self, answer: SimAnswer, is_done: bool) -> dict[str, object]:
        output = len(answer.words)
        usage = {
            "input_tokens": answer.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.prompt_tokens + output,
        }
        cut = {"reason": "max_output_tokens"} if is_done and answer.is_cut else None
        return {
            "id": f"resp_{answer.id}",
            "object": "response",
            "created_at": 0,
            "status": self._status(answer) if is_done else "in_progress",
            "error": None,
            "incomplete_details": cut,
            "model": answer.model,
            "output": [self._item(answer, is_done=True)] if is_done else [],
            "parallel_tool_calls": False,
            "tool_choice": "auto",
            "tools": [],
            "usage": usage if is_done else None,
        }

    def _status(self, answer: SimAnswer) -> str:
        return "incomplete" if answer.is_cut else "completed"


def _part(text: str) -> dict[str, object]:
    return {"type": "output_text", "text": text, "annotations": []}


Dialect: TypeAlias = Chat | Completion | Messages | Responses
"""How one route writes its answers: `whole`, or `opening` with the first `word`, and `closing`."""
