"""A simulated node that speaks Ollama: the engine of `forebay sim-node` with routes under `/api`.

Run as a file, so that it uses the `forebay` of the gateway under test (PYTHONPATH).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from forebay.nodes.sim.engine import SimEngine, SimOptions
from forebay.nodes.sim.sim_node import Inference
from forebay.nodes.sim.text import answer_words, embedding

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Send

    from forebay.nodes.sim.sim_node import SimRequest

MODEL = "ollama-small"
VERSION = "0.14.0"


class Speaker:
    """Answers `/api/chat` and `/api/generate` in lines of JSON, or in one."""

    def __init__(self, engine: SimEngine, is_chat: bool) -> None:
        self._engine = engine
        self._is_chat = is_chat

    def _line(self, model: str, text: str, is_done: bool) -> bytes:
        said: dict[str, object] = {"response": text}
        if self._is_chat:
            said = {"message": {"role": "assistant", "content": text}}
        return msgspec.json.encode({"model": model, **said, "done": is_done}) + b"\n"

    async def write(self, asked: SimRequest, send: Send) -> None:
        words = answer_words(asked.model, asked.prompt, asked.tokens_max, asked.is_forced)
        kind = b"application/x-ndjson" if asked.is_stream else b"application/json"
        head = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]}
        async for token in self._engine.ticks(asked.model, len(words)):
            if not asked.is_stream:
                continue
            if token == 0:
                await send(head)
            line = self._line(asked.model, words[token], is_done=False)
            await send({"type": "http.response.body", "body": line, "more_body": True})
        if not asked.is_stream:
            await send(head)
        text = "" if asked.is_stream else "".join(words)
        last = self._line(asked.model, text, is_done=True)
        await send({"type": "http.response.body", "body": last})


class Embedder:
    """Answers `/api/embed`."""

    def __init__(self, engine: SimEngine) -> None:
        self._engine = engine

    async def write(self, asked: SimRequest, send: Send) -> None:
        async for _ in self._engine.ticks(asked.model, 1):
            pass
        body = msgspec.json.encode({"model": asked.model, "embeddings": [embedding("")]})
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def application(engine: SimEngine) -> Starlette:
    """Make the node: three inference routes, and those by which Ollama is asked about itself."""

    async def models(_: Request) -> Response:
        return JSONResponse({"models": [{"name": MODEL, "model": MODEL, "size_vram": 1 << 30}]})

    async def version(_: Request) -> Response:
        return JSONResponse({"version": VERSION})

    inference = {
        "/api/chat": ("messages", Speaker(engine, is_chat=True).write),
        "/api/generate": ("prompt", Speaker(engine, is_chat=False).write),
        "/api/embed": ("input", Embedder(engine).write),
    }
    return Starlette(
        routes=[
            Route("/api/tags", models),
            Route("/api/ps", models),
            Route("/api/version", version),
            *(
                Route(path, Inference(engine, required, write), methods=["POST"])
                for path, (required, write) in inference.items()
            ),
        ]
    )


if __name__ == "__main__":
    options = SimOptions(
        models=(MODEL,), slots=int(sys.argv[2]), ttft_s=0.05, tokens_per_second=60.0
    )
    uvicorn.run(
        application(SimEngine(options)), port=int(sys.argv[1]), log_level="warning", loop="asyncio"
    )
