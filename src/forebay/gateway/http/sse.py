"""Responses that last: server-sent events, and work that ends when the client disconnects."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.responses import Response, StreamingResponse

from forebay.gateway.errors.http_error import HttpError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from contextlib import AbstractContextManager

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

T = TypeVar("T")

EVENTS: Final = "text/event-stream"
STREAM_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
"""No cache may keep them, and no proxy may buffer them."""


class EventStreamResponse(StreamingResponse):
    """A stream of server-sent events; what is `held`, is from the start to the very end."""

    def __init__(
        self,
        events: AsyncIterator[bytes],
        *held: AbstractContextManager[object],
    ) -> None:
        self._held = held
        super().__init__(events, media_type=EVENTS, headers=STREAM_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until they end, or the client disconnects."""
        with ExitStack() as stack:
            for one in self._held:
                stack.enter_context(one)
            await super().__call__(scope, receive, send)


def head_response(request: Request) -> Response | None:
    """Return the response to HEAD, None for other methods: a stream would never end."""
    if request.method != "HEAD":
        return None
    return Response(headers=STREAM_HEADERS, media_type=EVENTS)


async def while_connected(
    request: Request, work: Coroutine[Any, Any, T], code: str = "request_timeout"
) -> T:
    """Return the result of `work`; cancel it when the client disconnects, counted as `code`.

    The body has been read before.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise HttpError(code, "the client left")
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
