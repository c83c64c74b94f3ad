"""HTTP to one gateway: requests with their retries, streams, and named failures.

Nothing of a proxy in the environment is asked: a gateway on this machine is not behind it.

Repeated is only what was certainly not taken: a connection that was never made, or an answer that
says so. `x-should-retry` is obeyed first, then 429 and 503 count as "later". The pause is what
`retry-after-ms` or `Retry-After` says and up to a quarter more, never less: many clients are
refused at the same moment, and must not all come back at the same moment. Where nothing is said it
doubles from half a second, as the stock SDKs do. A request that is repeated
has the same body, by which the gateway knows it again and gives it its old arrival number.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from urllib.parse import urlencode

import httpx
import msgspec

from forebay.sdk.errors import (
    BadAnswer,
    Busy,
    ClientClosed,
    GatewayAway,
    GatewayError,
    NodeFailed,
    PromptQueueFullError,
    error_of,
)
from forebay.sse import EVENT_BYTES_MAX, BadStream, SseParser

if TYPE_CHECKING:
    import random
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
    from datetime import datetime

    from forebay.sdk.errors import SdkError
    from forebay.sse import SseComment, SseEvent

T = TypeVar("T")

BODY_BYTES_MAX = 64 * 1024 * 1024
"""A whole answer: a job may hold 8 MiB of params and 16 MiB of result, and text grows in JSON."""
CONNECTIONS_MAX = 1000
"""Each session that is followed holds one."""
CONNECT_S = 5.0
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
RETRY_AFTER_S_MAX = 120.0
"""The gateway never asks for more; who does is told to the caller instead of being waited for."""
JITTER = 0.25
PAUSE_S, PAUSE_S_MAX = 0.5, 8.0
LATER = (429, 503)
PASSING = (GatewayAway, Busy, NodeFailed)
"""After these, asking again later may help."""
AWAY_PAUSE_S_MAX = 15.0
AWAY_S_MAX = 600.0
"""Longer than a restart with a large model to load; shorter than a night."""


class FileUpload(NamedTuple):
    """A file for `/v1/files`."""

    name: str
    content: IO[bytes]
    purpose: str = "batch"


class ApiCall(NamedTuple):
    """One request."""

    method: str
    path: str
    body: object = None
    """Sent as JSON."""
    headers: Mapping[str, str] = {}
    upload: FileUpload | None = None
    read_s: float | None = None
    """Longest silence of the network; the client's `timeout_s` where None."""
    is_repeatable: bool = False
    """Whether sending it twice does no harm, so that a lost answer may be asked for again."""


class TransportOptions(NamedTuple):
    """Where the gateway is, and how patient to be."""

    url: str
    key: str | None
    timeout_s: float
    retries: int = 0
    retry_queue_full: bool = False
    verify: bool | ssl.SSLContext = True


