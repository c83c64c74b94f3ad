"""The requests of the soak: every family that the nodes speak, and what is wrong on purpose."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bench.soak.stage import LARGE, OLLAMA, SMALL

if TYPE_CHECKING:
    import random

TALKING = ("chat", "completion", "responses", "messages", "ollama_chat", "ollama_generate")
OTHERS = ("embeddings", "ollama_embed")
USERS = 2000
"""Enough that most have been forgotten again when they return."""
PRIORITIES = (None, None, "high", "low", "normal", "nonsense")
WORDS = ["the", "queue", "in", "front", "of", "your", "models", "holds", "what", "cannot", "run"]
TOKENS = (3, 24)
MIB = 1 << 20


def text(draw: random.Random) -> str:
    """Return a prompt: mostly short, now and then some kilobytes."""
    count = draw.choice([5, 20, 60, 400, 4000 if draw.random() < 0.05 else 10])
    return " ".join(draw.choices(WORDS, k=count))


def body(draw: random.Random, family: str, is_stream: bool) -> tuple[str, dict[str, Any]]:
    """Return the path and the body of one request."""
    model = draw.choice([SMALL, SMALL, LARGE])
    tokens, said = draw.randint(*TOKENS), text(draw)
    messages = [{"role": "user", "content": said}]
    ollama = {"model": OLLAMA, "stream": is_stream, "max_tokens": tokens}
    match family:
        case "chat":
            path, own = "/v1/chat/completions", {"messages": messages, "max_tokens": tokens}
        case "completion":
            path, own = "/v1/completions", {"prompt": said, "max_tokens": tokens}
        case "responses":
            path, own = "/v1/responses", {"input": said, "max_output_tokens": tokens}
        case "messages":
            path, own = "/v1/messages", {"messages": messages, "max_tokens": tokens}
        case "ollama_chat":
            path, own = "/api/chat", {**ollama, "messages": messages}
        case "ollama_generate":
            path, own = "/api/generate", {**ollama, "prompt": said}
        case "ollama_embed":
            path, own = "/api/embed", {"model": OLLAMA, "input": said}
        case _:
            return "/v1/embeddings", {"model": model, "input": said}
    return path, {"model": model, "stream": is_stream, **own}


def headers(draw: random.Random, request_id: str, key: str) -> dict[str, str]:
    """Return who asks, how urgently, and under which id."""
    found = {"authorization": f"Bearer {key}", "x-request-id": request_id}
    found["x-forebay-user"] = f"user{draw.randrange(USERS)}"
    if priority := draw.choice(PRIORITIES):
        found["x-forebay-priority"] = priority
    if draw.random() < 0.05:
        found["x-forebay-max-wait"] = draw.choice(["0", "1", "5", "junk"])
    return found


def large(draw: random.Random) -> tuple[str, dict[str, Any]]:
    """Return a request of 1 to 8 MiB; the bulk is where no node reads it."""
    path, small = body(draw, draw.choice(["chat", "messages"]), is_stream=draw.random() < 0.5)
    return path, {**small, "metadata": {"blob": "x" * draw.randint(MIB, 8 * MIB)}}


def wrong(draw: random.Random) -> tuple[str, str, bytes, str | None]:
    """Return a request that must be refused: method, path, body, and another key if any."""
    chat = "/v1/chat/completions"
    good = json.dumps(body(draw, "chat", is_stream=False)[1]).encode()
    found: list[tuple[str, str, bytes, str | None]] = [
        ("POST", chat, b"{not json", None),
        ("POST", chat, b"[" * 20_000, None),
        ("POST", chat, b'{"model": 7}', None),
        ("POST", chat, b'{"model": "a", "model": "b"}', None),
        ("POST", chat, good.replace(b"sim-", b"no-such-"), None),
        ("POST", chat, good.replace(b'"messages"', b'"massages"'), None),
        ("POST", chat, good, "wrong-key"),
        ("POST", "/v1/no-such-route", good, None),
        ("DELETE", chat, b"", None),
        ("GET", "/v1/queue/no-such-ticket", b"", None),
        ("GET", "/session/ses_none", b"", None),
        ("POST", "/jobs", b'{"type": "no-such-type"}', None),
        ("POST", chat, b"\xff\xfe" + good, None),
    ]
    return draw.choice(found)


MALFORMED = (
    b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"nonsense\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: 1\r\n folded\r\n\r\n",
)
