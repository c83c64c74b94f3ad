"""Changes that the store tells on its own thread, brought to the event loop, many at a time."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.jobs.job import Change
    from forebay.jobs.store.job_store import JobStore

AT_ONCE = 500
"""Changes told in one go: a batch of 50,000 that is cancelled must not hold up the loop."""


class Hearing:
    """Calls back on the loop with all that was committed since the last time, in order."""

    def __init__(
        self,
        store: JobStore,
        told: Callable[[list[Change]], None],
        look: Callable[[], object] = lambda: None,
    ) -> None:
        """`look` is called when other programs may have changed anything at all."""
        self._news = store.news
        self._told = told
        self._look = look
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._heard: list[Change] = []

    def start(self) -> None:
        """Listen."""
        self._news.listeners.append(self._hear)
        self._news.lookers.append(self._see)

    def stop(self) -> None:
        """Listen no longer; may be called twice."""
        with contextlib.suppress(ValueError):
            self._news.listeners.remove(self._hear)
            self._news.lookers.remove(self._see)

    def _hear(self, change: Change) -> None:
        with self._lock:
            self._heard.append(change)
            first = len(self._heard) == 1
        if first:  # one call of the loop serves all that gathers until it comes
            with contextlib.suppress(RuntimeError):  # the loop has closed: nobody listens
                self._loop.call_soon_threadsafe(self._tell)

    def _see(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._look)

    def _tell(self) -> None:
        with self._lock:
            heard, self._heard = self._heard[:AT_ONCE], self._heard[AT_ONCE:]
            more = bool(self._heard)
        if more:  # others have a turn in between
            self._loop.call_soon(self._tell)
        self._told(heard)
