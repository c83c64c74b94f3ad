"""Something that is opened when it is needed, once, and tried again when that fails."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.errors import ForebayError
from forebay.gateway.errors.http_error import HttpError, shutting_down
from forebay.gateway.http.store_timeout import ANSWER_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from forebay.clock import TimerHandle, Timers

logger = logging.getLogger("forebay.gateway")

AGAIN_S = 5.0
"""How long after a failure it is tried again by itself."""
HANGS = "the database does not answer"
STOP_S = 6.0
"""How long what is being opened may take to end: longer than a connection, or a close, may take."""


class LazyOpen:
    """Opens it; `what` is how people call it, such as "the job database"."""

    def __init__(self, what: str, do_open: Callable[[], Awaitable[None]], clock: Timers) -> None:
        self._what = what
        self._do_open = do_open
        self._clock = clock
        self._opening: asyncio.Task[None] | None = None
        self._trying: asyncio.Task[None] | None = None
        self._again: TimerHandle | None = None
        self._told = ""
        """The reason that the log has, for as long as it lasts."""
        self.is_open = False
        self.stopped = False

    async def ready(self) -> None:
        """Open it unless that has been done; raises HttpError where it cannot be."""
        if self.is_open:
            return
        if self.stopped:
            raise shutting_down()
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._opened()
        except (ForebayError, TimeoutError) as error:
            logger.warning("%s", str(error) or HANGS)
            words = f"{self._what} cannot be opened; the log has the details"
            raise HttpError("store_unavailable", words) from error

    async def try_now(self) -> None:
        """Open it, or else try again later, until it is open."""
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._opened()
        except (ForebayError, TimeoutError) as error:
            self._tell(str(error) or HANGS)
            if not self.stopped:
                at_s = self._clock.monotonic_s() + AGAIN_S
                self._again = self._clock.call_at(at_s, self._try_soon)

    async def stop(self) -> bool:
        """Open nothing more; return whether it is open, and now for the caller to close."""
        self.stopped = True
        if self._again is not None:
            self._again.cancel()
        if self._opening is not None:
            await self._end(self._opening)
        was_open, self.is_open = self.is_open, False
        return was_open

    async def _end(self, opening: asyncio.Task[None]) -> None:
        """Wait for what is being opened, but not for ever: a database may hang."""
        _, late = await asyncio.wait({opening}, timeout=STOP_S)
        if late:
            opening.cancel()  # whoever opens it closes what is half open
            await asyncio.wait({opening}, timeout=STOP_S)

    def _tell(self, reason: str) -> None:
        """Log why it is waited for, once for each reason: it may last for days."""
        if reason != self._told:
            logger.warning("%s cannot be opened, and is waited for: %s", self._what, reason)
            self._told = reason

    def _try_soon(self) -> None:
        self._trying = asyncio.get_running_loop().create_task(self.try_now())

    async def _opened(self) -> None:
        """Open once, however many ask at the same time."""
        if self.is_open:
            return
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
            self._opening.add_done_callback(self._no_longer_opening)
        await asyncio.shield(self._opening)

    def _no_longer_opening(self, task: asyncio.Task[None]) -> None:
        self._opening = None
        if not task.cancelled():
            task.exception()  # whoever waits has it; it is not forgotten

    async def _open(self) -> None:
        await self._do_open()
        self.is_open = True
        if self._told:
            logger.info("%s is open now", self._what)
            self._told = ""


def may_hold(url: str) -> bool:
    """Say whether there may be something in a database already, without making one.

    >>> may_hold("postgresql://host/name"), may_hold("sqlite://")
    (True, False)
    """
    scheme, _, path = url.partition(":///")
    if not scheme.startswith("sqlite"):
        return True
    path = path.partition("?")[0]
    return bool(path) and Path(path).exists()
