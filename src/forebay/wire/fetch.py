"""One small request and its whole answer, for probes: `await fetch(pool, ...)`.

Bounded in size and time. Cancelling it aborts the connection.
"""

import asyncio

from msgspec import Struct

from forebay.errors import BackendFailed
from forebay.wire.client import NodeConnection
from forebay.wire.heads import AnswerHead
from forebay.wire.pool import ConnectionPool

BODY_BYTES_MAX = 16_777_216
"""What an answer to a probe may weigh: the model list of a large server is below 1 MB."""


class Fetched(Struct, frozen=True):
    """A whole answer; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class _Collector:
    """A listener that gathers one answer."""

    def __init__(self) -> None:
        self.whole: asyncio.Future[Fetched] = asyncio.get_running_loop().create_future()
        self._connection: NodeConnection | None = None
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body = bytearray()

    def ask(self, connection: NodeConnection, request: bytes, body: bytes) -> None:
        self._connection = connection
        connection.send(request, body, self)

    def answer_begins(self, head: AnswerHead, length: bytes | None) -> None:
        self._status = head.status
        self._headers = {n.decode("latin-1"): v.decode("latin-1") for n, v in head.headers}

    def answer_goes_on(self, data: bytes, framed: bytes = b"") -> None:
        self._body += data
        if len(self._body) > BODY_BYTES_MAX:
            self.abort()
            self._fail("the answer is too large")

    def answer_ends(self) -> None:
        if not self.whole.done():
            self.whole.set_result(Fetched(self._status, self._headers, bytes(self._body)))

    def answer_breaks(self, cause: str, *, stale: bool) -> None:
        self._fail(cause)

    def answer_is_lost(self) -> None:
        self._fail("an internal error")

    def abort(self) -> None:
        if self._connection is not None:
            self._connection.abort()

    def _fail(self, cause: str) -> None:
        if not self.whole.done():
            self.whole.set_exception(BackendFailed(cause))


async def fetch(
    pool: ConnectionPool, head: bytes, body: bytes = b"", *, limit_s: float, fresh: bool = False
) -> Fetched:
    """Send a request whose head is given and return the answer; raises BackendFailed.

    `fresh` asks for a connection of its own, because an idle one says nothing about whether the
    server still accepts any.
    """
    collector: _Collector | None = None
    try:
        async with asyncio.timeout(limit_s):
            connection = None if fresh else pool.take()
            connection = connection or await pool.connect()
            collector = _Collector()
            collector.ask(connection, head, body)
            return await collector.whole
    except TimeoutError:
        raise BackendFailed(f"no answer within {limit_s:g} s") from None
    finally:
        if collector is not None and not (collector.whole.done() and _is_good(collector)):
            collector.abort()


def _is_good(collector: _Collector) -> bool:
    whole = collector.whole
    return not whole.cancelled() and whole.exception() is None