class Transport:
    """Asks one gateway."""

    def __init__(
        self, options: TransportOptions, random: random.Random, pace: Pace | None = None
    ) -> None:
        self._options = options
        self._random = random
        self.pace = pace or LoopPace()
        self.tasks = Tasks()
        self.is_closed = False
        headers = {"accept-encoding": "identity", "user-agent": "forebay-sdk"}
        if options.key and not (options.key.isascii() and options.key.isprintable()):
            raise ValueError(
                "key: contains characters that a header cannot contain"
            )  # and a later error would show it
        if options.key:
            headers["authorization"] = f"Bearer {options.key}"
        self._http = httpx.AsyncClient(
            base_url=options.url,
            headers=headers,
            timeout=_timeout(options.timeout_s),
            limits=httpx.Limits(max_connections=CONNECTIONS_MAX),
            # The certificates take longer to read than a request takes: only where they are used.
            verify=options.verify if options.url.startswith("https") else False,
            trust_env=False,
        )

    async def close(self) -> None:
        """End every task and connection; what is being waited for raises ClientClosed."""
        self.is_closed = True
        await self.tasks.end_all()
        await self._http.aclose()

    async def get(self, path: str, kind: type[T]) -> T:
        return await self.ask(ApiCall("GET", path, is_repeatable=True), kind)

    async def ask(self, call: ApiCall, kind: type[T]) -> T:
        """Return the answer as a value of this kind; raises SdkError."""
        _, _, content = await self.fetch(call)
        return decoded(content, kind)

    async def fetch(self, call: ApiCall) -> tuple[int, httpx.Headers, bytes]:
        """Return status, headers and body, whole; raises SdkError."""
        async with self.opened(call) as response:
            return response.status_code, response.headers, await self.read(response)

    @asynccontextmanager
    async def opened(self, call: ApiCall) -> AsyncIterator[httpx.Response]:
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
            what = f"the gateway at {self._options.url} broke off its answer"
            raise self._away(what, error, sent=True) from error

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
        if self.is_closed:
            raise ClientClosed("the client is closed")

    def jittered(self, seconds: float) -> float:
        """Return a pause of which many clients do not come back at one moment."""
        return seconds * self._random.uniform(0.5, 1.0)

    # -- inside

    async def _answered(self, call: ApiCall) -> httpx.Response:
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
        self, call: ApiCall, problem: GatewayAway | GatewayError, attempt: int
    ) -> float | None:
        """Return how long to wait before the next attempt; None where there must be none."""
        if attempt > self._options.retries:
            return None
        if isinstance(problem, GatewayAway):
            allowed, asked_s = call.is_repeatable or not problem.sent, None
        else:
            allowed, asked_s = self._may_repeat(problem), problem.retry_after_s
        return pause_s(attempt, asked_s, self._random) if allowed else None

    async def _attempt(self, call: ApiCall) -> httpx.Response:
        self.check_open()
        nobody = f"no gateway answers at {self._options.url}"
        try:
            response = await self._http.send(self._request(call), stream=True)
        except NEVER_SENT as error:
            raise self._away(nobody, error, sent=False) from error
        except httpx.TransportError as error:
            raise self._away(nobody, error, sent=True) from error
        except httpx.InvalidURL as error:  # an id, from the gateway or not, that fits no path
            raise BadAnswer(f"an invalid address: {error}") from error
        if response.status_code < 300:
            return response
        try:
            content = await self.read(response)
        finally:
            await response.aclose()
        raise _error(response, content)

    def _request(self, call: ApiCall) -> httpx.Request:
        headers = dict(call.headers)
        content = None
        if call.body is not None:
            content = msgspec.json.encode(call.body)
            headers["content-type"] = "application/json"
        timeout_s = call.read_s or self._options.timeout_s
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
            timeout=_timeout(timeout_s),
        )

    def _may_repeat(self, refused: GatewayError) -> bool:
        if isinstance(refused, PromptQueueFullError):
            return self._options.retry_queue_full
        return refused.may_retry

    def _away(self, what: str, error: httpx.TransportError, *, sent: bool) -> Exception:
        if self.is_closed:
            return ClientClosed("the client was closed while it waited")
        return GatewayAway(f"{what} ({_reason(error)})", sent=sent)


def _timeout(seconds: float) -> httpx.Timeout:
    return httpx.Timeout(seconds, connect=min(seconds, CONNECT_S))


def _reason(error: BaseException) -> str:
    """Return why the network failed, as the operating system says it where it has a word."""
    if isinstance(error, httpx.TimeoutException):
        return "timed out"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno:
            # Those of name resolution are negative, and asyncio words the others in its own way.
            return os.strerror(cause.errno) if cause.errno > 0 else cause.strerror or str(cause)
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


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


def query(**given: object) -> str:
    """Return the query of an address, of what is given.

    >>> query(status="failed", model=None), query()
    ('?status=failed', '')
    """
    asked = urlencode({name: value for name, value in given.items() if value is not None})
    return f"?{asked}" if asked else ""


