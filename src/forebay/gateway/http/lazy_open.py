"""Open a resource lazily, once, retrying in the background."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from forebay.errors import ForebayError
from forebay.gateway.errors.http_error import HttpError, shutting_down
from forebay.gateway.http.store_timeout import ANSWER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from forebay.clock import TimerHandle, Timers

T = TypeVar("T")

logger = logging.getLogger("forebay.gateway")

RETRY_S = 5.0
"""How long after a failure the background retry comes."""
HANGS = "the database does not answer"
STOP_S = 6.0
"""How long an open under way may take to end: longer than a connect, or a close, may take."""


class LazyOpen(Generic[T]):
    """Opens a resource; `what` is its name for people, such as "the job database"."""

    def __init__(
        self, what: str, do_open: Callable[[], Coroutine[Any, Any, T]], clock: Timers
    ) -> None:
        self._what = what
        self._do_open = do_open
        self._clock = clock
        self._opening: asyncio.Task[T] | None = None
        self._retrying: asyncio.Task[None] | None = None
        self._retry_timer: TimerHandle | None = None
        self._logged = ""
        """The reason of the failure that was logged last, until it is open."""
        self.value: T | None = None
        """The resource while it is open."""
        self.stopped = False
        """Whether nothing is to be opened any more."""

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt to open it failed."""
        return bool(self._logged)

    async def ready(self) -> T:
        """Return the resource, opened now unless it is; raises HttpError where that fails."""
        if self.value is not None:
            return self.value
        if self.stopped:
            raise shutting_down()
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self.opened()
        except (ForebayError, TimeoutError) as error:
            logger.warning("%s", str(error) or HANGS)
            words = f"{self._what} cannot be opened; the log has the details"
            raise HttpError("store_unavailable", words) from error

    async def try_now(self) -> None:
        """Open it, or retry in the background until it is open."""
        try:
            async with asyncio.timeout(ANSWER_S):
                await self.opened()
        except (ForebayError, TimeoutError) as error:
            self._log_failure(str(error) or HANGS)
            if not self.stopped:
                at_s = self._clock.monotonic_s() + RETRY_S
                self._retry_timer = self._clock.call_at(at_s, self._retry)

    async def stop(self) -> T | None:
        """Open nothing more; return the resource where it is open: the caller closes it."""
        self.stopped = True
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        if self._opening is not None:
            await self._end(self._opening)
        value, self.value = self.value, None
        return value

    async def _end(self, opening: asyncio.Task[T]) -> None:
        """Wait for an open under way, with a limit: a database may hang."""
        _, late = await asyncio.wait({opening}, timeout=STOP_S)
        if late:
            opening.cancel()  # whoever opens it closes what is half open
            await asyncio.wait({opening}, timeout=STOP_S)

    def _log_failure(self, reason: str) -> None:
        """Log each reason once: it may last for days."""
        if reason != self._logged:
            logger.warning("%s cannot be opened, retrying: %s", self._what, reason)
            self._logged = reason

    def _retry(self) -> None:
        self._retrying = asyncio.get_running_loop().create_task(self.try_now())

    async def opened(self) -> T:
        """Open once, however many callers wait for it; raises what that does, without a limit."""
        if self.value is not None:
            return self.value
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
            self._opening.add_done_callback(self._no_longer_opening)
        return await asyncio.shield(self._opening)

    def _no_longer_opening(self, task: asyncio.Task[T]) -> None:
        self._opening = None
        if not task.cancelled():
            task.exception()  # retrieved, even where nobody waits any more

    async def _open(self) -> T:
        self.value = value = await self._do_open()
        if self._logged:
            logger.info("%s is open now", self._what)
            self._logged = ""
        return value


def database_file(url: str) -> Path | None:
    """Return the file of a SQLite database; None where it is in memory, or on a server.

    >>> database_file("sqlite:///data/a.db?timeout=1"), database_file("sqlite://")
    (PosixPath('data/a.db'), None)
    """
    scheme, _, path = url.partition(":///")
    path = path.partition("?")[0]
    return Path(path) if scheme.startswith("sqlite") and path not in ("", ":memory:") else None


def may_hold(url: str) -> bool:
    """Say whether a database may exist, and hold something, without creating it.

    >>> may_hold("postgresql://host/name"), may_hold("sqlite://")
    (True, False)
    """
    file = database_file(url)
    if file is None:
        return not url.startswith("sqlite")
    try:
        return file.exists()
    except OSError:  # a folder that may not be entered
        return True
