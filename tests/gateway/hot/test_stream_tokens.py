"""The tokens of a stream that says nothing of its usage: as many as it had events."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from harness.recordings import KEY, MODEL, recording
from harness.socketless import MemoryClient, socketless_gateway

if TYPE_CHECKING:
    from pathlib import Path

HEADS = {
    "openai-stream": b"text/event-stream",
    "anthropic-stream": b"text/event-stream",
    "ollama-stream": b"application/x-ndjson",
}
EVENTS = {b"text/event-stream": b"data: %b\n\n", b"application/x-ndjson": b'{"text":"%b"}\n'}


def stream(rng: random.Random, kind: bytes) -> tuple[int, list[bytes]]:
    """Return how many events there are, and the pieces that they come in."""
    count = rng.randint(1, 400)
    text = b"".join(EVENTS[kind] % (b"x" * rng.randint(1, 120)) for _ in range(count))
    pieces = []
    while text:
        size = rng.choice([1, 3, 7, 200, 1500])
        pieces.append(text[:size])
        text = text[size:]
    return count, pieces


@pytest.mark.parametrize("name", HEADS)
async def test_every_event_is_counted_once_however_the_stream_is_cut(
    name: str, tmp_path: Path
) -> None:
    rng, kind, counted = random.Random(name), HEADS[name], 0
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n" % kind
    async with socketless_gateway(
        tmp_path, key=KEY, model=MODEL, is_ollama=name.startswith("ollama")
    ) as (gateway, pool):
        client = MemoryClient(gateway, pool)
        for _ in range(20):
            count, pieces = stream(rng, kind)
            client.send(recording(name).request)
            client.answer(head)
            for piece in pieces:
                client.answer(b"%x\r\n%b\r\n" % (len(piece), piece))
            client.answer(b"0\r\n\r\n")
            counted += count
            assert gateway.parts.accounting.output_tokens == counted
