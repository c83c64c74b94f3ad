"""Forwarding requests to the other gateways of the fleet.

A session lives on the gateway named in its id, a request on the one that its client is connected
to. Any other gateway forwards what it is asked about them unchanged, with the caller's own key and
Host, so that the owner authorises by itself. One header more names the gateway that forwarded it:
it prevents forwarding loops, and, like any forwarding header, keeps the request from passing for
one of an operator on this machine.

A worker that does not lead forwards to its leader in the same way. It differs in two things: the
address is a Unix socket that only workers can reach (`gateway/workers/door`), and because of that
the client's address is believed there, so the leader judges the request as if it had come to it.

Bounds: request bodies by the owner's limits and backpressure, responses by backpressure
(`PeerResponse`), time by HEAD_S unless the caller says otherwise, and always by the peer being
alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from starlette.responses import StreamingResponse

from forebay.errors import BackendFailed
from forebay.gateway.errors.http_error import HttpError, shutting_down
from forebay.gateway.fleet.membership import UNIX, peer_target
from forebay.gateway.hot.asgi_bridge import CUT
from forebay.gateway.hot.proxies import HOP
from forebay.gateway.http.sse import while_connected
from forebay.sessions.record import replica_of
from forebay.wire.heads import end_to_end, header_block
from forebay.wire.pool import ConnectionPool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Self

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from forebay.coordination import Fleet
    from forebay.gateway.fleet.membership import Membership
    from forebay.gateway.http.json_body import RequestReader
    from forebay.gateway.sessions.host import SessionHost
    from forebay.wire.client import NodeConnection
    from forebay.wire.heads import AnswerHead, Headers

HELD_BYTES_MAX: Final = 262_144
"""What is buffered for a client that reads slowly, before the peer is paused."""
GAP_S: Final = 60.0
"""How long a response may be silent: event streams have a heartbeat four times as often."""
LEFT_OUT: Final = (b"access-control-", b"vary")
"""CORS headers, which this gateway writes itself; browsers reject them twice."""
logger = logging.getLogger("forebay.gateway")
CONNECT_S: Final = 3.0
HEAD_S: Final = 30.0
"""How long a peer may take to begin its response."""
ALIVE_S: Final = 2.0
"""How often a waiting request checks whether the peer is still alive."""
OWNER_S: Final = 1.0
"""How long the leader may take to say which gateway has a request."""
POOLS_MAX: Final = 64
WHOLE_BYTES: Final = 65_536
"""A body up to here is passed on whole: one that is answered before it has come breaks off."""
IDLE_MAX: Final = 16
CLIENT: Final = b"x-forebay-client"
"""The header by which a worker tells another one of the same gateway the client's address."""
FRAMING: Final = frozenset((b"host", b"content-length", b"expect", CLIENT))
OURS: Final = FRAMING | {b"x-forwarded-for", HOP.encode()}
"""Headers that are rewritten."""
CHUNKED: Final = -1
"""In place of the length of a body that is not known before it ends."""
SAFE: Final = ("GET", "HEAD")
"""Idempotent methods: only these use an idle connection, which the peer may just be closing."""


class Stale(BackendFailed):
    """The peer closed an idle connection before the first byte of the response."""


