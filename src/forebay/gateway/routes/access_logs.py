"""`/admin/logs`: the access log as it grows, for operators who follow it.

One more reader of the stream of ended requests. While nobody follows, a batch costs one look at an
empty set. A follower who reads too slowly loses lines, and is told how many.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.routing import Route

from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.http.sse import EventStreamResponse, head_response

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Self

    from starlette.requests import Request
    from starlette.responses import Response

    from forebay.gateway.hot.access_record import AccessRecord, RecordMaker
    from forebay.gateway.hot.ended import EndedBatch
    from forebay.gateway.hot.ended_stream import EndedStream
    from forebay.gateway.http.authorization import Authorizer

FOLLOWERS_MAX: Final = 16
LINES_MAX: Final = 1000
"""Lines that wait for a follower, and those that are made of one batch at most."""
KEEPALIVE_S: Final = 15.0


class LogFollower:
    """The lines that one reader has not read yet."""

    def __init__(self, feed: LogFeed) -> None:
        self._feed = feed
        self._lines: deque[AccessRecord] = deque()
        self._lost = 0
        self._news = asyncio.Event()

    def put(self, records: list[AccessRecord], lost: int) -> None:
        """Take lines; the oldest are dropped where they are too many."""
        self._lines += records
        over = max(0, len(self._lines) - LINES_MAX)
        for _ in range(over):
            self._lines.popleft()
        self._lost += lost + over
        self._news.set()

    async def next(self) -> bytes:
        """Return events of all that has come; a comment where nothing comes for a while."""
        try:
            async with asyncio.timeout(KEEPALIVE_S):
                await self._news.wait()
        except TimeoutError:
            return b": still here\n\n"
        self._news.clear()
        lines, lost = self._lines, self._lost
        self._lines, self._lost = deque(), 0
        told = b'event: lost\ndata: {"lines":%d}\n\n' % lost if lost else b""
        return told + b"".join(b"event: request\ndata: %b\n\n" % _encode(line) for line in lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._feed.followers.discard(self)


class LogFeed:
    """All who follow the access log."""

    def __init__(self, ended: EndedStream, maker: RecordMaker) -> None:
        self._maker = maker
        self.followers: set[LogFollower] = set()
        ended.read_by(self._take)

    def follow(self) -> LogFollower:
        """Return a new follower, to be used as a context manager."""
        follower = LogFollower(self)
        self.followers.add(follower)
        return follower

    def _take(self, batch: EndedBatch) -> None:
        if not self.followers:
            return
        lost = max(0, len(batch.requests) - LINES_MAX)
        if lost:  # the event loop makes these lines, so there is a limit to them
            batch = msgspec.structs.replace(batch, requests=batch.requests[lost:])
        records = self._maker.records(batch)
        for follower in self.followers:
            follower.put(records, lost)


@dataclass(frozen=True)
class AccessLogRoutes:
    """`/admin/logs`."""

    authorizer: Authorizer
    feed: LogFeed
    workers: int
    """Processes that share the port; each knows of its own requests only."""

    def routes(self) -> list[Route]:
        return [Route("/admin/logs", self.follow)]

    async def follow(self, request: Request) -> Response:
        """Stream a line for each request that ends from now on."""
        self.authorizer.admin(request)
        if (head := head_response(request)) is not None:
            return head
        if len(self.feed.followers) >= FOLLOWERS_MAX:
            words = f"{FOLLOWERS_MAX} follow the log of this gateway already"
            raise HttpError("too_many_connections", words)
        follower = self.feed.follow()

        async def events() -> AsyncIterator[bytes]:
            generation = self.authorizer.keys_generation
            yield b'event: hello\ndata: {"workers":%d}\n\n' % self.workers
            while True:
                event = await follower.next()
                if generation != self.authorizer.keys_generation:  # a key may have been revoked
                    generation = self.authorizer.keys_generation
                    if not self.authorizer.is_admin(request):
                        return
                yield event

        return EventStreamResponse(events(), follower)


_encode = msgspec.json.Encoder().encode
