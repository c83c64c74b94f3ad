"""What is sent and answered: a chat call and its answer, about 700 bytes each."""

import hashlib
import json

KEY = "sk-bench-0123456789abcdef0123456789abcdef"
KEY_SHA256 = hashlib.sha256(KEY.encode()).hexdigest()
MODEL = "bench-model"

_PROSE = (
    "A forebay is the pool of still water above a mill or a power station. It takes what the "
    "river brings, in gusts, and gives the wheel what the wheel can use, evenly. "
)

ANSWER = json.dumps(
    {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 1700000000,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": _PROSE * 2 + _PROSE[:70]},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 120, "completion_tokens": 90, "total_tokens": 210},
    },
    separators=(",", ":"),
)
MODELS = json.dumps(
    {
        "object": "list",
        "data": [{"id": MODEL, "object": "model", "created": 1700000000, "owned_by": "bench"}],
    },
    separators=(",", ":"),
)


def chat_body(*, stream: bool = False, slow: bool = False, padding_bytes: int = 0) -> bytes:
    """Return the JSON of a chat call; `slow` asks the node for one event a second."""
    call: dict[str, object] = {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": _PROSE + "Answer in one short paragraph."},
            {"role": "user", "content": _PROSE * 2 + "What is a forebay?" + "x" * padding_bytes},
        ],
        "max_tokens": 128,
    }
    if stream:
        call["stream"] = True
    if slow:
        call["seed"] = 1000
    return json.dumps(call, separators=(",", ":")).encode()


def post(body: bytes) -> bytes:
    """Return the whole HTTP request that posts `body` as a chat call."""
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: application/json\r\nAuthorization: Bearer {KEY}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def get(path: str) -> bytes:
    """Return the whole HTTP request that reads `path`."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode()
