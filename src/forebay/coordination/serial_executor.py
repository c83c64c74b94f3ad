"""Handle events one at a time without re-entry, with one timer for the next deadline."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.clock import TimerHandle, Timers
    from forebay.coordination.port import Perform
    from forebay.core import Action

T = TypeVar("T")


class SerialExecutor(Generic[T]):
    """Never re-enters: what is submitted from inside a callback is handled after the present one.

    `handle` decides about one thing, `perform` carries out the actions, and at `next_due_s()` the
    thing called `tick` is submitted.
    """

    def __init__(
        self,
        handle: Callable[[T, float], list[Action]],
        perform: Perform,
        clock: Timers,
        next_due_s: Callable[[], float | None],
        tick: T,
    ) -> None:
        self._handle = handle
        self._perform = perform
        self._monotonic_s = clock.monotonic_s
        self._call_at = clock.call_at
        self._next_due_s = next_due_s
        self._tick = tick
        self._inbox: deque[T] = deque()
        self._busy = False
        self._stopped = False
        self._timer: TimerHandle | None = None
        self.timer_s: float | None = None
        """When the timer fires; None while none is armed."""

    def submit(self, item: T) -> None:
        """Handle it now, before this returns, or after the one under way.

        A callback that raises does not keep the others from being performed, nor later items
        from being handled: a lost action would be a lost slot. The errors come out at the end.
        """
        if self._stopped:
            return
        if self._busy:
            self._inbox.append(item)
            return
        self._busy = True
        errors: list[Exception] = []
        try:
            self._run(item, errors)
            while self._inbox:
                self._run(self._inbox.popleft(), errors)
        finally:
            self._busy = False
            due_s = None if self._stopped else self._next_due_s()
            if due_s != self.timer_s:
                self._arm_timer(due_s)
        if errors:
            raise ExceptionGroup("performing actions failed", errors)

    @property
    def is_free(self) -> bool:
        """Whether nothing is under way, and it has not stopped."""
        return not (self._busy or self._stopped)

    def perform(self, perform: Perform, action: Action) -> None:
        """Perform what was decided elsewhere; what its callback submits is handled after it."""
        self._busy = True
        try:
            perform(action)
        except Exception as error:
            raise ExceptionGroup("performing actions failed", [error]) from None
        finally:
            self._busy = False
            if self._inbox:
                self.submit(self._inbox.popleft())

    def stop(self) -> None:
        """Cancel the timer and ignore what is submitted from now on; may be called twice."""
        self._stopped = True
        self._inbox.clear()
        self._arm_timer(None)

    def _run(self, item: T, errors: list[Exception]) -> None:
        try:
            actions = self._handle(item, self._monotonic_s())
        except Exception as error:  # the item was wrong; others behind it must not suffer
            errors.append(error)
            return
        for action in actions:
            if self._stopped:  # by one of these callbacks
                return
            try:
                self._perform(action)
            except Exception as error:
                errors.append(error)

    def _arm_timer(self, due_s: float | None) -> None:
        if self._timer is not None:
            if due_s is not None and self.timer_s is not None and self.timer_s < due_s:
                return  # most deadlines are never met: one that is moot costs a tick, not a timer
            self._timer.cancel()
            self._timer = None
        self.timer_s = due_s
        if due_s is not None:
            self._timer = self._call_at(due_s, self._fire)

    def _fire(self) -> None:
        self._timer = self.timer_s = None
        self.submit(self._tick)
