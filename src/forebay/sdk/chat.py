"""Chats with their queue position: one stream of events, from the answer and from polling.

The answer's own stream says nothing before the gateway's first keep-alive (15 s by default), so
while nothing has come the place is asked for once a second, by the request's own id. A 404 there is
no error: the request may not have arrived yet, or be done.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from forebay.api.queue import Ticket
from forebay.sdk.errors import BadAnswer, GatewayAway, SdkError, error_of
from forebay.sdk.transport import ApiCall
from forebay.sdk.values import Answer, Delta, Done, Piece, Queued, Started, Usage
from forebay.sse import SseComment

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from forebay.sdk.transport import Transport
    from forebay.sdk.values import Prompt

ROUTE = "/v1/chat/completions"
LOOK_EVERY_S = 1.0
PIECES_HELD_MAX = 64
"""What may be read ahead of the caller; then the network is not read any further."""
ANSWER_BYTES_MAX = 64 * 1024 * 1024
QUEUED = re.compile(r"queued position=(\d+)(?: eta=(\d+(?:\.\d+)?))?")
STARTED = re.compile(r"started node=(\S+) waited_ms=(\d+)")


class ChatRequest(NamedTuple):
    """What is asked for."""

    model: str
    messages: Prompt
    priority: str | None
    max_wait_s: float | None
    params: Mapping[str, Any]

    def call(self, request_id: str) -> ApiCall:
        if self.params.get("n", 1) != 1:
            raise ValueError("n: one answer at a time; ask several times for several")
        body = {
            "stream_options": {"include_usage": True},
            **self.params,
            "model": self.model,
            "messages": messages_of(self.messages),
            "stream": True,
        }
        headers = {"x-request-id": request_id, **waiting_headers(self.priority, self.max_wait_s)}
        return ApiCall("POST", ROUTE, body, headers)


def messages_of(prompt: Prompt) -> list[Any]:
    """Return messages as they are sent: a plain text is what the user says."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)


def waiting_headers(priority: str | None, max_wait_s: float | None = None) -> dict[str, str]:
    """Return the headers that say how a request should wait."""
    headers = {} if priority is None else {"x-forebay-priority": priority}
    if max_wait_s is not None:
        headers["x-forebay-max-wait"] = f"{max_wait_s:g}"
    return headers


class ChatStream:
    """One request and its answer."""

    def __init__(self, transport: Transport, request: ChatRequest) -> None:
        self._transport = transport
        self._request = request
        self._id = f"sdk-{secrets.token_hex(12)}"
        self._builder = AnswerBuilder()
        self._pieces: asyncio.Queue[Piece | None] = asyncio.Queue(PIECES_HELD_MAX)
        self._last: Piece | None = None

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """Yield what happens, Done at the end; raises SdkError. Leaving early ends the request."""
        call = self._request.call(self._id)
        tasks = self._transport.tasks
        looking = tasks.start(self._look())
        reading = tasks.start(self._read(call, looking))
        reading.add_done_callback(self._wake)
        try:
            while not (reading.done() and self._pieces.empty()):
                piece = await self._pieces.get()
                if piece is not None:
                    yield piece
            self._transport.check_open()
            yield Done(reading.result())
        finally:
            await tasks.end(looking, reading)

    def _wake(self, _: object) -> None:
        """See that whoever waits for a piece learns that none will come."""
        if self._pieces.empty():
            self._pieces.put_nowait(None)

    async def _read(self, call: ApiCall, looking: asyncio.Task[None]) -> Answer:
        async with self._transport.opened(call) as response:
            looking.cancel()
            self._tell(self._builder.note_headers(response.headers))
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                await self._read_stream(response)
            else:
                whole = await self._transport.read(response)
                await self._put(self._builder.take_whole(whole))
        return self._builder.answer()

    async def _read_stream(self, response: Any) -> None:
        async with aclosing(self._transport.events(response)) as coming:
            async for found in coming:
                if isinstance(found, SseComment):
                    self._tell(self._builder.note_comment(found.text))
                else:
                    await self._put(self._builder.take_chunk(found.data))
        if not self._builder.is_complete:
            raise GatewayAway("the answer broke off before its end", sent=True)

    async def _look(self) -> None:
        """Ask for the place until there is something better to tell."""
        while True:
            await self._transport.pause(LOOK_EVERY_S)
            try:
                place = await self._transport.get(f"/v1/queue/{self._id}", Ticket)
            except SdkError:
                continue
            if place.position is not None:
                self._builder.note_place(place.position)
                self._tell(Queued(place.position, place.estimated_wait_seconds.p50))
            elif place.state == "running":
                self._tell(Started(waited_ms=round(place.waited_seconds * 1000)))

    def _tell(self, news: Piece | None) -> None:
        """Hand on news from the line; old news, and any that nobody has room for, are left out."""
        if news is not None and news != self._last and not self._pieces.full():
            self._last = news
            self._pieces.put_nowait(news)

    async def _put(self, piece: Piece | None) -> None:
        if piece is not None:
            await self._pieces.put(piece)


