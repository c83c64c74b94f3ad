"""HTTP to one gateway: requests with their retries, streams, and every failure given a name.

Nothing of a proxy in the environment is asked: a gateway on this machine is not behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

import httpx
import msgspec

from forebay.sdk.errors import (
    BadAnswer,
    ClientClosed,
    GatewayAway,
    GatewayError,
    PromptQueueFullError,
    error_of,
)
from forebay.sdk.pace import LoopPace, Pace
from forebay.sdk.retrying import is_worth_retrying, pause_s, retry_after_s
from forebay.sdk.tasks import Tasks
from forebay.sse import EVENT_BYTES_MAX, BadStream, SseParser

if TYPE_CHECKING:
    import random
    import ssl
    from collections.abc import AsyncIterator, Mapping

    from forebay.sse import SseComment, SseEvent

T = TypeVar("T")

BODY_BYTES_MAX = 64 * 1024 * 1024
"""A whole answer: a job may hold 8 MiB of params and 16 MiB of result, and text grows in JSON."""
CONNECTIONS_MAX = 1000
"""Each session that is followed holds one."""
CONNECT_S = 5.0
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class Upload(NamedTuple):
    """A file for `/v1/files`."""

    name: str
    content: IO[bytes]
    purpose: str = "batch"


class Call(NamedTuple):
    """One request."""

    method: str
    path: str
    body: object = None
    """Sent as JSON."""
    headers: Mapping[str, str] = {}
    upload: Upload | None = None
    read_s: float | None = None
    """Longest silence of the network; the client's `timeout_s` where None."""
    is_repeatable: bool = False
    """Whether sending it twice does no harm, so that a lost answer may be asked for again."""


class Reach(NamedTuple):
    """Where the gateway is, and how patient to be."""

    url: str
    key: str | None
    timeout_s: float
    retries: int
    retry_queue_full: bool
    verify: bool | ssl.SSLContext


