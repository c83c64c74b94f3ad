"""A node whose every move the test decides: real HTTP on a loopback port, no behaviour of its own.

A test takes each call as it arrives and answers it, streams, stalls, writes garbage or hangs up.
Nothing here waits for time to pass; the deadlines only turn a hang into a failure.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from forebay.testing.fake_node_http import (
    Connection,
    Health,
    Kind,
    MalformedRequest,
    NodeState,
    Request,
    answer_bytes,
    head_bytes,
    probe_answer,
    status_line,
)

HOST = "127.0.0.1"
DEADLINE_S = 10.0  # long beside any loopback exchange, short beside a CI job
ACCEPT_TURNS = 4  # of the loop, from a socket's accept to its `connection_made`


async def within(awaitable: Awaitable[Any], deadline_s: float, complaint: str) -> Any:
    """Await it, or fail the test with the complaint."""
    try:
        async with asyncio.timeout(deadline_s):
            return await awaitable
    except TimeoutError:
        raise AssertionError(complaint) from None


class Call:
    """One inference request at the node, and the means to answer it in any way, right or wrong.

    Writing to a peer that has gone raises `ConnectionResetError`. Writes wait while the peer does
    not read, so a test can see backpressure reach the node.
    """

    def __init__(self, request: Request, connection: Connection) -> None:
        self.request = request
        self.method = request.method
        self.path = request.path
        self.headers = request.headers
        self.raw_headers = request.raw_headers
        self.raw_head = request.raw_head
        self.body = request.body
        self._answered = False
        self._connection = connection
        self._chunked = False
        self._close_after = not request.keep_alive

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return self.request.json

    @property
    def ended(self) -> bool:
        """Answered in full, or its connection is gone."""
        link = self._connection
        return self._answered or link.ended_here or link.gone.is_set()

    @property
    def connection(self) -> int:
        """The number of the connection that brought it, counted from 1 as accepted."""
        return self._connection.number

    @property
    def peer_gone(self) -> bool:
        """The peer closed or aborted the connection, even if the loop has not told us yet.

        Whoever hangs up on one call before it sends another is known to have by the second's
        arrival, in whatever order the loop shows us the two.
        """
        return self._connection.peer_left

    @property
    def paused(self) -> bool:
        """The peer does not take what was written, so writes wait."""
        return not self._connection.writable.is_set()

    async def answer(
        self, payload: object, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a whole answer: bytes as they are, anything else as JSON."""
        self._connection.write(answer_bytes(payload, status, headers or {}))
        self._note_connection_header(headers or {})
        await self._finish()

    async def start_stream(
        self, headers: Mapping[str, str] | None = None, status: int = 200
    ) -> None:
        """Send the head of a chunked answer: server-sent events unless the headers say else."""
        defaults = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
        self._connection.write(head_bytes(status_line(status), defaults, headers or {}))
        self._note_connection_header(headers or {})
        self._chunked = True
        await self._connection.drain()

    async def chunk(self, data: bytes) -> None:
        """Send one chunk of a started stream."""
        assert self._chunked, "start_stream() comes first"
        assert data, "an empty chunk would end the answer: use end()"
        self._connection.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self._connection.drain()

    async def end(self) -> None:
        """End the stream; after `write()`, only declare the answer complete."""
        if self._chunked:
            self._connection.write(b"0\r\n\r\n")
        await self._finish()

    async def write(self, data: bytes) -> None:
        """Send these bytes and nothing else."""
        self._connection.write(data)
        await self._connection.drain()

    def close(self) -> None:
        """Close the connection in good order (FIN), after what was already written."""
        self._connection.close()

    def reset(self) -> None:
        """Abort the connection (RST)."""
        self._connection.abort(reset=True)

    async def gone(self, timeout_s: float = DEADLINE_S) -> None:
        """Wait until the peer closed or aborted the connection."""
        await within(self._connection.gone.wait(), timeout_s, "the peer kept its connection")

    async def blocked(self, timeout_s: float = DEADLINE_S) -> None:
        """Wait until writes stall because the peer does not read; another task does the writing."""
        await within(self._connection.blocked.wait(), timeout_s, "the peer took every byte")

    def _note_connection_header(self, headers: Mapping[str, str]) -> None:
        values = [value.lower() for name, value in headers.items() if name.lower() == "connection"]
        self._close_after = self._close_after or "close" in values

    async def _finish(self) -> None:
        # Before draining: once the peer has the last byte it may send the next call, and this
        # one must not be counted beside it.
        self._answered = True
        if self._close_after:
            self._connection.close()
        else:
            await self._connection.drain()


