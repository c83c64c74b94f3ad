"""A chat that knows where it stands in line: one stream of news and text from two sources.

The answer's own stream says nothing before the gateway's first keep-alive (15 s by default), so
while nothing has come the place is asked for once a second, by the request's own id. A 404 there is
no error: the request may not have arrived yet, or be done.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple

from forebay.sdk.answering import Answering
from forebay.sdk.errors import GatewayAway, SdkError
from forebay.sdk.transport import Call
from forebay.sdk.values import Answer, Done, Piece, Place, Queued, Started
from forebay.sse import SseComment

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from forebay.sdk.transport import Transport
    from forebay.sdk.values import Prompt

ROUTE = "/v1/chat/completions"
LOOK_EVERY_S = 1.0
PIECES_HELD_MAX = 64
"""What may be read ahead of the caller; then the network is not read any further."""


class ChatRequest(NamedTuple):
    """What is asked for."""

    model: str
    messages: Prompt
    priority: str | None
    max_wait_s: float | None
    params: Mapping[str, Any]

    def call(self, request_id: str) -> Call:
        """Return it as it is sent."""
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
        return Call("POST", ROUTE, body, headers)


def messages_of(prompt: Prompt) -> list[Any]:
    """Return messages as they are sent: a plain text is what the user says."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)


def waiting_headers(priority: str | None, max_wait_s: float | None = None) -> dict[str, str]:
    """Return the headers that say how a request should wait."""
    headers = {} if priority is None else {"x-forebay-priority": priority}
    if max_wait_s is not None:
        headers["x-forebay-max-wait"] = f"{max_wait_s:g}"
    return headers


class Chat:
    """One request and its answer."""

    def __init__(self, transport: Transport, request: ChatRequest) -> None:
        self._transport = transport
        self._request = request
        self._id = f"sdk-{secrets.token_hex(12)}"
        self._answering = Answering()
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

    async def _read(self, call: Call, looking: asyncio.Task[None]) -> Answer:
        async with self._transport.opened(call) as response:
            looking.cancel()
            self._tell(self._answering.note_headers(response.headers))
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                await self._read_stream(response)
            else:
                whole = await self._transport.read(response)
                await self._put(self._answering.take_whole(whole))
        return self._answering.answer()

    async def _read_stream(self, response: Any) -> None:
        async with aclosing(self._transport.events(response)) as coming:
            async for found in coming:
                if isinstance(found, SseComment):
                    self._tell(self._answering.note_comment(found.text))
                else:
                    await self._put(self._answering.take_chunk(found.data))
        if not self._answering.is_complete:
            raise GatewayAway("the answer broke off before its end", sent=True)

    async def _look(self) -> None:
        """Ask for the place until there is something better to tell."""
        while True:
            await self._transport.pause(LOOK_EVERY_S)
            try:
                place = await self._transport.get(f"/v1/queue/{self._id}", Place)
            except SdkError:
                continue
            if place.position is not None:
                self._answering.note_place(place.position)
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
