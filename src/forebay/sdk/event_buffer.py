"""Events on their way to one reader, bounded: a slow one loses the oldest, and is told."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from forebay.sdk.values import SessionEvent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

EVENTS_MAX = 2048
"""As many as the gateway itself holds for a session."""


class EventBuffer:
    """A line of events that ends; may be read by one reader at a time."""

    def __init__(self, events_max: int = EVENTS_MAX) -> None:
        self._events: deque[SessionEvent] = deque()
        self._events_max = events_max
        self._lost: tuple[int, int] | None = None
        """The first and the last id of what was dropped since the last read."""
        self._ended = False
        self._changed = asyncio.Event()

    def add(self, event: SessionEvent) -> None:
        """Put one at the end; the oldest is dropped where there are too many."""
        self._events.append(event)
        if len(self._events) > self._events_max:
            dropped = self._events.popleft().id
            self._lost = (dropped if self._lost is None else self._lost[0], dropped)
        self._changed.set()

    def end(self) -> None:
        """Say that no more will come; what is here can still be read."""
        self._ended = True
        self._changed.set()

    async def read(self) -> AsyncGenerator[SessionEvent, None]:
        """Yield events until the end; a `gap` where some were dropped."""
        while True:
            if self._lost is not None:
                first, last = self._lost
                self._lost = None
                yield SessionEvent("gap", last, None, {"missedFrom": first, "missedTo": last})
            elif self._events:
                yield self._events.popleft()
            elif self._ended:
                return
            else:
                self._changed.clear()
                await self._changed.wait()
