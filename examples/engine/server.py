"""An OpenAI-compatible server around `forebay.batching.transformers`, to run behind a gateway.

    python examples/engine/server.py --random tiny --port 8001

What makes an engine a good node: requests come with a class and a user, and wait in the engine's
own queue under both; one whose client leaves is cancelled, and its memory is free at once; what can
never fit is refused; and `/health` says what the key-value cache has room for.
"""

import asyncio
import json
import socket
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any
from urllib.parse import unquote

import uvicorn
from model import TextStream, load, read_options
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from forebay import batching
from forebay.batching import Priority
from forebay.batching.transformers import BatchingEngine, EngineFailed
from forebay.clock import SystemClock

BODY_BYTES_MAX = 16 * 2**20
ANSWER_TOKENS = 256  # where the request does not say
PRIORITIES = {"high": Priority.HIGH, "normal": Priority.NORMAL, "low": Priority.LOW}
UNSUPPORTED = ("tools", "stop", "logprobs", "response_format")  # they would change the answer
CHAT = "/v1/chat/completions"
GAUGES = ("running", "waiting", "kv_used", "kv_total", "kv_free_tokens")
REFUSALS: dict[type[Exception], tuple[int, str]] = {
    batching.QueueFull: (429, "queue_full"),
    batching.RequestTooLarge: (400, "context_length_exceeded"),
    EngineFailed: (500, "engine_failed"),
    batching.QueueClosed: (503, "engine_failed"),
}
Pieces = AsyncGenerator[list[int], None]


