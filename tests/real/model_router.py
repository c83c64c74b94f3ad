"""A node that has two models and holds one: real llama.cpp servers, one at a time.

It says of itself what llama.cpp's own server says as a router over several models. A request for a
model that is not in memory ends the server of the other one, once that is idle, and waits until a
new one has read its file.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TYPE_CHECKING

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .conftest import LIMIT_S, llama_cpp, ready_url

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncIterator
    from pathlib import Path

    from starlette.requests import Request


class ModelRouter:
    """Answers for all models with one server process."""

    def __init__(self, gguf: Path, models: tuple[str, ...]) -> None:
        self._gguf = gguf
        self._models = models
        self._server: AbstractContextManager[subprocess.Popen[str]] | None = None
        self._url = ""
        self._in_use = asyncio.Lock()
        self._client = httpx.AsyncClient(timeout=LIMIT_S, trust_env=False)
        self.loaded = ""
        self.loads: list[str] = []
        self.app = Starlette(
            routes=[
                Route("/health", self._answer_health),
                Route("/props", self._answer_props),
                Route("/v1/models", self._list_models),
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
            ]
        )

    async def _answer_health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _answer_props(self, _: Request) -> Response:
        return JSONResponse({"build_info": "b9999-router", "total_slots": 1})

    async def _list_models(self, _: Request) -> Response:
        values = {name: "loaded" if name == self.loaded else "unloaded" for name in self._models}
        data = [
            {"id": name, "owned_by": "llamacpp", "status": {"value": value}}
            for name, value in values.items()
        ]
        return JSONResponse({"object": "list", "data": data})

    async def _complete(self, request: Request) -> Response:
        body = await request.json()
        async with self._in_use:
            if body["model"] != self.loaded:
                await asyncio.to_thread(self._load, body["model"])
            answer = await self._client.post(f"{self._url}/v1/chat/completions", json=body)
        kind = answer.headers["content-type"]
        return Response(answer.content, answer.status_code, media_type=kind)

    def _load(self, model: str) -> None:
        self.unload()
        self._server = llama_cpp(self._gguf)
        self._url = ready_url(self._server.__enter__())
        self.loaded = model
        self.loads.append(model)

    def unload(self) -> None:
        if self._server is not None:
            self._server.__exit__(None, None, None)
        self._server, self.loaded = None, ""

    async def close(self) -> None:
        await self._client.aclose()
        await asyncio.to_thread(self.unload)


@asynccontextmanager
async def model_router(gguf: Path, *models: str) -> AsyncIterator[tuple[ModelRouter, str]]:
    """Run one on a free port; yield it and its address."""
    router = ModelRouter(gguf, models)
    config = uvicorn.Config(router.app, port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        yield router, f"http://127.0.0.1:{port}"
    finally:
        await server.shutdown()
        await router.close()
