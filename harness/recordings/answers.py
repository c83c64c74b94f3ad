"""What a node answers to the recorded calls: about 600 bytes with their usage, or a stream."""

import json
from base64 import b64encode
from dataclasses import dataclass

from harness.recordings import MODEL

PROSE = (
    "A forebay is the pool of still water above a mill or a power station. It takes what the "
    "river brings, in gusts, and gives the wheel what the wheel can use, evenly. "
)
TEXTS = 64
"""To embed in the recorded call."""
STAMP = "@" + 19 * "0"
"""The text of every token: a node may write the time there, in nanoseconds."""
DIMENSIONS = 384  # of a small embedding model
_CREATED = 1700000000
_DATE = "2023-11-14T22:13:20.000000Z"


@dataclass(frozen=True)
class Answer:
    """What one route answers: whole, or in pieces."""

    whole: str
    stream_type: str = ""
    """The content type of a stream; empty where the route has none."""
    first: str = ""
    token: str = ""
    """One piece of a stream, with `STAMP` in it."""
    last: str = ""


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _events(*values: dict[str, object], names: bool = False) -> str:
    lines = [f"event: {value['type']}\n" if names else "" for value in values]
    return "".join(
        f"{line}data: {_compact(value)}\n\n" for line, value in zip(lines, values, strict=True)
    )


def _openai() -> Answer:
    usage = {"prompt_tokens": 120, "completion_tokens": 90, "total_tokens": 210}
    shared = {"id": "chatcmpl-8d1f0c6e5b7a4f2c", "created": _CREATED, "model": MODEL}
    message = {"role": "assistant", "content": PROSE * 2}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}

    def chunk(delta: dict[str, object], finish_reason: str | None = None) -> dict[str, object]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {**shared, "object": "chat.completion.chunk", "choices": [choice]}

    end = {**shared, "object": "chat.completion.chunk", "choices": [], "usage": usage}
    return Answer(
        _compact({**shared, "object": "chat.completion", "choices": [choice], "usage": usage}),
        "text/event-stream",
        _events(chunk({"role": "assistant", "content": ""})),
        _events(chunk({"content": STAMP})),
        _events(chunk({}, "stop"), end) + "data: [DONE]\n\n",
    )


def _anthropic() -> Answer:
    usage = {"input_tokens": 120, "output_tokens": 90}
    message: dict[str, object] = {
        "id": "msg_8d1f0c6e5b7a4f2c",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }
    begun = {**message, "content": [], "stop_reason": None}
    delta = {"type": "text_delta", "text": STAMP}
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    return Answer(
        _compact({**message, "content": [{"type": "text", "text": PROSE * 2}]}),
        "text/event-stream",
        _events(
            {"type": "message_start", "message": begun},
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "text", "text": ""},
            },
            names=True,
        ),
        _events({"type": "content_block_delta", "index": 0, "delta": delta}, names=True),
        _events(
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": ended, "usage": usage},
            {"type": "message_stop"},
            names=True,
        ),
    )


def _ollama() -> Answer:
    def line(text: str, *, done: bool = False) -> dict[str, object]:
        message = {"role": "assistant", "content": text}
        return {"model": MODEL, "created_at": _DATE, "message": message, "done": done}

    counts = {
        "done_reason": "stop",
        "total_duration": 4_000_000_000,
        "load_duration": 20_000_000,
        "prompt_eval_count": 120,
        "prompt_eval_duration": 300_000_000,
        "eval_count": 90,
        "eval_duration": 3_600_000_000,
    }
    return Answer(
        _compact({**line(PROSE * 2, done=True), **counts}),
        "application/x-ndjson",
        _compact(line("")) + "\n",
        _compact(line(STAMP)) + "\n",
        _compact({**line("", done=True), **counts}) + "\n",
    )


def _embeddings() -> Answer:
    numbers = b64encode(bytes(4 * DIMENSIONS)).decode()
    data = [{"object": "embedding", "index": i, "embedding": numbers} for i in range(TEXTS)]
    usage = {"prompt_tokens": 5000, "total_tokens": 5000}
    return Answer(_compact({"object": "list", "data": data, "model": MODEL, "usage": usage}))


ANSWERS = {
    "/v1/chat/completions": _openai(),
    "/v1/messages": _anthropic(),
    "/api/chat": _ollama(),
    "/v1/embeddings": _embeddings(),
}
"""Route → what it answers."""