class FakeNode:
    """A backend for tests of anything that talks to one.

    Real LLM servers answer when they please; tests about order, cancellation and failure need one
    that does exactly what is asked, when it is asked, over real sockets. Looks like a llama.cpp
    server by default; every GET is a probe and answered at once, all else is a call for the test.
    Leaving the context hangs up on everyone, whatever is unanswered, and then fails the test if
    a malformed request came or `automatic` raised.

    All attributes may be changed at any time.
    """

    def __init__(
        self,
        models: Sequence[str] = ("m",),
        slots: int = 1,
        context: int = 0,
        kind: Kind = "llama.cpp",
        sndbuf: int | None = None,
    ) -> None:
        self.models = models
        self.slots = slots
        self.context = context  # tokens; 0 says nothing
        self.kind: Kind = kind
        self.loaded: Sequence[str] | None = None
        """Models in memory; None means all."""
        self.kv_free_tokens: int | None = None
        """What `/health` says of its key-value cache; llama.cpp's kind only."""
        self.health: Health = "ok"
        """How probes are answered: `loading` 503, `error` 500, `hang` never."""
        self.automatic: Callable[[Call], Coroutine[Any, Any, object]] | None = None
        """Run for each arriving call instead of handing it to `next_call()`."""

        self.calls: list[Call] = []
        """Every inference call so far, in order of arrival."""
        self.probe_requests: list[Request] = []
        self.accepted = 0
        """Connections accepted so far."""
        self.pipelined = 0
        """Requests that came on a connection whose last call was still unanswered."""
        self.malformed: list[str] = []
        """What was wrong with requests that were no HTTP; answered 400. Clear it if expected."""
        self.port = 0

        self._sndbuf = sndbuf
        self._arrived: asyncio.Queue[Call] = asyncio.Queue()
        self._changed = asyncio.Event()
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._placeholder: socket.socket | None = None
        self._tasks: set[asyncio.Task[object]] = set()
        self._failures: list[BaseException] = []
        self._latest: dict[Connection, Call] = {}
        self._open_calls: list[Call] = []
        self._max_running = 0
        self._left = False

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{HOST}:{self.port}"

    @property
    def probes(self) -> int:
        """How many probes came so far."""
        return len(self.probe_requests)

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        return len(self._connections)

    @property
    def running(self) -> int:
        """How many calls are unanswered now."""
        return len(self._unended())

    @property
    def max_running(self) -> int:
        """The largest number of calls that were unanswered at once."""
        return self._max_running

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._leave()
        if exc is None and self._failures:
            raise self._failures[0]
        if exc is None and self.malformed:
            raise AssertionError(f"a malformed request reached the node: {self.malformed[0]}")

    async def next_call(self, timeout_s: float = DEADLINE_S) -> Call:
        """Wait for the next inference call; fails the test when none comes in time."""
        call: Call = await within(self._arrived.get(), timeout_s, "no request reached the node")
        return call

    async def probed(self, count: int, timeout_s: float = DEADLINE_S) -> None:
        """Wait until that many probes came in all."""
        complaint = f"fewer than {count} probes reached the node"
        await within(self._until(lambda: self.probes >= count), timeout_s, complaint)

    async def idle(self, timeout_s: float = DEADLINE_S) -> None:
        """Wait until no connection is open."""
        await within(
            self._until(lambda: not self._connections), timeout_s, "connections stayed open"
        )

    async def listen(self) -> None:
        """Accept connections, on the port of the first time; nothing if it does already."""
        if self._server is not None:
            return
        if self._placeholder is not None:
            self._placeholder.close()
            self._placeholder = None
        listener = bound_socket(self.port)
        if self._sndbuf is not None:  # accepted sockets inherit it
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._sndbuf)
        self.port = listener.getsockname()[1]
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), sock=listener)

    async def stop_listening(self) -> None:
        """Refuse connections from now on; those that are open stay."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        await asyncio.sleep(0)
        # Keeps the port ours: unbound, another listener could take it, or a connect to it could
        # draw it as its own port and meet itself.
        self._placeholder = bound_socket(self.port)

    def drop_connections(self, *, reset: bool = False) -> None:
        """Hang up on every peer, as a dying server does (FIN), or with RST."""
        for connection in tuple(self._connections):
            connection.abort(reset=reset)

    def admit(self, connection: Connection) -> int:
        self._connections.add(connection)
        self.accepted += 1
        if self._left:
            connection.abort(reset=False)
        return self.accepted

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._latest.pop(connection, None)
        self._changed.set()

    def refuse(self, error: MalformedRequest) -> None:
        self.malformed.append(str(error))

    def receive(self, request: Request, connection: Connection) -> None:
        """Answer a probe; hand a call to whoever waits for one."""
        latest = self._latest.get(connection)
        self.pipelined += latest is not None and not latest.ended
        if request.method == "GET":
            self._answer_probe(request, connection)
            return
        call = self._latest[connection] = Call(request, connection)
        self.calls.append(call)
        self._open_calls.append(call)
        connected = sum(not each.peer_gone for each in self._unended())
        self._max_running = max(self._max_running, connected)
        if self.automatic is None:
            self._arrived.put_nowait(call)
            return
        task = asyncio.ensure_future(self.automatic(call))
        self._tasks.add(task)
        task.add_done_callback(self._automatic_done)

    def _answer_probe(self, request: Request, connection: Connection) -> None:
        self.probe_requests.append(request)
        self._changed.set()
        if self.health == "hang":
            return
        loaded = self.models if self.loaded is None else self.loaded
        state = NodeState(
            self.kind, self.health, self.models, loaded, self.slots, self.context,
            self.kv_free_tokens,
        )  # fmt: skip
        status, payload = probe_answer(request.path, state)
        connection.write(answer_bytes(payload, status, {}))
        if not request.keep_alive:
            connection.close()

    def _unended(self) -> list[Call]:
        self._open_calls = [call for call in self._open_calls if not call.ended]
        return self._open_calls

    def _automatic_done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ConnectionError):
            self._failures.append(error)

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._changed.clear()
            await self._changed.wait()

    async def _leave(self) -> None:
        self._left = True
        await self.stop_listening()
        if self._placeholder is not None:
            self._placeholder.close()
            self._placeholder = None
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.drop_connections()
        for _ in range(ACCEPT_TURNS):
            await asyncio.sleep(0)
        await self._until(lambda: not self._connections)


def bound_socket(port: int) -> socket.socket:
    """Return a socket bound to that loopback port, or to a free one for 0."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((HOST, port))
    return bound
