"""What is sent and answered where no recording is: a chat call, about 650 bytes."""

import hashlib
import json
from pathlib import Path

from harness.recordings import KEY, MODEL
from harness.recordings.answers import ANSWERS, PROSE

KEY_SHA256 = hashlib.sha256(KEY.encode()).hexdigest()
ANSWER = ANSWERS["/v1/chat/completions"].whole
MODELS = json.dumps(
    {
        "object": "list",
        "data": [{"id": MODEL, "object": "model", "created": 1700000000, "owned_by": "bench"}],
    },
    separators=(",", ":"),
)
_TAGS = json.dumps({"models": [{"name": MODEL, "model": MODEL}]})
_PROBES = {
    "/v1/models": MODELS,
    "/health": "{}",
    "/api/tags": _TAGS,
    "/api/ps": _TAGS,
    "/api/version": '{"version":"0.14.0"}',
}
"""What a gateway asks a node that is llama.cpp or Ollama to it."""


def write_answers(folder: Path) -> None:
    """Write what `stream_node.c` sends, as it goes over the wire."""
    folder.mkdir()
    lines = [f"GET {path} probe{number}" for number, path in enumerate(_PROBES)]
    for number, text in enumerate(_PROBES.values()):
        (folder / f"probe{number}.whole").write_bytes(_whole(text))
    for number, (route, answer) in enumerate(ANSWERS.items()):
        lines.append(f"POST {route} answer{number}")
        (folder / f"answer{number}.whole").write_bytes(_whole(answer.whole))
        if answer.stream_type:
            begin = f"HTTP/1.1 200 OK\r\nContent-Type: {answer.stream_type}\r\n"
            head = f"{begin}Transfer-Encoding: chunked\r\n\r\n".encode()
            (folder / f"answer{number}.first").write_bytes(head + _chunk(answer.first))
            (folder / f"answer{number}.token").write_bytes(_chunk(answer.token))
            (folder / f"answer{number}.last").write_bytes(_chunk(answer.last) + b"0\r\n\r\n")
    (folder / "index").write_text("\n".join(lines) + "\n")


def _whole(text: str) -> bytes:
    length = f"Content-Length: {len(text)}\r\n\r\n"
    return f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{length}{text}".encode()


def _chunk(text: str) -> bytes:
    return f"{len(text):x}\r\n{text}\r\n".encode()


def chat_body(*, stream: bool = False, slow: bool = False, padding_bytes: int = 0) -> bytes:
    """Return the JSON of a chat call; `slow` asks the node for one event a second."""
    call: dict[str, object] = {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": PROSE + "Answer in one short paragraph."},
            {"role": "user", "content": PROSE * 2 + "What is a forebay?" + "x" * padding_bytes},
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