class PeerResponse:
    """One response: an `AnswerListener` for the connection, an iterator for the reader.

    What comes faster than the client reads is held back at the peer's socket. Whoever has a
    response must `stop` it: the peer then sees that nobody reads any more.
    """

    def __init__(self, connection: NodeConnection) -> None:
        self._connection: NodeConnection | None = connection
        self.begun: asyncio.Future[AnswerHead] = asyncio.get_running_loop().create_future()
        """The head of the response, or why there is none."""
        self.length: bytes | None = None
        self.broken = ""
        """Why the response is incomplete; empty while it may still become complete."""
        self._pieces: list[bytes] = []
        self._held = 0
        self._over = False
        self._news = asyncio.Event()

    def send(self, head: bytes, body: bytes) -> None:
        assert self._connection is not None
        self._connection.send(head, body, self)

    async def upload(self, head: bytes, pieces: AsyncIterator[bytes], *, is_chunked: bool) -> None:
        """Send a request whose body comes in pieces; stop where it is answered before the end."""
        assert self._connection is not None
        self._connection.send(head, [], self)
        async for piece in pieces:
            framed = b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece
            if not await self._send_more(framed):
                return
        if is_chunked:
            await self._send_more(b"0\r\n\r\n")

    async def _send_more(self, data: bytes) -> bool:
        """Send a piece of a body; return once there is room for more. False: no more is wanted."""
        if self._connection is None or self.begun.done():
            return False
        has_room = asyncio.Event()
        self._connection.send_more(data, has_room.set)
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(has_room.wait()), self.begun]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waits[0].cancel()
        return not self.begun.done()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Return what has arrived; raises BackendFailed where it is incomplete."""
        while not self._pieces:
            if self.broken:
                raise BackendFailed(self.broken)
            if self._over:
                raise StopAsyncIteration
            self._news.clear()
            try:
                async with asyncio.timeout(GAP_S):
                    await self._news.wait()
            except TimeoutError:
                raise BackendFailed(f"no data for {GAP_S:g} s") from None
        data, self._held = b"".join(self._pieces), 0
        self._pieces.clear()
        if self._connection is not None and self._connection.paused:
            self._connection.resume()
        return data

    def stop(self, cause: str = "") -> None:
        """Abort it; a concurrent reader gets the cause. May be called twice."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
        if cause and not self._over:
            self.answer_breaks(cause, stale=False)
        if self.begun.done() and not self.begun.cancelled():
            self.begun.exception()  # retrieved, even where nobody waits any more

    # -- from the connection

    def answer_begins(self, head: AnswerHead, length: bytes | None) -> None:
        self.length = length
        if not self.begun.done():
            self.begun.set_result(head)

    def answer_goes_on(self, data: bytes, framed: bytes = b"") -> None:
        """Buffer a piece; pause the peer where that is too much."""
        self._pieces.append(data)
        self._held += len(data)
        self._news.set()
        if self._held > HELD_BYTES_MAX and self._connection is not None:
            self._connection.pause()

    def answer_ends(self) -> None:
        """The response is complete; the pool has the connection back."""
        self._connection = None
        self._over = True
        self._news.set()

    def answer_breaks(self, cause: str, *, stale: bool) -> None:
        self._connection = None
        self._over, self.broken = True, cause
        self._news.set()
        if not self.begun.done():
            self.begun.set_exception(Stale(cause) if stale else BackendFailed(cause))

    def answer_is_lost(self) -> None:
        self.answer_breaks("an internal error", stale=False)


