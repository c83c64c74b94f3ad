"""The simulated node: a server with the timing of a model, and no model.

It speaks OpenAI's and Anthropic's dialects, unary and streamed, for tests, demos and benchmarks.
Beyond its slots it answers 503 with `Retry-After` at once, and when a client goes it stops at once:
both are what the gateway must be able to rely on.
"""

import asyncio
import base64
import contextlib
import logging
import socket
from array import array
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from itertools import count
from typing import Any, TypeAlias

import msgspec
import uvicorn
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from forebay import __version__
from forebay.errors import BackendFailed, ForebayError, NotAllowed, Rejected
from forebay.nodes.adapters.simulated import OWNER
from forebay.nodes.sim.dialects import Chat, Completion, Dialect, Messages, Responses, SimAnswer
from forebay.nodes.sim.engine import RETRY_AFTER_S, SimEngine, SimOptions
from forebay.nodes.sim.text import answer_words, embedding, prompt_text, token_count

BODY_BYTES_MAX = 32 * 1024 * 1024
TOKENS_DEFAULT = 256
TOKENS_MAX = 100_000
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_PROMPTS = ("instructions", "system", "messages", "prompt", "input")


class BadRequest(Exception):
    """The caller's body makes no sense; the text says what is wrong with it."""


class SimRequest(Struct, frozen=True):
    """What the simulated node takes from a request."""

    model: str
    prompt: str
    tokens_max: int
    is_stream: bool
    is_forced: bool
    """Go on to the limit: `ignore_eos`."""
    wants_usage: bool
    input: object
    """What to embed, as it came."""
    in_base64: bool


Write: TypeAlias = Callable[[SimRequest, Send], Coroutine[Any, Any, None]]
"""Sends the answer to a request that holds a slot."""


def parse(body: dict[str, object], required: str) -> SimRequest:
    """Read a request of any dialect; raises `BadRequest`."""
    model = body.get("model")
    if not isinstance(model, str):
        raise BadRequest("'model' must be a string")
    if not body.get(required):
        raise BadRequest(f"'{required}' is missing")
    limits = [value for field in _LIMITS if isinstance(value := body.get(field), int)]
    options = body.get("stream_options")
    return SimRequest(
        model=model,
        prompt=prompt_text([body.get(field) for field in _PROMPTS]),
        tokens_max=min(TOKENS_MAX, max(1, min(limits, default=TOKENS_DEFAULT))),
        is_stream=body.get("stream") is True,
        is_forced=body.get("ignore_eos") is True,
        wants_usage=isinstance(options, dict) and options.get("include_usage") is True,
        input=body.get("input"),
        in_base64=body.get("encoding_format") == "base64",
    )


async def json_body(request: Request) -> dict[str, object]:
    """Read a bounded body; raises `BadRequest` for anything but a JSON object."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise BadRequest("the body is too large")
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadRequest("the body is not JSON") from error
    if not isinstance(value, dict):
        raise BadRequest("the body is not a JSON object")
    return value


def problem(error: Exception) -> Response:
    """Return an error in a form that both dialects' clients can read."""
    status = {BadRequest: 400, NotAllowed: 404, Rejected: 503}.get(type(error), 500)
    code = error.code if isinstance(error, ForebayError) else "invalid_request"
    detail = {"message": str(error), "type": code, "code": code, "param": None}
    headers = {"retry-after": str(RETRY_AFTER_S)} if status == 503 else None
    return JSONResponse({"type": "error", "error": detail}, status, headers)


