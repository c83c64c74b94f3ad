"""Run the ledger's writes for sessions: results come back on the loop, failed ones are retried."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from forebay.errors import StoreFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from forebay.clock import TimerHandle, Timers
    from forebay.sessions.ledger import SessionLedger

T = TypeVar("T")

logger = logging.getLogger("forebay.sessions")

WRITE_S = 10.0
"""How long a caller waits for a write; the database may hang."""
RETRY_S = 2.0
FLUSH_S = 2.0
"""How long the last writes may take when the gateway stops."""


class LedgerWriter:
    """The writes of all sessions of a gateway."""

    def __init__(self, ledger: SessionLedger, clock: Timers) -> None:
        self.ledger = ledger
        self._clock = clock
        self._failed: list[Callable[[], None]] = []  # at most one for each pending prompt
        self._timer: TimerHandle | None = None
        self._finished = False

    async def write(
        self, start: Callable[[], Future[None]], then: Callable[[BaseException | None], T]
    ) -> T:
        """Run a write, WRITE_S at most; return what `then` returns, or raise why it failed.

        `then` is called with the error, if any, even when the caller was cancelled before.
        """
        loop = asyncio.get_running_loop()
        promised: asyncio.Future[T] = loop.create_future()
        is_over = False

        def done(error: BaseException | None) -> None:
            nonlocal is_over
            if is_over:
                return
            is_over = True
            timer.cancel()
            result = then(error)
            if promised.done():
                return
            promised.set_result(result) if error is None else promised.set_exception(error)

        # The database lives in real time, whatever clock the sessions use.
        timer = loop.call_later(WRITE_S, done, StoreFailed("the database does not answer"))
        try:
            on_written(start(), done)
        except Exception as error:
            done(error)
        return await promised

    def persist(
        self,
        start: Callable[[], Future[None]],
        written: Callable[[BaseException | None], None] = lambda error: None,
        is_needed: Callable[[], bool] = lambda: True,
    ) -> None:
        """Run a write, and again until it succeeds or is no longer needed.

        `written` is called after each attempt, with the error if it failed.
        """

        def done(error: BaseException | None) -> None:
            written(error)
            if error is not None and is_needed():
                self._retry_later(lambda: self.persist(start, written, is_needed))

        on_written(start(), done)

    async def finish(self) -> None:
        """Retry what has failed once more and wait for all writes, FLUSH_S at most."""
        self._finished = True
        if self._timer is not None:
            self._timer.cancel()
        for write in self._failed:
            write()
        flushed = asyncio.wrap_future(self.ledger.flush())
        await asyncio.wait({flushed}, timeout=FLUSH_S)
        flushed.cancel()
        if flushed.done() and not flushed.cancelled():
            flushed.exception()  # what could not be written is not published either

    def _retry_later(self, write: Callable[[], None]) -> None:
        if self._finished:
            return  # the next process gives that prompt its end
        self._failed.append(write)
        if self._timer is None:
            logger.warning("cannot write prompts to the session ledger; retrying")
            self._timer = self._clock.call_at(self._clock.monotonic_s() + RETRY_S, self._retry)

    def _retry(self) -> None:
        self._timer = None
        writes, self._failed = self._failed, []
        for write in writes:
            write()


def on_written(future: Future[None], done: Callable[[BaseException | None], None]) -> None:
    """Call `done` on this loop when a write is finished, with the error if it failed."""
    loop = asyncio.get_running_loop()

    def finished(future: Future[None]) -> None:
        try:
            loop.call_soon_threadsafe(done, future.exception())
        except RuntimeError:  # the loop is closed
            logger.debug("a write finished after its loop was closed")

    future.add_done_callback(finished)
