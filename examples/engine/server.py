"""An OpenAI-compatible server around `forebay.batching.transformers`, to run behind a gateway.

    python examples/engine/server.py --random tiny --port 8001

What makes an engine a good node: requests come with a class and a user, and wait in the engine's
own queue under both; one whose client leaves is cancelled, and its memory is free at once; what can
never fit is refused; and `/health` says what the key-value cache has room for.
"""

import argparse
import asyncio
import json
import socket
import uuid
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from typing import Any
from urllib.parse import unquote

import torch
import transformers
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from tokenizers import Tokenizer, decoders, models

from forebay import batching
from forebay.batching.transformers import BatchingEngine, EngineFailed
from forebay.clock import SystemClock

BODY_BYTES_MAX = 16 * 2**20
ANSWER_TOKENS = 256  # where the request does not say
PRIORITIES = {priority.name.lower(): priority for priority in batching.Priority}
UNSUPPORTED = ("tools", "stop", "logprobs", "response_format")  # they would change the answer
REFUSALS: dict[type[Exception], tuple[int, str]] = {
    batching.QueueFull: (429, "queue_full"),
    batching.RequestTooLarge: (400, "context_length_exceeded"),
    EngineFailed: (500, "engine_failed"),
    batching.QueueClosed: (503, "engine_failed"),
}
Pieces = AsyncGenerator[list[int], None]
TINY = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2}  # fmt: skip
LETTERS = {chr(number): number - 32 for number in range(32, 127)}
TEMPLATE = "{% for one in messages %}{{ one.role }}: {{ one.content }} {% endfor %}assistant: "
ON_GPU = torch.cuda.is_available()
NUMBERS = {
    "--port": (8001, "0 takes a free one"),
    "--slots": (64, "requests in one step"),
    "--capacity": (256, "requests that may wait"),
    "--block-size": (256, "tokens of one block of the cache"),
    "--blocks": (None if ON_GPU else 64, "of the cache; else what the GPU has room for"),
    "--step-tokens": (None if ON_GPU else 256, "tokens in one step; else by the GPU"),
}


