"""An answer of another gateway on its way to a client of ours: streamed, bounded, given up at once.

Whatever comes faster than the client reads is held back at its socket, so that little is kept
here. Whoever has a passage must `stop` it: the other gateway then knows that nobody listens.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from forebay.errors import BackendFailed
from forebay.gateway.hot.asgi_bridge import CUT

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive, Scope, Send

    from forebay.wire.client import NodeConnection
    from forebay.wire.heads import AnswerHead, Headers

HELD_BYTES_MAX: Final = 262_144
"""What may wait here for a client that reads slowly, before the other gateway has to wait, too."""
GAP_S: Final = 60.0
"""How long an answer may be silent: streams of events have a heartbeat four times as often."""
LEFT_OUT: Final = (b"access-control-", b"vary")
"""Headers that we write ourselves for pages of other origins; twice they would be void."""


class Stale(BackendFailed):
    """A connection that had been idle was closed before a byte of the answer came."""


class PeerResponse:
    """One answer: a `AnswerListener` on one side, an iterator on the other."""

    def __init__(self, connection: NodeConnection) -> None:
        self._connection: NodeConnection | None = connection
        self.begun: asyncio.Future[AnswerHead] = asyncio.get_running_loop().create_future()
        """The head, or what went wrong before it came."""
        self.length: bytes | None = None
        self.broken = ""
        """Why the answer will never be whole; empty while it may be."""
        self._pieces: list[bytes] = []
        self._held = 0
        self._over = False
        self._news = asyncio.Event()

    def send(self, head: bytes, body: bytes) -> None:
        """Ask."""
        assert self._connection is not None
        self._connection.send(head, body, self)

    async def next(self) -> bytes | None:
        """Return what has come, None at the end; raises BackendFailed where that is too soon."""
        while not self._pieces:
            if self.broken:
                raise BackendFailed(self.broken)
            if self._over:
                return None
            self._news.clear()
            try:
                async with asyncio.timeout(GAP_S):
                    await self._news.wait()
            except TimeoutError:
                raise BackendFailed(f"nothing came for {GAP_S:g} s") from None
        data, self._held = b"".join(self._pieces), 0
        self._pieces.clear()
        if self._connection is not None and self._connection.paused:
            self._connection.resume()
        return data

    def stop(self, cause: str = "") -> None:
        """Want no more of it; whoever reads it meanwhile is told the cause. May be called twice."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
        if cause and not self._over:
            self.answer_breaks(cause, stale=False)
        if self.begun.done() and not self.begun.cancelled():
            self.begun.exception()  # whoever waited may have left before it was told

    # -- from the connection

    def answer_begins(self, head: AnswerHead, length: bytes | None) -> None:
        """Take the head."""
        self.length = length
        if not self.begun.done():
            self.begun.set_result(head)

    def answer_goes_on(self, data: bytes) -> None:
        """Take a piece; too many at once have to wait where they come from."""
        self._pieces.append(data)
        self._held += len(data)
        self._news.set()
        if self._held > HELD_BYTES_MAX and self._connection is not None:
            self._connection.pause()

    def answer_ends(self) -> None:
        """Know that it is whole; the connection is another's."""
        self._connection = None
        self._over = True
        self._news.set()

    def answer_breaks(self, cause: str, *, stale: bool) -> None:
        """Know that no more will come."""
        self._connection = None
        self._over, self.broken = True, cause
        self._news.set()
        if not self.begun.done():
            self.begun.set_exception(Stale(cause) if stale else BackendFailed(cause))

    def answer_is_lost(self) -> None:
        """Know that no more will come, for a reason of our own."""
        self.answer_breaks("an internal error", stale=False)


class ForwardedResponse(Response):
    """The answer as the client gets it: the same, as it comes.

    Where it breaks off, the client's connection is cut: nothing else says that an answer is not
    whole, and that is what it would have seen of the other gateway itself.
    """

    def __init__(
        self, passage: PeerResponse, over: Callable[[PeerResponse], None], *, is_head: bool
    ) -> None:
        self._passage = passage
        self._told_over = over
        self._is_head = is_head
        head = passage.begun.result()
        self.status_code = head.status
        self.background = None
        self.raw_headers = _kept(head.headers, passage.length)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass it on until it ends, breaks, or the client leaves."""
        leaving = asyncio.ensure_future(_left(receive))
        passing = asyncio.ensure_future(self._pass(send))
        try:
            await asyncio.wait({leaving, passing}, return_when=asyncio.FIRST_COMPLETED)
            if passing.done() and not passing.result():
                scope["extensions"][CUT]["abort"]()
                await leaving
        finally:
            leaving.cancel()
            passing.cancel()
            self._passage.stop()
            self._told_over(self._passage)
            await asyncio.gather(leaving, passing, return_exceptions=True)

    async def _pass(self, send: Send) -> bool:
        """Send all of it; return whether it was whole."""
        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        try:
            while not self._is_head and (data := await self._passage.next()) is not None:
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except BackendFailed:
            return False
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return True


def _kept(headers: Headers, length: bytes | None) -> Headers:
    kept = [pair for pair in headers if not pair[0].startswith(LEFT_OUT)]
    return kept if length is None else [*kept, (b"content-length", length)]


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
