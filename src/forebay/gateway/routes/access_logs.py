"""`/admin/logs`: the access log as it grows, for operators who follow it.

One more reader of the stream of ended requests. While nobody follows, a batch costs one look at an
empty set. A follower who reads too slowly loses lines, and is told how many.

Each process knows only its own requests: the one that is asked follows the others, with the
caller's own key, and merges their lines with its own. Those that do not answer are named.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.requests import Request
from starlette.routing import Route

from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.hot.access_record import AccessRecord
from forebay.gateway.hot.ended import EndedBatch
from forebay.gateway.http.sse import EventStreamResponse, head_response
from forebay.shares import LOG_STREAMS, Places
from forebay.sse import BadStream, SseComment, SseParser

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from typing import Self

    from starlette.responses import Response

    from forebay.coordination import Fleet
    from forebay.gateway.fleet.membership import Membership
    from forebay.gateway.fleet.peers import Peers
    from forebay.gateway.hot.ended_stream import EndedStream
    from forebay.gateway.hot.record_maker import RecordMaker
    from forebay.gateway.http.authorization import Authorizer
    from forebay.sse import SseEvent

LINES_MAX: Final = 1000
"""Lines that wait for a follower, and those that are made of one batch at most."""
KEEPALIVE_S: Final = 15.0
MERGE_S: Final = 0.3
"""How long a line waits for older ones of other processes; each tells of its own every 0.1 s."""
PEER_S: Final = 2.0
"""How long another process may take to begin."""
LOOK_S: Final = 1.0
"""How often those that are not followed are tried again."""
PEERS_MAX: Final = 64
EVENT_BYTES_MAX: Final = 65_536


class LogCoverage(msgspec.Struct, frozen=True):
    """Whose lines a follower gets."""

    processes: int = 1
    """Gateways or workers that share the queue."""
    incomplete: list[str] = []
    """Those of them that do not answer."""


class LostLines(msgspec.Struct, frozen=True):
    """How many lines a reader has lost, because they came faster than it read them."""

    lines: int


class LogFollower:
    """The lines that one reader has not read yet."""

    def __init__(self, feed: LogFeed) -> None:
        self._feed = feed
        self._lines: list[AccessRecord] = []
        self._lost = 0
        self._news = asyncio.Event()
        self._coverage = self._told = LogCoverage()

    def put(self, records: list[AccessRecord], lost: int) -> None:
        """Take lines; the oldest are dropped where they are too many."""
        self._lines += records
        over = max(0, len(self._lines) - LINES_MAX)
        del self._lines[:over]
        self._lost += lost + over
        self._news.set()

    def cover(self, coverage: LogCoverage) -> None:
        """Take whose lines there are from now on."""
        self._coverage = coverage
        if coverage != self._told:
            self._news.set()

    def hello(self) -> bytes:
        """Return the first event."""
        self._told = self._coverage
        return _event("hello", self._told)

    async def next(self) -> bytes:
        """Return events of all that has come; a comment where nothing comes for a while."""
        try:
            async with asyncio.timeout(KEEPALIVE_S):
                await self._news.wait()
        except TimeoutError:
            return b": still here\n\n"
        self._news.clear()
        due = self._lines
        if self._coverage.processes > 1:
            due = await self._merged()
        else:
            self._lines = []
        events = [_event("request", line) for line in due]
        if self._lost:
            events.insert(0, _event("lost", LostLines(self._lost)))
            self._lost = 0
        if self._coverage != self._told:
            self._told = self._coverage
            events.insert(0, _event("incomplete", self._told))
        return b"".join(events)

    async def _merged(self) -> list[AccessRecord]:
        """Return what no line of another process should precede any more, in order of time."""
        newest = max((line.time for line in self._lines), default="")
        await asyncio.sleep(MERGE_S)
        due = sorted((line for line in self._lines if line.time <= newest), key=_time)
        self._lines = [line for line in self._lines if line.time > newest]
        if self._lines:
            self._news.set()
        return due

    def close(self) -> None:
        """Take no more lines."""
        self._feed.followers.discard(self)


class LogFeed:
    """The followers of the access log."""

    def __init__(self, ended: EndedStream, maker: RecordMaker) -> None:
        self._maker = maker
        self.followers: set[LogFollower] = set()
        ended.read_by(self._take)

    def follow(self) -> LogFollower:
        """Return a new follower; whoever has it must close it."""
        follower = LogFollower(self)
        self.followers.add(follower)
        return follower

    def _take(self, batch: EndedBatch) -> None:
        if not self.followers:
            return
        lost = max(0, len(batch.requests) - LINES_MAX)
        if lost:  # the event loop makes these lines, so there is a limit to them
            batch = EndedBatch(batch.requests[lost:], batch.time, batch.clock_offset_s)
        records = self._maker.records(batch)
        for follower in self.followers:
            follower.put(records, lost)


class PeerLogs:
    """Follows the other processes for one reader, from `__enter__` to `__exit__`."""

    def __init__(
        self, follower: LogFollower, request: Request, fleet: Fleet | None, peers: Peers
    ) -> None:
        """`fleet` is None where there is nobody else to follow."""
        self._follower = follower
        self._fleet = fleet
        self._peers = peers
        self._question = Request({**request.scope, "query_string": b"own=true"})
        self._others: list[str] = []
        self._answers: dict[str, bool] = {}
        self._task: asyncio.Task[None] | None = None
        self.begun = asyncio.Event()
        """Set when each of the others has answered, or has not in time."""

    def __enter__(self) -> Self:
        if self._fleet is None:
            self.begun.set()
        else:
            self._task = asyncio.get_running_loop().create_task(self._run(self._fleet))
        return self

    def __exit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
        self._follower.close()

    async def _run(self, fleet: Fleet) -> None:
        readers: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                others = [one for one in fleet.picture().replicas if one.name != fleet.me]
                self._others = [one.name for one in others]
                there = {one.name for one in others[:PEERS_MAX] if one.state != "lost"}
                for name in readers.keys() - there:
                    readers.pop(name).cancel()
                for name in self._others:
                    if name not in there:
                        self._answers[name] = False
                    elif name not in readers or readers[name].done():
                        readers[name] = group.create_task(self._read(name))
                self._cover()
                await asyncio.sleep(LOOK_S)

    async def _read(self, name: str) -> None:
        """Pass on the lines of one process until it ends, or fails."""
        parser = SseParser(EVENT_BYTES_MAX)
        try:
            async with self._peers.opened(self._question, name, b"", PEER_S) as response:
                if response.begun.result().status == 200:
                    self._mark(name, answers=True)
                    async for data in response:
                        self._take(parser.feed(data))
        except (HttpError, BadStream, msgspec.MsgspecError):
            pass  # it is tried again
        self._mark(name, answers=False)

    def _take(self, events: Iterable[SseEvent | SseComment]) -> None:
        records, lost = [], 0
        for event in events:
            if isinstance(event, SseComment):
                continue
            if event.event == "request":
                records.append(_record(event.data))
            elif event.event == "lost":
                lost += _lost(event.data).lines
        if records or lost:
            self._follower.put(records, lost)

    def _mark(self, name: str, *, answers: bool) -> None:
        self._answers[name] = answers
        self._cover()

    def _cover(self) -> None:
        others, answers = self._others, self._answers
        silent = [name for name in others if answers.get(name) is False]
        self._follower.cover(LogCoverage(1 + len(others), silent))
        if answers.keys() >= set(others):
            self.begun.set()


@dataclass(frozen=True)
class AccessLogRoutes:
    """`/admin/logs`."""

    authorizer: Authorizer
    feed: LogFeed
    membership: Membership
    peers: Peers
    _streams: Places = field(default_factory=lambda: Places(LOG_STREAMS))

    def routes(self) -> list[Route]:
        return [Route("/admin/logs", self.follow)]

    async def follow(self, request: Request) -> Response:
        """Stream a line for each request that ends from now on."""
        caller = self.authorizer.admin(request)
        if (head := head_response(request)) is not None:
            return head
        place = self.authorizer.place(caller.owner_id, self._streams)
        is_peer = request.query_params.get("own") == "true"
        follower = self.feed.follow()
        fleet = None if is_peer else self.membership.fleet
        gathered = PeerLogs(follower, request, fleet, self.peers)

        async def events() -> AsyncIterator[bytes]:
            generation = self.authorizer.keys_generation
            await gathered.begun.wait()
            yield follower.hello()
            while True:
                event = await follower.next()
                if generation != self.authorizer.keys_generation:  # a key may have been revoked
                    generation = self.authorizer.keys_generation
                    if not self.authorizer.is_admin(request):
                        return
                yield event

        return EventStreamResponse(events(), place, gathered)


_encode = msgspec.json.Encoder().encode
_record = msgspec.json.Decoder(AccessRecord).decode
_lost = msgspec.json.Decoder(LostLines).decode


def _event(name: str, data: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode(data))


def _time(line: AccessRecord) -> str:
    return line.time