class Transport:
    """Asks one gateway."""

    def __init__(self, reach: Reach, random: random.Random, pace: Pace | None = None) -> None:
        self._reach = reach
        self._random = random
        self.pace = pace or LoopPace()
        self.tasks = Tasks()
        self.is_closed = False
        headers = {"accept-encoding": "identity", "user-agent": "forebay-sdk"}
        if reach.key and not (reach.key.isascii() and reach.key.isprintable()):
            raise ValueError("key: holds what no header can")  # and a later error would show it
        if reach.key:
            headers["authorization"] = f"Bearer {reach.key}"
        self._http = httpx.AsyncClient(
            base_url=reach.url,
            headers=headers,
            timeout=httpx.Timeout(reach.timeout_s, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=CONNECTIONS_MAX),
            verify=reach.verify,
            trust_env=False,
        )

    async def close(self) -> None:
        """End every task and connection; what is being waited for raises ClientClosed."""
        self.is_closed = True
        await self.tasks.end_all()
        await self._http.aclose()

    async def get(self, path: str, kind: type[T]) -> T:
        """Return what is there; raises SdkError."""
        return await self.ask(Call("GET", path, is_repeatable=True), kind)

    async def ask(self, call: Call, kind: type[T]) -> T:
        """Return the answer as a value of this kind; raises SdkError."""
        _, _, content = await self.fetch(call)
        return decoded(content, kind)

    async def fetch(self, call: Call) -> tuple[int, httpx.Headers, bytes]:
        """Return status, headers and body, whole; raises SdkError."""
        async with self.opened(call) as response:
            return response.status_code, response.headers, await self.read(response)

    @asynccontextmanager
    async def opened(self, call: Call) -> AsyncIterator[httpx.Response]:
        """Send a request, again where that is allowed, and hand out the answer, unread."""
        response = await self._answered(call)
        try:
            yield response
        finally:
            await response.aclose()

    async def read(self, response: httpx.Response) -> bytes:
        """Return the rest of an answer; raises BadAnswer where it is too long."""
        pieces, size = [], 0
        async with aclosing(self.pieces(response)) as coming:
            async for piece in coming:
                pieces.append(piece)
                size += len(piece)
                if size > BODY_BYTES_MAX:
                    raise BadAnswer(f"an answer of more than {BODY_BYTES_MAX:,} bytes")
        return b"".join(pieces)

    async def pieces(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        """Yield an answer as it comes; raises GatewayAway where it breaks off."""
        try:
            async with aclosing(_generator(response.aiter_raw())) as coming:
                async for piece in coming:
                    yield piece
        except httpx.TransportError as error:
            raise self._away(error, sent=True) from error

    async def events(
        self, response: httpx.Response, bytes_max: int = EVENT_BYTES_MAX
    ) -> AsyncGenerator[SseEvent | SseComment, None]:
        """Yield an event stream's events and comments; raises GatewayAway and BadAnswer."""
        parser = SseParser(bytes_max)
        async with aclosing(self.pieces(response)) as coming:
            try:
                async for piece in coming:
                    for found in parser.feed(piece):
                        yield found
            except BadStream as error:
                raise BadAnswer(str(error)) from None

    async def pause(self, seconds: float) -> None:
        """Let time pass; raises ClientClosed as soon as the client is closed."""
        sleeping = self.tasks.start(self.pace.sleep(seconds))
        try:
            await asyncio.wait({sleeping})
        finally:
            sleeping.cancel()
        self.check_open()

    def check_open(self) -> None:
        """Raise ClientClosed once it is."""
        if self.is_closed:
            raise ClientClosed("the client is closed")

    # -- inside

    async def _answered(self, call: Call) -> httpx.Response:
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._attempt(call)
            except (GatewayAway, GatewayError) as problem:
                wait_s = self._pause_before_repeat(call, problem, attempt)
                if wait_s is None:
                    raise
            await self.pause(wait_s)

    def _pause_before_repeat(
        self, call: Call, problem: GatewayAway | GatewayError, attempt: int
    ) -> float | None:
        """Return how long to wait before the next attempt; None where there must be none."""
        if attempt > self._reach.retries:
            return None
        if isinstance(problem, GatewayAway):
            allowed, asked_s = call.is_repeatable or not problem.sent, None
        else:
            allowed, asked_s = self._may_repeat(problem), problem.retry_after_s
        return pause_s(attempt, asked_s, self._random) if allowed else None

    async def _attempt(self, call: Call) -> httpx.Response:
        self.check_open()
        try:
            response = await self._http.send(self._request(call), stream=True)
        except NEVER_SENT as error:
            raise self._away(error, sent=False) from error
        except httpx.TransportError as error:
            raise self._away(error, sent=True) from error
        except httpx.InvalidURL as error:  # an id, from the gateway or not, that fits no path
            raise BadAnswer(f"an address that cannot be asked: {error}") from error
        if response.status_code < 300:
            return response
        try:
            content = await self.read(response)
        finally:
            await response.aclose()
        raise _error(response, content)

    def _request(self, call: Call) -> httpx.Request:
        headers = dict(call.headers)
        content = None
        if call.body is not None:
            content = msgspec.json.encode(call.body)
            headers["content-type"] = "application/json"
        timeout_s = call.read_s or self._reach.timeout_s
        form: dict[str, Any] = {}
        if call.upload is not None:
            call.upload.content.seek(0)  # it may be sent for the second time
            form = {
                "data": {"purpose": call.upload.purpose},
                "files": {"file": (call.upload.name, call.upload.content)},
            }
        return self._http.build_request(
            call.method,
            call.path,
            content=content,
            **form,
            headers=headers,
            timeout=httpx.Timeout(timeout_s, connect=CONNECT_S),
        )

    def _may_repeat(self, refused: GatewayError) -> bool:
        if isinstance(refused, PromptQueueFullError):
            return self._reach.retry_queue_full
        return refused.may_retry

    def _away(self, error: httpx.TransportError, *, sent: bool) -> Exception:
        if self.is_closed:
            return ClientClosed("the client was closed while it waited")
        reason = str(error) or type(error).__name__
        return GatewayAway(f"no gateway answers at {self._reach.url} ({reason})", sent=sent)


def _generator(coming: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Return it as what it is, so that it can be closed: httpx promises less than it gives."""
    assert isinstance(coming, AsyncGenerator)
    return coming


def _error(response: httpx.Response, content: bytes) -> GatewayError:
    try:
        body: Any = msgspec.json.decode(content)
    except msgspec.DecodeError:
        body = None
    error = error_of(response.status_code, body)
    error.retry_after_s = retry_after_s(response.headers) or error.retry_after_s
    error.request_id = response.headers.get("x-request-id")
    error.may_retry = is_worth_retrying(response.status_code, response.headers)
    return error


def decoded(content: bytes | str, kind: type[T]) -> T:
    """Return JSON as a value of this kind; raises BadAnswer."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadAnswer(f"what answers is not a Forebay gateway: {error}") from error