class Refused(Exception):
    """A request that gets an error instead of an answer."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": code, "code": code, "param": None}}

    def response(self) -> Response:
        headers = {"retry-after": "1"} if self.status in (429, 503) else {}
        return JSONResponse(self.body, self.status, headers)


class Engine:
    """The model, its tokenizer, and what was counted."""

    def __init__(self, name: str, model: BatchingEngine, tokenizer: Any, slots: int) -> None:
        self.name, self.model, self.tokenizer, self.slots = name, model, tokenizer, slots
        self.ended: Counter[str] = Counter()

    @property
    def is_alive(self) -> bool:
        return bool(self.model.manager.is_running())

    async def run(self, request: batching.Request, priority: Priority) -> Pieces:
        """Yield tokens; what can go wrong becomes `Refused`. Every end is counted."""
        outcome = "cancelled"  # unless something else comes of it
        try:
            async with aclosing(self.model.generate(request, priority)) as pieces:
                async for tokens in pieces:
                    yield tokens
            outcome = "answered"
        except tuple(REFUSALS) as error:
            status, outcome = REFUSALS[type(error)]
            raise Refused(status if self.is_alive else 503, outcome, str(error)) from error
        finally:
            self.ended[outcome] += 1


class Answer(Response):
    """Runs one request, and stops it when its client leaves."""

    def __init__(self, engine: Engine, body: dict[str, Any], request: Request) -> None:
        self._engine, self._chat = engine, request.url.path == CHAT
        self._streams = bool(body.get("stream"))
        more = body.get("stream_options")
        self._tells_usage = isinstance(more, dict) and bool(more.get("include_usage"))
        kind = "chat.completion" if self._chat else "text_completion"
        self._said = {
            "id": uuid.uuid4().hex,
            "object": kind + ".chunk" if self._chat and self._streams else kind,
            "created": int(SystemClock().utc().timestamp()),
            "model": body.get("model") or engine.name,
        }
        asked = request.headers.get("x-forebay-priority", "")
        self._priority = PRIORITIES.get(asked, Priority.NORMAL)
        prompt = prompt_of(body, engine.tokenizer, self._chat)
        user = unquote(request.headers.get("x-forebay-user", ""))
        self._request = batching.Request(self._said["id"], prompt, limit_of(body), user=user)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, until the client leaves: whichever is first ends the other."""
        run = asyncio.ensure_future(self._run(scope, receive, send))
        left = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((run, left), return_when=asyncio.FIRST_COMPLETED)
        finally:
            run.cancel()
            left.cancel()
            await asyncio.gather(run, left, return_exceptions=True)
        if not run.cancelled():
            run.result()

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._engine.run(self._request, self._priority)) as pieces:
            try:
                tokens = await anext(pieces, [])  # before it, an error can still have a status
                if self._streams:
                    await self._stream(tokens, pieces, send)
                    return
                async for more in pieces:
                    tokens += more
            except Refused as refused:
                await refused.response()(scope, receive, send)
                return
        text = self._engine.tokenizer.decode(tokens, skip_special_tokens=True)
        choices = self._choices(text, len(tokens))
        await JSONResponse(self._said | choices | self._usage(len(tokens)))(scope, receive, send)

    async def _stream(self, tokens: list[int], pieces: Pieces, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        text, count = TextStream(self._engine.tokenizer), 0
        try:
            while tokens:
                count += len(tokens)
                await _event(send, self._said | self._choices(text.add(tokens)))
                tokens = await anext(pieces, [])
        except Refused as refused:
            await _event(send, refused.body, more=False)
            return
        await _event(send, self._said | self._choices(text.add([], is_last=True), count))
        if self._tells_usage:
            await _event(send, self._said | {"choices": []} | self._usage(count))
        await _event(send, "[DONE]", more=False)

    def _choices(self, text: str, answered: int | None = None) -> dict[str, Any]:
        """Return a piece of the answer, or its end, where that many tokens were answered."""
        reason = None
        if answered is not None:
            reason = "length" if answered >= self._request.max_tokens else "stop"
        said: dict[str, Any] = {"text": text}
        if self._chat:
            said = {"message": {"role": "assistant", "content": text}}
            if self._streams:
                said = {"delta": said["message"]}
        return {"choices": [{"index": 0, **said, "finish_reason": reason}]}

    def _usage(self, answered: int) -> dict[str, Any]:
        asked = len(self._request.prompt)
        total = asked + answered
        counts = {"prompt_tokens": asked, "completion_tokens": answered, "total_tokens": total}
        return {"usage": counts}


async def _event(send: Send, data: object, *, more: bool = True) -> None:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    body = f"data: {text}\n\n".encode()
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def prompt_of(body: dict[str, Any], tokenizer: Any, is_chat: bool) -> list[int]:
    """Return the tokens that a body asks about; raises `Refused`."""
    if body.get("n", 1) != 1 or any(body.get(name) for name in UNSUPPORTED):
        raise Refused(400, "unsupported", f"not supported here: n, {', '.join(UNSUPPORTED)}")
    try:
        if not is_chat:
            tokens = list(tokenizer.encode(body["prompt"]))
        else:
            tokens = chat_tokens([_message(one) for one in body["messages"]], tokenizer)
    except Exception as error:  # a chat template may raise anything about the messages
        words = f"messages need a role and a text each, completions a prompt: {error!r}"
        raise Refused(400, "invalid_request", words) from None
    if not tokens:
        raise Refused(400, "invalid_request", "the prompt is empty")
    return tokens


def chat_tokens(messages: list[dict[str, str]], tokenizer: Any) -> list[int]:
    """Return messages as the model was trained to read them, else one after the other."""
    if tokenizer.chat_template:
        tokens = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        return list(getattr(tokens, "input_ids", tokens))
    lines = [one["role"] + ": " + one["content"] + "\n" for one in messages]
    return list(tokenizer.encode("".join(lines) + "assistant: "))


def _message(said: dict[str, Any]) -> dict[str, str]:
    content = said["content"]
    if isinstance(content, list):
        content = "".join(part["text"] for part in content)
    return {"role": said["role"], "content": content}


def limit_of(body: dict[str, Any]) -> int:
    """Return how long the answer may be; raises `Refused`."""
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or ANSWER_TOKENS
    if not isinstance(limit, int) or limit < 1:
        raise Refused(400, "invalid_request", "`max_tokens` must be a whole number above 0")
    return limit


async def answer(request: Request) -> Response:
    """Take a request, or say what is wrong with it."""
    try:
        if int(request.headers.get("content-length", BODY_BYTES_MAX)) >= BODY_BYTES_MAX:
            raise Refused(413, "too_large", "the body needs a length, below 16 MiB")
        body = json.loads(await request.body())
        if not isinstance(body, dict):
            raise Refused(400, "invalid_request", "the body must be a JSON object")
        return Answer(request.app.state.engine, body, request)
    except ValueError as error:
        return Refused(400, "invalid_request", f"no request in JSON: {error}").response()
    except Refused as refused:
        return refused.response()


async def health(request: Request) -> Response:
    """Say what a gateway, and its guard, want to know."""
    engine: Engine = request.app.state.engine
    figures = engine.model.figures()
    said = {name: getattr(figures, name) for name in ("running", "waiting", "kv_free_tokens")}
    words = "ok" if engine.is_alive else "the engine has died"
    return JSONResponse(
        {"status": words, "slots": engine.slots, **said}, 200 if words == "ok" else 503
    )


async def metrics(request: Request) -> Response:
    """Show the same to Prometheus."""
    engine: Engine = request.app.state.engine
    figures = engine.model.figures()
    lines = [f"# TYPE engine_{n} gauge\nengine_{n} {getattr(figures, n)}" for n in GAUGES]
    lines += [
        "# TYPE engine_preempted_total counter",
        f"engine_preempted_total {figures.preempted}",
    ]
    lines += ["# TYPE engine_requests_total counter"]
    counts = sorted(engine.ended.items())
    lines += [f'engine_requests_total{{outcome="{name}"}} {count}' for name, count in counts]
    return PlainTextResponse("\n".join(lines) + "\n")


async def models(request: Request) -> Response:
    """List the one model, while it can be run: this is what gateways ask for."""
    engine: Engine = request.app.state.engine
    model = {"id": engine.name, "object": "model", "owned_by": "engine"}
    status = 200 if engine.is_alive else 503
    return JSONResponse({"object": "list", "data": [model]}, status)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Run the engine as long as the server."""
    with app.state.engine.model:
        yield


def main() -> None:
    """Serve."""
    options = read_options((__doc__ or "").partition("\n")[0])
    posts = [Route(path, answer, methods=["POST"]) for path in (CHAT, "/v1/completions")]
    pages = {"/health": health, "/metrics": metrics, "/v1/models": models}
    routes = posts + [Route(path, page) for path, page in pages.items()]
    app = Starlette(routes=routes, lifespan=lifespan)
    model, tokenizer = load(options)
    name = options.name or options.random or options.model
    app.state.engine = Engine(name, model, tokenizer, options.slots)
    listening = socket.create_server((options.host, options.port), backlog=1024)
    url = f"http://{options.host}:{listening.getsockname()[1]}"
    print(f"serving {app.state.engine.name} on {url}", flush=True)  # noqa: T201
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
