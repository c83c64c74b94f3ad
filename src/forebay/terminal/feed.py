"""Reading `GET /events`, over as many connections as it takes.

A connection that breaks, or falls silent, is made again after a pause that grows from PAUSE_S to
PAUSE_S_MAX, with chance in it so that many views do not come back at one moment. Nothing is kept
between connections: each begins with `hello`, which brings the last quarter of an hour.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol

from forebay.api.queue import ListedRequest, RequestList
from forebay.sdk.errors import (
    BadAnswer,
    GatewayAway,
    GatewayError,
    NotFound,
    SdkError,
    is_about_the_key,
)
from forebay.sdk.status import read_hello, read_snapshot
from forebay.sdk.transport import ApiCall, Transport, TransportOptions
from forebay.sse import SseEvent

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator

    from forebay.api.events import DashboardSnapshot, Hello
    from forebay.sdk.transport import Pace

PATH = "/events"
REQUESTS = "/v1/queue/requests"
REQUESTS_MAX = 200
"""Of each state: more than anybody looks through; a filter is for the rest."""
SILENCE_S = 10.0
"""A snapshot comes every half second; after twenty that did not, the line is dead."""
ASK_S = 10.0
"""For what is asked besides: a gateway answers it from memory."""
PAUSE_S, PAUSE_S_MAX = 0.5, 5.0
EVENT_BYTES_MAX = 4 * 1024 * 1024
"""One snapshot: some hundred bytes for each node and model."""


class Listener(Protocol):
    """The receiver of the events."""

    def take_hello(self, hello: Hello) -> None: ...

    def take_snapshot(self, snapshot: DashboardSnapshot) -> None: ...

    def lose(self, reason: str) -> None: ...


class GaveUp(Exception):
    """There is nothing to look at; the text says why and what to do about it."""

    def __init__(self, message: str, *, is_away: bool, is_about_the_key: bool = False) -> None:
        super().__init__(message)
        self.is_away = is_away
        """Whether nothing answers, as opposed to a no."""
        self.is_about_the_key = is_about_the_key
        """Whether another key may help."""


class Feed:
    """One gateway, as seen through its events."""

    def __init__(
        self,
        url: str,
        key: str | None,
        random: random.Random,
        pace: Pace | None = None,
        silence_s: float = SILENCE_S,
    ) -> None:
        self.url = url
        self._has_key = key is not None
        self._random = random
        self._silence_s = silence_s
        self._transport = Transport(TransportOptions(url, key, ASK_S), random, pace)

    async def close(self) -> None:
        await self._transport.close()

    async def first(self) -> tuple[Hello, DashboardSnapshot, str]:
        """Return the first event, and the first snapshot, also as it came; raises GaveUp."""
        hello = None
        try:
            async with aclosing(self._frames()) as frames:
                async for frame in frames:
                    if frame.event == "hello":
                        hello = read_hello(frame.data)
                    elif frame.event == "snapshot" and hello is not None:
                        return hello, read_snapshot(frame.data), frame.data
            raise GatewayAway("it closed the stream before the first event", sent=True)
        except SdkError as problem:
            raise self._gave_up(problem) from problem

    async def run(self, listener: Listener) -> None:
        """Read for ever; raises GaveUp only where nothing was ever heard."""
        was_live, pause_s = False, PAUSE_S
        while True:
            try:
                async with aclosing(self._frames()) as frames:
                    async for frame in frames:
                        if frame.event == "hello":
                            listener.take_hello(read_hello(frame.data))
                        elif frame.event == "snapshot":  # later versions may send others
                            listener.take_snapshot(read_snapshot(frame.data))
                            was_live, pause_s = True, PAUSE_S
                problem: SdkError = GatewayAway("the gateway ended the connection", sent=True)
            except SdkError as error:
                problem = error
            if not was_live:
                raise self._gave_up(problem) from problem
            listener.lose(self.in_words(problem))
            await self._transport.pause(pause_s * self._random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, PAUSE_S_MAX)

    async def tell(self, path: str, method: str = "POST") -> dict[str, object]:
        """Have something done and return the answer; raises GaveUp."""
        try:
            return await self._transport.ask(ApiCall(method, path), dict[str, object])
        except SdkError as problem:
            raise self._gave_up(problem) from problem

    async def requests(self) -> list[ListedRequest]:
        """Return what runs and who waits, those who came first first; raises GaveUp."""
        found: list[ListedRequest] = []
        try:
            for state in ("running", "waiting"):
                path = f"{REQUESTS}?state={state}&limit={REQUESTS_MAX}"
                page = await self._transport.get(path, RequestList)
                found += sorted(page.data, key=lambda one: (one.position or 0, one.arrived))
        except SdkError as problem:
            raise self._gave_up(problem) from problem
        return found

    def in_words(self, problem: Exception) -> str:
        """Return what went wrong, and what to do about it where that is known."""
        if isinstance(problem, GatewayError) and is_about_the_key(problem):
            key = "another key" if self._has_key else "a key"
            return f"{_refusal(problem)} Name {key} with --key-env VAR."
        if isinstance(problem, NotFound):
            return (
                f"the gateway at {self.url} has no {PATH}: it is older than this command, or not a "
                "Forebay gateway. Update it, or name another with --url; forebay status may work."
            )
        if isinstance(problem, BadAnswer):
            return f"what answers at {self.url} is not a Forebay gateway. Name it with --url."
        if isinstance(problem, GatewayError):
            return f"{_refusal(problem)} {problem.hint}".rstrip()
        return f"{problem}."

    # -- inside

    async def _frames(self) -> AsyncGenerator[SseEvent, None]:
        """Yield events over one connection; raises SdkError, for silence too."""
        call = ApiCall("GET", PATH, headers={"accept": "text/event-stream"}, read_s=self._silence_s)
        async with self._transport.opened(call) as response:
            kind = response.headers.get("content-type", "")
            if not kind.startswith("text/event-stream"):
                raise BadAnswer(f"no events but {kind or 'something'}")
            async with aclosing(self._transport.events(response, EVENT_BYTES_MAX)) as coming:
                async for found in coming:
                    if isinstance(found, SseEvent):
                        yield found

    def _gave_up(self, problem: Exception) -> GaveUp:
        is_away = isinstance(problem, GatewayAway)
        hint = " Start one with: forebay serve. Or name it with --url." if is_away else ""
        about_key = is_about_the_key(problem)
        return GaveUp(self.in_words(problem) + hint, is_away=is_away, is_about_the_key=about_key)


def _refusal(problem: GatewayError) -> str:
    return f"the gateway says: {problem.message.rstrip('.')} ({problem.code})."