class ForwardedResponse(StreamingResponse):
    """Streams a peer's response to the client unchanged.

    Where it breaks off, the client's connection is aborted, as the peer itself would have done:
    nothing else says that a response is incomplete.
    """

    def __init__(
        self, peer: PeerResponse, on_end: Callable[[PeerResponse], None], *, is_head: bool
    ) -> None:
        head = peer.begun.result()
        super().__init__(() if is_head else peer, head.status)
        self.raw_headers = _kept(head.headers, peer.length)
        self._peer = peer
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until it ends or breaks off, or the client disconnects."""
        try:
            await super().__call__(scope, receive, send)
        except BackendFailed:
            scope["extensions"][CUT]["abort"]()
            await self.listen_for_disconnect(receive)
        finally:
            self._peer.stop()
            self._on_end(self._peer)


def _kept(headers: Headers, length: bytes | None) -> Headers:
    kept = [pair for pair in headers if not pair[0].startswith(LEFT_OUT)]
    return kept if length is None else [*kept, (b"content-length", length)]


class PeerRequest(NamedTuple):
    """A request as it is forwarded."""

    name: str
    address: str
    head: bytes
    body: bytes
    is_safe: bool
    is_chunked: bool


class Peers:
    """Finds the gateway that can answer, and forwards to it; without a fleet there is none."""

    def __init__(
        self, membership: Membership, sessions: SessionHost, reader: RequestReader, tls_cert: str
    ) -> None:
        self._membership = membership
        self._sessions = sessions
        self._reader = reader
        self._tls_cert = tls_cert
        self._pools: dict[str, ConnectionPool] = {}
        self._responses: set[PeerResponse] = set()
        self._unreachable: set[str] = set()  # logged once, until they answer again
        self._stopped = False

    @property
    def in_flight(self) -> int:
        """How many responses of other gateways are being streamed."""
        return len(self._responses)

    # -- which peer

    async def of_session(self, session_id: str, request: Request) -> str | None:
        """Return the gateway that has a session; None for this one.

        A session that is here belongs here, whatever its id says. The id of one that is older than
        the fleet names no gateway; the ledger knows which one took it over. Raises HttpError for a
        request that was forwarded to the wrong gateway.
        """
        fleet, sessions = self._membership.fleet, self._sessions
        if fleet is None or sessions.has(session_id):
            return None
        name = replica_of(session_id) or await sessions.holder(session_id)
        if name in ("", fleet.me):
            return None
        if HOP in request.headers:
            raise _away(f"a call for gateway {name} was forwarded to {fleet.me}")
        return name

    async def of_request(self, ticket_id: str, request: Request) -> str | None:
        """Return the gateway that has a request; None where no other one has it.

        Raises HttpError where that cannot be known now.
        """
        fleet = self._membership.fleet
        if fleet is None or HOP in request.headers:
            return None
        try:
            async with asyncio.timeout(OWNER_S):
                name = await fleet.owner_of(ticket_id)
        except TimeoutError:
            raise _away("the leader did not answer which gateway has this request") from None
        if name is None and fleet.picture().mode != "coordinated":
            raise _away("there is no leader at present that knows which gateway has this request")
        return None if name == fleet.me else name

    def others(self, request: Request) -> list[str]:
        """Return the other gateways that may know more; none for one of them that asks."""
        fleet = self._membership.fleet
        if fleet is None or HOP in request.headers:
            return []
        return [one.name for one in fleet.picture().replicas if one.name != fleet.me]

    # -- forwarding

    async def forward(
        self, request: Request, name: str, limit_s: float | None = HEAD_S
    ) -> Response:
        """Return the response of another gateway, or of another worker of this one.

        The body is passed on as it comes. Raises HttpError where the other one is unreachable; what
        was read of a small body is kept in the request.
        """
        given = request.headers
        length = CHUNKED if "transfer-encoding" in given else int(given.get("content-length", "0"))
        passed = self._request(request, name, length)
        if 0 <= length <= WHOLE_BYTES:
            if length:
                await self._reader.reserve(request, length)
            passed = passed._replace(body=await self._reader.whole(request))
            answer = while_connected(request, self._response(passed, limit_s))
        else:
            answer = self._response(passed, limit_s, request)
        is_head = request.method == "HEAD"
        return ForwardedResponse(await answer, self._responses.discard, is_head=is_head)

    async def ask(
        self, request: Request, name: str, body: bytes, bytes_max: int, limit_s: float | None
    ) -> tuple[int, bytes]:
        """Forward with another body; return the status and the body. Raises HttpError."""
        answer = bytearray()
        async with self.opened(request, name, body, limit_s) as response:
            async for data in response:
                answer += data
                if len(answer) > bytes_max:
                    raise BackendFailed("its response is too large")
        return response.begun.result().status, bytes(answer)

    @contextlib.asynccontextmanager
    async def opened(
        self, request: Request, name: str, body: bytes, limit_s: float | None
    ) -> AsyncIterator[PeerResponse]:
        """Forward with another body; yield a response that has begun. Raises HttpError."""
        forwarded = self._request(request, name, len(body))._replace(body=body)
        response = await self._response(forwarded, limit_s)
        try:
            yield response
        except BackendFailed as error:
            raise self._failed(forwarded, error, sent=True) from None
        finally:
            response.stop()
            self._responses.discard(response)

    def stop(self) -> None:
        """Abort what is in flight: clients retry on another gateway. May be called twice."""
        self._stopped = True
        for response in list(self._responses):
            response.stop("this gateway is shutting down")
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

    # -- inside

    def _fleet(self) -> Fleet:
        fleet = self._membership.fleet
        assert fleet is not None
        if self._stopped:
            raise shutting_down()
        return fleet

    def _request(self, request: Request, name: str, length: int) -> PeerRequest:
        """Return a request as it is forwarded, without its body."""
        fleet = self._fleet()
        address = fleet.address_of(name)
        if address is None:
            raise _away(f"gateway {name}, which has it, is not in the fleet")
        head = _head(request, address, fleet.me, length)
        return PeerRequest(name, address, head, b"", request.method in SAFE, length == CHUNKED)

    async def _response(
        self, passed: PeerRequest, limit_s: float | None, source: Request | None = None
    ) -> PeerResponse:
        """Return a response that has begun; raises HttpError.

        `source` has a body that is passed on as it comes.
        """
        pool = self._pool(passed.address)
        sent = False
        try:
            idle = pool.take() if passed.is_safe and source is None else None
            if idle is not None:
                with contextlib.suppress(Stale):  # then on a new connection
                    return await self._begun(PeerResponse(idle), passed, limit_s)
            response = PeerResponse(await pool.connect())
            sent = True
            return await self._begun(response, passed, limit_s, source)
        except TimeoutError:
            error = BackendFailed(f"no answer within {limit_s:g} s")
            raise self._failed(passed, error, sent=sent) from None
        except BackendFailed as error:
            raise self._failed(passed, error, sent=sent) from None

    async def _begun(
        self,
        response: PeerResponse,
        passed: PeerRequest,
        limit_s: float | None,
        source: Request | None = None,
    ) -> PeerResponse:
        self._responses.add(response)
        try:
            if source is None:
                response.send(passed.head, passed.body)
                await self._head_of(response, passed, limit_s)
            else:
                pieces = self._reader.pieces(source)
                await response.upload(passed.head, pieces, is_chunked=passed.is_chunked)
                await while_connected(source, self._head_of(response, passed, limit_s))
        except BaseException:
            response.stop()
            self._responses.discard(response)
            raise
        self._unreachable.discard(passed.name)
        return response

    async def _head_of(
        self, response: PeerResponse, passed: PeerRequest, limit_s: float | None
    ) -> None:
        """Wait for the head of a response, as long as the peer is alive."""
        async with asyncio.timeout(limit_s):
            while not (await asyncio.wait({response.begun}, timeout=ALIVE_S))[0]:
                if self._is_lost(passed.name):
                    raise BackendFailed("it has sent no heartbeat for too long")
        response.begun.result()

    def _is_lost(self, name: str) -> bool:
        seen = self._fleet().picture().replicas
        return not any(one.name == name and one.state != "lost" for one in seen)

    def _failed(self, request: PeerRequest, error: BackendFailed, *, sent: bool) -> HttpError:
        """Return another error where the peer may have executed the request: not to be retried."""
        name = request.name
        if name not in self._unreachable:
            self._unreachable.add(name)
            where = {"replica": name, "address": request.address}
            logger.warning("another gateway cannot be reached: %s", error, extra=where)
        if sent and not request.is_safe:
            words = f"gateway {name}, which has it, did not answer"
            return HttpError("replica_lost", words)
        return _away(f"gateway {name}, which has it, cannot be reached")

    def _pool(self, address: str) -> ConnectionPool:
        pool = self._pools.get(address)
        if pool is None:
            if len(self._pools) >= POOLS_MAX:  # of gateways that have left
                self._pools.pop(next(iter(self._pools))).close()
            target = peer_target(address, self._tls_cert, CONNECT_S)
            pool = self._pools[address] = ConnectionPool(target, idle_max=IDLE_MAX)
        return pool


def _away(words: str) -> HttpError:
    return HttpError("replica_unavailable", words)


def _head(request: Request, address: str, me: str, length: int) -> bytes:
    """Return the head of a request as it is forwarded; a length of -1 is not known."""
    scope = request.scope
    given = scope["headers"]
    parts = urlsplit(address)
    host = request.headers.get("host") or parts.netloc
    peer = request.client.host if request.client else ""
    written = [(b"host", host.encode("latin-1"))]
    if parts.scheme == UNIX:
        written += [pair for pair in end_to_end(given) if pair[0] not in FRAMING]
        written.append((CLIENT, peer.encode()))
    else:
        hops = [value for name, value in given if name == b"x-forwarded-for"]
        written += [pair for pair in end_to_end(given) if pair[0] not in OURS]
        via = b", ".join([*hops, peer.encode()] if peer else hops) or b"unknown"
        written += [(b"x-forwarded-for", via), (HOP.encode(), me.encode())]
    written += _framing(request, length)
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    method = b"GET" if request.method == "HEAD" else request.method.encode()  # its end is known
    return b"%b %b%b HTTP/1.1\r\n%b\r\n" % (method, scope["raw_path"], query, header_block(written))


def _framing(request: Request, length: int) -> Headers:
    """Return the headers that frame a body; one that is passed on as it comes may break off."""
    if not length:
        return [(b"content-length", b"0")] if request.method == "POST" else []
    if length == CHUNKED:
        return [(b"transfer-encoding", b"chunked"), (b"connection", b"close")]
    framed = (b"content-length", b"%d" % length)
    return [framed] if length <= WHOLE_BYTES else [framed, (b"connection", b"close")]
