"""How outcomes reach the ledger, and how the loop hears of a write."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

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


def when_written(future: Future[None], told: Callable[[BaseException | None], None]) -> None:
    """Call back on this loop when a write is done, with what went wrong, if anything did."""
    loop = asyncio.get_running_loop()

    def done(future: Future[None]) -> None:
        try:
            loop.call_soon_threadsafe(told, future.exception())
        except RuntimeError:  # the loop has closed: nobody waits any more
            logger.debug("a write ended after its loop")

    future.add_done_callback(done)