class Refused(HTTPException):
    """A request that gets an error instead of an answer."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, message, {"retry-after": "1"} if status in (429, 503) else None)
        self.body = {"error": {"message": message, "type": code, "code": code, "param": None}}

    @staticmethod
    async def show(_: Request, error: Any) -> Response:
        return JSONResponse(error.body, error.status_code, error.headers)


class Engine:
    """The model, its tokenizer, and what was counted."""

    def __init__(self, name: str, model: BatchingEngine, tokenizer: Any, slots: int) -> None:
        self.name, self.model, self.tokenizer, self.slots = name, model, tokenizer, slots
        self.ended: Counter[str] = Counter()

    @property
    def is_alive(self) -> bool:
        return bool(self.model.manager.is_running())

    async def run(self, request: batching.Request, priority: batching.Priority) -> Pieces:
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
        self._engine, self._streams = engine, bool(body.get("stream"))
        self._tells_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        self._said = {
            "id": uuid.uuid4().hex,
            "object": "chat.completion.chunk" if self._streams else "chat.completion",
            "created": int(SystemClock().utc().timestamp()),
            "model": engine.name,
        }
        asked = request.headers.get("x-forebay-priority", "")
        self._priority = PRIORITIES.get(asked, batching.Priority.NORMAL)
        user = unquote(request.headers.get("x-forebay-user", ""))
        prompt, limit = read(body, engine.tokenizer)
        self._request = batching.Request(self._said["id"], prompt, limit, user=user)

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
            tokens = await anext(pieces, [])  # before it, an error can still have a status
            if self._streams:
                await self._stream(tokens, pieces, send)
                return
            async for more in pieces:
                tokens += more
        text = self._engine.tokenizer.decode(tokens, skip_special_tokens=True)
        said = self._choice("message", text, len(tokens)) | self._usage(len(tokens))
        await JSONResponse(said)(scope, receive, send)

    async def _stream(self, tokens: list[int], pieces: Pieces, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        decoder, decode = self._engine.tokenizer.backend_tokenizer, decoders.DecodeStream([], True)
        count = 0
        try:
            while tokens:
                count += len(tokens)
                texts = [decode.step(decoder, token) or "" for token in tokens]
                await _event(send, self._choice("delta", "".join(texts)))
                tokens = await anext(pieces, [])
        except Refused as refused:
            await _event(send, refused.body, more=False)
            return
        await _event(send, self._choice("delta", "", count))
        if self._tells_usage:
            await _event(send, self._said | {"choices": []} | self._usage(count))
        await _event(send, "[DONE]", more=False)

    def _choice(self, kind: str, text: str, answered: int | None = None) -> dict[str, Any]:
        """Return a piece of the answer, or its end, where that many tokens were answered."""
        is_cut = answered is not None and answered >= self._request.max_tokens
        reason = None if answered is None else "length" if is_cut else "stop"
        message = {"role": "assistant", "content": text}
        return self._said | {"choices": [{"index": 0, kind: message, "finish_reason": reason}]}

    def _usage(self, answered: int) -> dict[str, Any]:
        asked = len(self._request.prompt)
        counts = {"prompt_tokens": asked, "completion_tokens": answered}
        return {"usage": counts | {"total_tokens": asked + answered}}


async def _event(send: Send, data: object, *, more: bool = True) -> None:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    body = f"data: {text}\n\n".encode()
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def read(body: dict[str, Any], tokenizer: Any) -> tuple[list[int], int]:
    """Return the tokens that a body asks about, and the most to answer; raises `Refused`."""
    if body.get("n", 1) != 1 or any(body.get(name) for name in UNSUPPORTED):
        raise Refused(400, "unsupported", f"not supported here: n, {', '.join(UNSUPPORTED)}")
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or ANSWER_TOKENS
    if not isinstance(limit, int) or limit < 1:
        raise Refused(400, "invalid_request", "`max_tokens` must be a whole number above 0")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refused(400, "invalid_request", "`messages` must be a list, and not an empty one")
    try:
        for one in messages:
            if isinstance(one["content"], list):
                one["content"] = "".join(part["text"] for part in one["content"])
        tokens = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    except Exception as error:  # the template of a model may raise anything about them
        raise Refused(400, "invalid_request", f"`messages`, role and text: {error!r}") from None
    return list(getattr(tokens, "input_ids", tokens)), limit


async def answer(request: Request) -> Response:
    """Take a request, or say what is wrong with it."""
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or int(length) > BODY_BYTES_MAX:
        raise Refused(413, "too_large", "the body needs a length, of 16 MiB at most")
    try:
        body = json.loads(await request.body())
        return Answer(request.app.state.engine, dict(body), request)
    except (AttributeError, TypeError, ValueError) as error:
        raise Refused(400, "invalid_request", f"the body must be a JSON object: {error}") from None


async def health(request: Request) -> Response:
    """Say what a gateway, and its guard, want to know."""
    engine: Engine = request.app.state.engine
    figures = engine.model.figures()
    said = {name: getattr(figures, name) for name in ("running", "waiting", "kv_free_tokens")}
    words, status = ("ok", 200) if engine.is_alive else ("the engine has died", 503)
    return JSONResponse({"status": words, "slots": engine.slots, **said}, status)


async def metrics(request: Request) -> Response:
    """Show the same to Prometheus."""
    engine: Engine = request.app.state.engine
    figures = asdict(engine.model.figures()).items()
    lines = [f"engine_{name} {value}" for name, value in figures if isinstance(value, int)]
    ended = sorted(engine.ended.items())
    lines += [f'engine_requests_total{{outcome="{name}"}} {count}' for name, count in ended]
    return PlainTextResponse("\n".join(lines) + "\n")


async def list_models(request: Request) -> Response:
    """List the one model, while it can be run: this is what gateways ask for."""
    engine: Engine = request.app.state.engine
    model = {"id": engine.name, "object": "model", "owned_by": "engine"}
    return JSONResponse({"object": "list", "data": [model]}, 200 if engine.is_alive else 503)


def read_options(description: str) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=description)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--model", help="a folder, or a name, that transformers can load")
    which.add_argument("--random", choices=["tiny"], help="random weights, for trying it out")
    parser.add_argument("--host", default="127.0.0.1")
    for name, (default, words) in NUMBERS.items():
        parser.add_argument(name, type=int, default=default, help=words)
    return parser.parse_args()


def load(options: argparse.Namespace) -> tuple[BatchingEngine, Any]:
    """Return the engine that the command line asks for, and the tokenizer of its model."""
    if options.random:
        config = transformers.LlamaConfig(
            vocab_size=len(LETTERS), max_position_embeddings=131_072, eos_token_id=None, **TINY
        )
        model = transformers.LlamaForCausalLM(config)
        made = Tokenizer(models.BPE(LETTERS, [], unk_token="."))  # a token for each letter
        made.decoder = decoders.Fuse()
        tokenizer = transformers.TokenizersBackend(tokenizer_object=made, chat_template=TEMPLATE)
    else:
        tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
        model = transformers.AutoModelForCausalLM.from_pretrained(options.model)
    model = model.to("cuda" if ON_GPU else "cpu", torch.bfloat16 if ON_GPU else torch.float32)
    batching = transformers.ContinuousBatchingConfig(
        block_size=options.block_size,
        num_blocks=options.blocks,
        max_batch_tokens=options.step_tokens,
        max_requests_per_batch=options.slots,
    )
    queue: Any = {"capacity": options.capacity, "fairness": "round_robin"}
    return BatchingEngine(model.eval(), batching=batching, **queue), tokenizer


def main() -> None:
    """Serve."""
    options = read_options((__doc__ or "").partition("\n")[0])
    routes = [Route("/v1/chat/completions", answer, methods=["POST"])]
    for path, page in {"/health": health, "/metrics": metrics, "/v1/models": list_models}.items():
        routes += [Route(path, page)]
    app = Starlette(routes=routes, exception_handlers={Refused: Refused.show})
    model, tokenizer = load(options)
    name = options.random or options.model
    app.state.engine = Engine(name, model, tokenizer, options.slots)
    listening = socket.create_server((options.host, options.port), backlog=1024)
    port = listening.getsockname()[1]
    print(f"serving {name} on http://{options.host}:{port}", flush=True)  # noqa: T201
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5)
    with model:
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
