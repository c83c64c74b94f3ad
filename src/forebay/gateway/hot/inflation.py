"""Bodies that come as gzip: inflated by a thread, within the same bounds as others.

What a body takes is not known before it is inflated. Its last four bytes say it, and are believed
as far as room is asked for; one that turns out larger asks for all that a body may have, and waits
for it like an upload. So a bomb costs no more than any body of `server.body_max_bytes`.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from forebay.relay.problem import Problem
from forebay.wire.body import RequestBody
from forebay.wire.deadlines import Deadlines
from forebay.wire.refusals import BUSY, body_too_large

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from forebay.clock import Timers
    from forebay.wire.budget import Budget, Charge
    from forebay.wire.connection import ServerConnection

logger = logging.getLogger("forebay.gateway")

THREADS: Final = 2
"""More would only take the processor from others: zlib does 300 MB/s."""
PIECE_BYTES: Final = 65_536
"""Given to zlib at once, and the most it may make of it at once."""
MEMBERS_MAX: Final = 16
"""Streams one after the other in one body; clients send one."""
_MAGIC: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31


class BadGzip(Exception):
    """It cannot be inflated."""


class Inflater:
    """Inflates one body, as far as there is room."""

    def __init__(self, body: bytes) -> None:
        self._body = memoryview(body)
        self._at = 0
        self._pending = b""  # given to zlib, and not used up
        self._stream = zlib.decompressobj(_GZIP_WINDOW)
        self._members = 1
        self.made = RequestBody()
        self.stopped = False

    def claimed_bytes(self) -> int:
        """Return what the body says it will be inflated; not to be believed."""
        return int.from_bytes(self._body[-4:], "little")

    def inflate(self, limit_bytes: int) -> bool:
        """Inflate; False where there would be more than the limit. Raises BadGzip."""
        while not self.stopped:
            room = limit_bytes + 1 - self.made.size_bytes  # one more shows whether there is more
            if room <= 0:
                return False
            is_fed = self._feed()
            try:
                piece = self._stream.decompress(self._pending, min(PIECE_BYTES, room))
            except zlib.error as error:
                raise BadGzip("the body is not valid gzip") from error
            self._pending = self._stream.unconsumed_tail
            if piece:
                self.made.add(piece, limit_bytes + 1)
            if self._stream.eof:
                if self._is_at_the_end():
                    return self.made.size_bytes <= limit_bytes
            elif not piece and not is_fed:
                raise BadGzip("the gzip body ends in the middle")
        return True

    def _feed(self) -> bool:
        """Take the next piece where the last is used up; False where there is nothing more."""
        if not self._pending and self._at < len(self._body):
            self._pending = bytes(self._body[self._at : self._at + PIECE_BYTES])
            self._at += len(self._pending)
        return bool(self._pending)

    def _is_at_the_end(self) -> bool:
        """Say whether nothing follows a stream; else begin with the next. Raises BadGzip."""
        self._pending = self._stream.unused_data
        if not self._feed():
            return True
        self._members += 1
        if self._members > MEMBERS_MAX or not self._pending.startswith(_MAGIC[:1]):
            raise BadGzip("something follows the gzip body")
        self._stream = zlib.decompressobj(_GZIP_WINDOW)
        return False


class Inflation:
    """One body of one connection, while its client may leave."""

    def __init__(
        self,
        inflations: Inflations,
        connection: ServerConnection,
        owner: str,
        then: Callable[[bytes | Problem], None],
    ) -> None:
        self._inflations = inflations
        self._connection = connection
        self._owner = owner
        self._then = then
        self._inflater: Inflater
        self._room_bytes = 0
        self._over = False
        self._loop = asyncio.get_running_loop()

    def begin(self, body: bytes) -> None:
        """Inflate a body; `then` is called with it, or with what is wrong."""
        self._inflater = Inflater(body)
        self._connection.responder = self
        self._inflations.under_way.add(self)
        bytes_max = self._inflations.bytes_max
        if not body:
            self._end(Problem("invalid_request", "the body is not valid gzip", "body"))
        else:
            self._ask_for_room(min(max(1, self._inflater.claimed_bytes()), bytes_max))

    def has_room(self, charge: Charge) -> None:
        """Go on, in a thread."""
        connection = self._connection
        connection.charge = connection.charge.joined(charge)
        self._room_bytes += charge.size_bytes
        loop, threads = self._loop, self._inflations.threads
        doing = threads.submit(self._inflater.inflate, self._room_bytes)
        doing.add_done_callback(lambda done: loop.call_soon_threadsafe(self._on_inflated, done))

    def is_late(self) -> None:
        """Give up: there was no room for too long."""
        self._end(Problem(BUSY.code, BUSY.message))

    def client_left(self) -> None:
        """Drop it."""
        self._forget()

    def client_is_slow(self) -> None:
        """Nothing is being written yet."""

    def client_keeps_up(self) -> None:
        """Nothing is being written yet."""

    def _ask_for_room(self, size_bytes: int) -> None:
        budget = self._inflations.budget
        charge = budget.take(self._owner, size_bytes)
        if charge is not None:
            self.has_room(charge)
        elif not budget.wait(self, self._owner, size_bytes, 0):
            self.is_late()

    def _on_inflated(self, done: Future[bool]) -> None:
        if self._over:
            return
        error = done.exception()
        bytes_max = self._inflations.bytes_max
        if isinstance(error, BadGzip):
            self._end(Problem("invalid_request", str(error), "body"))
        elif error is not None:
            logger.error("inflating a body failed", exc_info=error)
            self._end(Problem("internal_error", "an internal error; the log has the details"))
        elif done.result():
            body = self._inflater.made.take()
            self._connection.charge.shrink(len(body))
            self._end(body)
        elif self._room_bytes < bytes_max:
            self._ask_for_room(bytes_max - self._room_bytes)
        else:
            refusal = body_too_large(bytes_max)
            self._end(Problem(refusal.code, refusal.message))

    def _end(self, result: bytes | Problem) -> None:
        if self._over:
            return
        self._forget()
        try:
            self._then(result)
        except Exception:
            logger.exception("answering a request failed")
            self._connection.abort()

    def _forget(self) -> None:
        self._over = self._inflater.stopped = True
        self._inflations.budget.forget(self)
        self._inflations.under_way.discard(self)


class Inflations:
    """Those of one gateway: their threads, their bounds, their time."""

    def __init__(self, budget: Budget, bytes_max: int, limit_s: float, clock: Timers) -> None:
        self.budget = budget
        self.bytes_max = bytes_max
        self.under_way: Deadlines[Inflation] = Deadlines(limit_s, Inflation.is_late, clock)
        self.threads = ThreadPoolExecutor(THREADS, "inflate")

    def stop(self) -> None:
        """End the threads and forget the time limit; may be called twice."""
        self.under_way.clear()
        self.threads.shutdown(wait=False, cancel_futures=True)