class AnswerBuilder:
    """One answer as it comes."""

    def __init__(self) -> None:
        self.is_complete = False
        """The model has said that it is done."""
        self._texts: list[str] = []
        self._reasoning: list[str] = []
        self._bytes = 0
        self._tool_calls: dict[int, dict[str, Any]] = {}
        self._known: dict[str, Any] = {}

    def note_headers(self, headers: Mapping[str, str]) -> Started | None:
        """Take what the head of the answer says; a Started where a node is named."""
        known = {
            "node": headers.get("x-forebay-node"),
            "waited_ms": _whole(headers.get("x-queue-wait-ms")),
            "position": _whole(headers.get("x-queue-position")),
            "request_id": headers.get("x-request-id"),
        }
        self._known |= {name: value for name, value in known.items() if value is not None}
        return self._started() if known["node"] is not None else None

    def note_comment(self, text: str) -> Queued | Started | None:
        """Take a comment of the gateway: news from the line, or nothing."""
        queued = QUEUED.match(text)
        if queued is not None:
            place = int(queued[1])
            self._known.setdefault("position", place)
            return Queued(place, None if queued[2] is None else float(queued[2]))
        started = STARTED.match(text)
        if started is None:
            return None
        self._known |= {"node": started[1], "waited_ms": int(started[2])}
        return self._started()

    def note_place(self, place: int) -> None:
        """Take the first place that was seen, where the gateway has not said one."""
        self._known.setdefault("position", place)

    def take_chunk(self, data: str) -> Delta | None:
        """Take one `data:` of the stream; raises GatewayError for one that says it failed."""
        if data.strip() == "[DONE]":
            self.is_complete = True
            return None
        chunk = self._read(data)
        choice = self._choice(chunk)
        return self._add(choice.get("delta") or {})

    def take_whole(self, content: bytes) -> Delta | None:
        """Take an answer that came in one piece, as of a node that does not stream."""
        choice = self._choice(self._read(content))
        self.is_complete = True
        return self._add(choice.get("message") or {})

    def answer(self) -> Answer:
        return Answer(
            text="".join(self._texts),
            reasoning="".join(self._reasoning),
            tool_calls=tuple(self._tool_calls[index] for index in sorted(self._tool_calls)),
            **self._known,
        )

    # -- inside

    def _started(self) -> Started:
        return Started(self._known.get("node"), self._known.get("waited_ms"))

    def _read(self, content: bytes | str) -> dict[str, Any]:
        self._bytes += len(content)
        if self._bytes > ANSWER_BYTES_MAX:
            raise BadAnswer(f"an answer of more than {ANSWER_BYTES_MAX:,} bytes")
        try:
            chunk = msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadAnswer(f"a piece of the answer is not JSON: {error}") from error
        if not isinstance(chunk, dict):
            raise BadAnswer("a piece of the answer is no JSON object")
        if chunk.get("error"):
            raise error_of(200, chunk)
        return chunk

    def _choice(self, chunk: dict[str, Any]) -> dict[str, Any]:
        """Return the first choice, and keep what stands beside it."""
        usage, model = chunk.get("usage"), chunk.get("model")
        if isinstance(usage, dict):
            counts = (usage.get("prompt_tokens"), usage.get("completion_tokens"))
            self._known["usage"] = Usage(*(n if isinstance(n, int) else 0 for n in counts))
        if isinstance(model, str):
            self._known["model"] = model
        choices = chunk.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else {}
        choice: dict[str, Any] = first if isinstance(first, dict) else {}
        if isinstance(choice.get("finish_reason"), str):
            self._known["finish_reason"] = choice["finish_reason"]
            self.is_complete = True
        return choice

    def _add(self, said: dict[str, Any]) -> Delta | None:
        text = said.get("content")
        thought = said.get("reasoning_content") or said.get("reasoning")
        for call in said.get("tool_calls") or ():
            self._add_tool_call(call)
        delta = Delta(
            text if isinstance(text, str) else "", thought if isinstance(thought, str) else ""
        )
        if not delta.text and not delta.reasoning:
            return None
        self._texts.append(delta.text)
        self._reasoning.append(delta.reasoning)
        return delta

    def _add_tool_call(self, piece: dict[str, Any]) -> None:
        """Join a piece of a tool call to what came of it: its arguments come letter by letter."""
        index = piece.get("index", len(self._tool_calls))
        kept = self._tool_calls.setdefault(index, {"id": None, "type": "function", "function": {}})
        kept["id"] = piece.get("id") or kept["id"]
        function = piece.get("function") or {}
        for name in ("name", "arguments"):
            if isinstance(function.get(name), str):
                kept["function"][name] = kept["function"].get(name, "") + function[name]


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