def decoded(content: bytes | str, kind: type[T]) -> T:
    """Return JSON as a value of this kind; raises BadAnswer."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadAnswer(
            f"the answer cannot be parsed: {error}; is this a Forebay gateway?"
        ) from error


def is_worth_retrying(status: int, headers: Mapping[str, str]) -> bool:
    """Say whether the same request may be taken later."""
    said = headers.get("x-should-retry", "").strip().lower()
    if said in ("true", "false"):
        return said == "true"
    return status in LATER


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return how long the server asks to be left alone, in seconds; None where it does not say.

    >>> retry_after_s({"retry-after-ms": "1500", "retry-after": "2"}), retry_after_s({})
    (1.5, None)
    >>> retry_after_s({"retry-after": "Wed, 21 Oct 2026 07:28:09 GMT",
    ...                "date": "Wed, 21 Oct 2026 07:28:00 GMT"})
    9.0
    """
    in_ms = _number(headers.get("retry-after-ms"))
    if in_ms is not None:
        return in_ms / 1000
    plain = headers.get("retry-after")
    in_s = _number(plain)
    if in_s is not None or plain is None:
        return in_s
    # A date, which proxies may send, is read against the sender's own clock.
    at, now = _moment(plain), _moment(headers.get("date"))
    return max(0.0, (at - now).total_seconds()) if at and now else None


def pause_s(attempt: int, asked_s: float | None, random: random.Random) -> float | None:
    """Return the pause before attempt 1, 2, ...; None where the server asks for too much."""
    if asked_s is None:
        longest_s: float = min(PAUSE_S * 2.0 ** (attempt - 1), PAUSE_S_MAX)
        return longest_s * random.uniform(0.5, 1.0)
    if asked_s > RETRY_AFTER_S_MAX:
        return None
    return asked_s * (1 + random.uniform(0.0, JITTER))


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _moment(text: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(text or "")
    except ValueError:
        return None


class Outage:
    """A gateway that is away for a while: pauses that double, and an end after AWAY_S_MAX.

    `on_change` is called with the reason when it goes away, and with None when it is back.
    """

    def __init__(
        self, transport: Transport, on_change: Callable[[SdkError | None], object] | None = None
    ) -> None:
        self._transport = transport
        self._on_change = on_change or (lambda _: None)
        self._since_s: float | None = None
        self._pause_s = PAUSE_S

    def end(self) -> None:
        """Note that the gateway answers."""
        if self._since_s is not None:
            self._on_change(None)
        self._since_s, self._pause_s = None, PAUSE_S

    async def wait(self, problem: SdkError) -> None:
        """Wait before the next attempt; raises the problem if it has lasted too long."""
        now_s = self._transport.pace.monotonic_s()
        if self._since_s is None:
            self._since_s = now_s
            self._on_change(problem)
        elif now_s - self._since_s >= AWAY_S_MAX:
            raise problem
        await self._transport.pause(self._transport.jittered(self._pause_s))
        self._pause_s = min(self._pause_s * 2, AWAY_PAUSE_S_MAX)

    async def until_answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return what `ask` does, asked again while the gateway is away; raises SdkError."""
        while True:
            try:
                answer = await ask()
            except PASSING as problem:
                await self.wait(problem)
            else:
                self.end()
                return answer


class Tasks:
    """Starts tasks, and ends those that are left."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[object]] = set()

    def start(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Start one; whoever wants its outcome awaits it."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def end(self, *tasks: asyncio.Task[T]) -> None:
        """Cancel these and return when they have ended; what they raise is their own affair."""
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def end_all(self) -> None:
        """Cancel all but the one that asks, and return when they have ended."""
        current = asyncio.current_task()
        await self.end(*(task for task in self._running if task is not current))


class Pace(Protocol):
    """What the client asks about time."""

    def monotonic_s(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class LoopPace:
    """The event loop's own clock."""

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
