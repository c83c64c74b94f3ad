"""How outcomes reach the ledger, and how the loop hears of a write."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.errors import StoreFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

logger = logging.getLogger("forebay.sessions")


@dataclass(frozen=True)
class Writing:
    """What a session asks of those who keep all sessions."""

    later: Callable[[Callable[[], None]], None]
    """Has a write tried again that has failed, after a while."""
    ended: Callable[[str], None]
    """Counts an outcome: `completed`, or an error's code."""


WRITE_S = 10.0
"""How long a promise may take to be written: the caller has other things to do by then."""


def when_written_in_time(
    future: Future[None], told: Callable[[BaseException | None], None]
) -> None:
    """Like `when_written`, but a database that hangs is an error after a while."""
    loop = asyncio.get_running_loop()
    is_over = False

    def once(error: BaseException | None) -> None:
        nonlocal is_over
        if not is_over:
            is_over = True
            timer.cancel()
            told(error)

    # The database lives in real time, whatever clock the sessions go by.
    timer = loop.call_later(WRITE_S, once, StoreFailed("the database does not answer"))
    when_written(future, once)


def when_written(future: Future[None], told: Callable[[BaseException | None], None]) -> None:
    """Call back on this loop when a write is done, with what went wrong, if anything did."""
    loop = asyncio.get_running_loop()

    def done(future: Future[None]) -> None:
        try:
            loop.call_soon_threadsafe(told, future.exception())
        except RuntimeError:  # the loop has closed: nobody waits any more
            logger.debug("a write ended after its loop")

    future.add_done_callback(done)
