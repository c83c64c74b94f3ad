"""Observe the queue, wherever its scheduler runs.

Alone, the scheduler answers before the call returns, and nothing here waits. In a fleet the answer
comes from the leader: observers that come meanwhile share one request, and after a second all of
them get the last snapshot that was received, with its age.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from forebay.core import Observed, Scheduler, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.clock import TimerHandle, Timers
    from forebay.core import Options

    Observe = Callable[[Callable[[Snapshot], None]], None]
    ObservationCallback = Callable[["QueueObservation"], None]


TIMEOUT_S: Final = 1.0
"""A leader answers in milliseconds, and a page is drawn twice a second."""


class QueueObservation(Struct, frozen=True):
    """A snapshot of the queue, and how old it is."""

    snapshot: Snapshot
    age_s: float | None = 0.0
    """0 where it was taken now, None where none was ever received and so everything in it is 0."""


class QueueObserver:
    """Shares one request for a snapshot among concurrent callers."""

    def __init__(
        self,
        observe: Observe,
        options: Callable[[], Options],
        clock: Timers,
        bodies_refused: Callable[[], int],
    ) -> None:
        """`bodies_refused` counts here what was `queue_full` before the scheduler heard of it."""
        self._observe = observe
        self._bodies_refused = bodies_refused
        self._options = options
        self._clock = clock
        self._waiting: list[ObservationCallback] = []
        self._timeout: TimerHandle | None = None
        self._last: Snapshot | None = None
        self._last_s = 0.0

    def observe(self, done: ObservationCallback) -> None:
        """Call `done` with an observation, before this returns or within TIMEOUT_S."""
        self._waiting.append(done)
        if self._timeout is not None:  # a request is under way
            return
        self._observe(self._received)
        if self._waiting:
            due_s = self._clock.monotonic_s() + TIMEOUT_S
            self._timeout = self._clock.call_at(due_s, self._timed_out)

    async def observation(self) -> QueueObservation:
        """Return an observation, within TIMEOUT_S."""
        future: asyncio.Future[QueueObservation] = asyncio.get_running_loop().create_future()
        self.observe(lambda seen: None if future.done() else future.set_result(seen))
        return await future

    async def snapshot(self) -> Snapshot:
        """Return the queue as it is, or as it was last known where there is no answer in time."""
        return (await self.observation()).snapshot

    def _received(self, snapshot: Snapshot) -> None:
        if refused := self._bodies_refused():
            totals = snapshot.totals
            rejected = totals.rejected | {"queue_full": totals.refused(["queue_full"]) + refused}
            totals = msgspec.structs.replace(totals, rejected=rejected)
            snapshot = msgspec.structs.replace(snapshot, totals=totals)
        self._last, self._last_s = snapshot, self._clock.monotonic_s()
        self._deliver(QueueObservation(snapshot))

    def _timed_out(self) -> None:
        if self._last is None:
            (nothing,) = Scheduler(self._options()).handle(Observed(), 0.0)
            assert isinstance(nothing, Snapshot)
            self._deliver(QueueObservation(nothing, None))
        else:
            self._deliver(QueueObservation(self._last, self._clock.monotonic_s() - self._last_s))

    def _deliver(self, observation: QueueObservation) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(observation)
