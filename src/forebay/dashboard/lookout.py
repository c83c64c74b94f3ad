"""The picture of the queue for whoever looks: at once, a little later, or the last one there was.

Alone, the core answers before the question returns, and nothing here waits. In a fleet the answer
comes from the leader: looks that are taken meanwhile share one question, and after a second all of
them get the last picture that was known, with its age.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from forebay.core import Observed, Scheduler, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.clock import TimerHandle, Timers
    from forebay.core import Options

    Observe = Callable[[Callable[[Snapshot], None]], None]
    Told = Callable[["Look"], None]

PATIENCE_S: Final = 1.0
"""How long a look waits: a leader answers in milliseconds, and a page is drawn twice a second."""


class Look(Struct, frozen=True):
    """One picture of the queue."""

    snapshot: Snapshot
    age_s: float | None = 0.0
    """How old it is: 0 where it was asked for now, None where nothing has ever been answered and
    so everything in it is zero."""


class Lookout:
    """Asks, and tells all who want to know."""

    def __init__(self, observe: Observe, options: Callable[[], Options], clock: Timers) -> None:
        self._observe = observe
        self._options = options
        self._clock = clock
        self._waiting: list[Told] = []
        self._patience: TimerHandle | None = None
        self._last: Snapshot | None = None
        self._last_s = 0.0

    def look(self, told: Told) -> None:
        """Tell one who wants to know; before this returns, or within a second."""
        self._waiting.append(told)
        if self._patience is not None:  # the question is under way
            return
        self._observe(self._answered)
        if self._waiting:
            due_s = self._clock.monotonic_s() + PATIENCE_S
            self._patience = self._clock.call_at(due_s, self._give_up)

    async def taken(self) -> Look:
        """Return a picture, a second from now at the latest."""
        future: asyncio.Future[Look] = asyncio.get_running_loop().create_future()
        self.look(lambda look: None if future.done() else future.set_result(look))
        return await future

    async def snapshot(self) -> Snapshot:
        """Return the queue as it is, or as it was last known where nobody answers in a second."""
        return (await self.taken()).snapshot

    def _answered(self, snapshot: Snapshot) -> None:
        self._last, self._last_s = snapshot, self._clock.monotonic_s()
        self._tell(Look(snapshot))

    def _give_up(self) -> None:
        if self._last is None:
            (nothing,) = Scheduler(self._options()).handle(Observed(), 0.0)
            assert isinstance(nothing, Snapshot)
            self._tell(Look(nothing, None))
        else:
            self._tell(Look(self._last, self._clock.monotonic_s() - self._last_s))

    def _tell(self, look: Look) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        waiting, self._waiting = self._waiting, []
        for told in waiting:
            told(look)