async def while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Run the work, but cancel it the moment the client goes away."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    serving = asyncio.create_task(work)
    leaving = asyncio.create_task(gone())
    try:
        await asyncio.wait({serving, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        is_served = serving.done()
        serving.cancel()
        leaving.cancel()
        await asyncio.gather(serving, leaving, return_exceptions=True)
    if is_served:
        serving.result()


class Inference:
    """One inference route, as an ASGI application around what it answers."""

    def __init__(self, engine: SimEngine, required: str, write: Write) -> None:
        self._engine = engine
        self._required = required
        self._write = write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await json_body(Request(scope, receive))
            asked = parse(body, self._required)
        except ClientDisconnect:
            return
        except BadRequest as error:
            await problem(error)(scope, receive, send)
            return

        async def serve() -> None:
            try:
                with self._engine.slot(asked.model):
                    await self._write(asked, send)
            except (BackendFailed, NotAllowed, Rejected) as error:
                await problem(error)(scope, receive, send)

        await while_connected(receive, serve())


class Speaker:
    """Answers in words, in one dialect."""

    def __init__(
        self, engine: SimEngine, dialect: Callable[[], Dialect], ids: Iterator[int]
    ) -> None:
        self._engine = engine
        self._dialect = dialect
        self._ids = ids

    async def write(self, asked: SimRequest, send: Send) -> None:
        """Send the answer at the pace of the engine."""
        words = answer_words(asked.model, asked.prompt, asked.tokens_max, asked.is_forced)
        answer = SimAnswer(
            id=f"sim{next(self._ids)}",
            model=asked.model,
            words=words,
            prompt_tokens=token_count(asked.prompt),
            is_cut=len(words) == asked.tokens_max,
            wants_usage=asked.wants_usage,
        )
        dialect = self._dialect()
        if asked.is_stream:
            await _send_stream(send, self._events(answer, dialect))
            return
        async for _ in self._engine.ticks(answer.model, len(words)):
            pass
        await _send_whole(send, dialect.whole(answer))

    async def _events(self, answer: SimAnswer, dialect: Dialect) -> AsyncIterator[bytes]:
        async for token in self._engine.ticks(answer.model, len(answer.words)):
            opening = b"".join(dialect.opening(answer)) if token == 0 else b""
            yield opening + dialect.word(answer, answer.words[token])
        yield b"".join(dialect.closing(answer))


class Embedder:
    """Answers `POST /v1/embeddings`, which takes one token's time."""

    def __init__(self, engine: SimEngine) -> None:
        self._engine = engine

    async def write(self, asked: SimRequest, send: Send) -> None:
        async for _ in self._engine.ticks(asked.model, 1):
            pass
        texts = asked.input if isinstance(asked.input, list) else [asked.input]
        data = []
        for index, text in enumerate(texts):
            vector: object = embedding(str(text))
            if asked.in_base64:  # what the openai client asks for unless told otherwise
                vector = base64.b64encode(array("f", embedding(str(text))).tobytes()).decode()
            data.append({"object": "embedding", "index": index, "embedding": vector})
        tokens = token_count(asked.prompt)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        answer = {"object": "list", "model": asked.model, "data": data, "usage": usage}
        await _send_whole(send, answer)


async def _send_whole(send: Send, value: object) -> None:
    body = msgspec.json.encode(value)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send_stream(send: Send, pieces: AsyncIterator[bytes]) -> None:
    """Send the head with the first piece, so that the first byte is the first token."""
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
    is_begun = False
    async for piece in pieces:
        if not is_begun:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            is_begun = True
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def sim_app(engine: SimEngine) -> Starlette:
    """Make the application of one simulated node."""

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def props(_: Request) -> Response:
        return JSONResponse({"total_slots": engine.options.slots, "busy_slots": engine.busy})

    async def models(_: Request) -> Response:
        data = [
            {"id": name, "object": "model", "created": 0, "owned_by": OWNER}
            for name in engine.sizes_gb
        ]
        memory = {"loaded": engine.loaded, "loaded_max": engine.loaded_max}
        about = {"slots": engine.options.slots, "version": __version__}
        return JSONResponse({"object": "list", "data": data, **memory, **about, **engine.gpu()})

    ids = count(1)
    routes = {
        "/v1/chat/completions": ("messages", Speaker(engine, Chat, ids).write),
        "/v1/completions": ("prompt", Speaker(engine, Completion, ids).write),
        "/v1/responses": ("input", Speaker(engine, Responses, ids).write),
        "/v1/messages": ("messages", Speaker(engine, Messages, ids).write),
        "/v1/embeddings": ("input", Embedder(engine).write),
    }
    inference = [
        Route(path, Inference(engine, required, write), methods=["POST"])
        for path, (required, write) in routes.items()
    ]
    return Starlette(
        routes=[
            Route("/health", health),
            Route("/props", props),
            Route("/v1/models", models),
            *inference,
        ]
    )


class _Server(uvicorn.Server):
    """Uvicorn without signal handlers, which reports when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Break off what runs, without a word: uvicorn calls it an error, even of no request."""
        errors = logging.getLogger("uvicorn.error")
        errors.disabled = True
        try:
            await super().shutdown(sockets=sockets)
        finally:
            errors.disabled = False


class SimNode:
    """A simulated node in this process. `start` and `stop` may be called twice."""

    def __init__(self, options: SimOptions, host: str = "127.0.0.1", port: int = 0) -> None:
        """Prepare a node; port 0 takes a free one."""
        self.engine = SimEngine(options)
        self._app = sim_app(self.engine)
        self._ready_at_s = 0.0
        self._address = (host, port)
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self.url = ""
        """Where it listens; "" until it does."""

    async def start(self) -> None:
        """Listen; returns when requests are taken. Raises `OSError` when the port is not free."""
        if self._serving is not None:
            return
        host, port = self._address
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=1024)
        # Connections inherit it; asyncio sets it only where a socket names its protocol.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{listener.getsockname()[1]}"
        config = uvicorn.Config(
            self._answer,
            interface="asgi3",  # it cannot tell by a method
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=0,
        )
        self._ready_at_s = asyncio.get_running_loop().time() + self.engine.options.start_s
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        await self._server.listening.wait()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as llama.cpp does: while it loads, everything with 503."""
        if asyncio.get_running_loop().time() >= self._ready_at_s:
            await self._app(scope, receive, send)
            return
        detail = {"message": "Loading model", "type": "unavailable_error", "code": 503}
        await JSONResponse({"error": detail}, 503)(scope, receive, send)

    async def kill(self) -> None:
        """End as a process does that is killed: every connection is reset, the port closed."""
        if self._server is not None:
            for listener in self._server.servers:
                listener.close()
            for connection in list(self._server.server_state.connections):
                connection.transport.abort()
        await self.stop()

    async def stop(self) -> None:
        """Break off what runs and close the port; returns when all is stopped."""
        serving, self._serving = self._serving, None
        if serving is None or self._server is None:
            return
        self._server.should_exit = True
        await serving
        self.url = ""
