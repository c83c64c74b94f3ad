"""What a recorded request costs us, counted: the same on every machine, whatever else it does.

`python -m harness.request_costs` writes the counts of this Python's version down as the budget that
`tests/gateway/hot/test_request_costs.py` holds us to.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from harness.function_calls import functions_called
from harness.recordings import KEY, MODEL, Recording, recordings
from harness.recordings.answers import ANSWERS
from harness.socketless import MemoryClient, socketless_gateway

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

BUDGET = Path(__file__).parent.parent / "tests" / "gateway" / "hot" / "request_costs.json"
"""Python's version → recording → kind of cost → count."""
TOKENS = 64
"""Pieces of a stream."""
WARM = 5
"""Requests before those that are counted: heads are known then, as on a connection in use."""
READ_BYTES = 65_536
"""A body that needs more than one read is read in turns of the loop; that cost is bounded by
`tests/relay/test_reading_costs.py`."""

Costs = dict[str, int]


def this_python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def measured() -> list[Recording]:
    return [one for one in recordings() if len(one.request) <= READ_BYTES]


def opcodes_run(action: Callable[[], object]) -> int:
    """Count the instructions of the interpreter, in functions written in Python."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    sys._getframe().f_trace_opcodes = True  # from Python 3.12 on one frame must say so before
    gc.disable()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(None)
        gc.enable()
    return count


async def count_costs(recording: Recording) -> Costs:
    """Return what one request of a recording and its answer cost."""
    pieces = answer_pieces(recording)
    is_ollama = recording.route.startswith("/api/")
    with tempfile.TemporaryDirectory() as folder:
        async with socketless_gateway(Path(folder), key=KEY, model=MODEL, is_ollama=is_ollama) as (
            gateway,
            pool,
        ):
            client, request = MemoryClient(gateway, pool), recording.request

            def serve() -> None:
                client.send(request)
                for piece in pieces:
                    client.answer(piece)

            for _ in range(WARM):
                serve()
            client.transport.take()
            writes = client.transport.writes + client.node.writes
            calls = functions_called(serve)
            writes = client.transport.writes + client.node.writes - writes
            opcodes_run(serve)  # from Python 3.13 on code that was traced before is traced whole
            opcodes = opcodes_run(serve)
            written = client.transport.take()
            assert written.count(b"HTTP/1.1 200 OK\r\n") == 3, written[:500]
            return {"calls": len(calls), "opcodes": opcodes, "writes": writes}


def answer_pieces(recording: Recording) -> list[bytes]:
    """Return what the reads of a node's socket bring."""
    answer = ANSWERS[recording.route]
    if not recording.is_stream:
        body = answer.whole.encode()
        head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        return [(head % len(body)).encode() + body]
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {answer.stream_type}\r\ntransfer-encoding: chunked"
    texts = (answer.first, *[answer.token] * TOKENS, answer.last)
    chunks = [f"{len(text.encode()):x}\r\n{text}\r\n".encode() for text in texts]
    chunks[0] = f"{head}\r\n\r\n".encode() + chunks[0]
    return [*chunks[:-1], chunks[-1] + b"0\r\n\r\n"]


async def _all_costs() -> dict[str, Costs]:
    return {one.name: await count_costs(one) for one in measured()}


if __name__ == "__main__":
    kept: dict[str, dict[str, Costs]] = json.loads(BUDGET.read_text()) if BUDGET.exists() else {}
    kept[this_python()] = uvloop.run(_all_costs())
    BUDGET.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    for name, costs in kept[this_python()].items():
        sys.stdout.write(f"{name:28} {costs}\n")
