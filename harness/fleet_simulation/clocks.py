"""Time in a simulated fleet: one world, and in it machines whose clocks differ, stop and die."""

from __future__ import annotations

import asyncio
import selectors
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sized
    from datetime import datetime

    from forebay.testing.clock import FakeClock, FakeTimer

GRAIN_S = 1e-6
"""A timer of a machine fires this much late, so that rounding never makes it early."""


class Idle(selectors.SelectSelector):
    """Waits for nothing: while a loop has nothing to do, the world moves on, event by event."""

    def __init__(self, move_on: Callable[[], bool]) -> None:
        super().__init__()
        self._move_on = move_on
        self.ready: Sized = ()
        """What the loop has to do."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            while self._move_on() and not self.ready:
                pass
        return []


def virtual_loop(move_on: Callable[[], bool]) -> asyncio.AbstractEventLoop:
    """Return a loop that calls `move_on` instead of waiting for sockets and for time.

    Most events give the loop nothing to do: a turn of it for each costs more than the event. When
    `move_on` says no, the loop gets its turn.
    """
    idle = Idle(move_on)
    loop = asyncio.SelectorEventLoop(idle)
    idle.ready = loop._ready  # type: ignore[attr-defined] # asyncio has no other way to ask
    return loop


class Timer:
    """A timer of one machine."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback
        self.due: FakeTimer | None = None
        """The same, as the world has it."""

    def cancel(self) -> None:
        self._callback = None
        if self.due is not None:
            self.due.cancel()

    def fire(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class MachineClock:
    """The clock of one machine: with its own zero and its own rate, over the world's.

    Everything that happens to the machine goes through `deliver`: while it is frozen that piles up
    and comes all at once when it thaws; what comes to a dead one is lost.
    """

    def __init__(self, world: FakeClock, offset_s: float = 0.0, rate: float = 1.0) -> None:
        self._world = world
        self._offset_s = offset_s
        self._rate = rate
        self._parked: list[Callable[[], None]] = []
        self.frozen = False
        self.dead = False

    def monotonic_s(self) -> float:
        return self._offset_s + self._world.monotonic_s() * self._rate

    def utc(self) -> datetime:
        return self._world.utc()

    def call_at(self, at_s: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        due_s = (at_s - self._offset_s) / self._rate + GRAIN_S
        timer.due = self._world.call_at(due_s, lambda: self.deliver(timer.fire))
        return timer

    def deliver(self, callback: Callable[[], None]) -> None:
        """Let something happen to the machine, now or when it thaws."""
        if self.dead:
            return
        if self.frozen:
            self._parked.append(callback)
        else:
            callback()

    def thaw(self) -> None:
        """Go on: all that piled up happens now, each on its own."""
        self.frozen = False
        parked, self._parked = self._parked, []
        now_s = self._world.monotonic_s()
        for callback in parked:
            self._world.call_at(now_s, partial(self.deliver, callback))
