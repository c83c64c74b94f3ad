"""The coordinator for one process: the core is called directly, with no task and no queue between.

`post` never re-enters: an event posted from inside a callback is taken when the present one is
done, before the outer `post` returns. One timer is armed, for the core's next deadline.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from forebay.core import Event, Options, Scheduler, Ticked

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.clock import TimerHandle
    from forebay.coordination.port import CallAt, Perform
    from forebay.coordination.protocol.messages import About


class InProcess:
    """Runs the core in the caller's own thread.

    >>> from forebay.core import Arrived, NodeChanged
    >>> from forebay.testing import FakeClock
    >>> clock, actions = FakeClock(), []
    >>> coordinator = InProcess(Options(), actions.append, clock.monotonic_s, clock.call_at)
    >>> coordinator.post(NodeChanged("gpu1", slots=1, models=("llama",)))
    >>> coordinator.post(Arrived("a", "llama"))
    >>> coordinator.post(Arrived("b", "llama", max_wait_s=5.0))
    >>> clock.advance(5.0)
    >>> [(type(action).__name__, action.id) for action in actions]
    [('Route', 'a'), ('Wait', 'b'), ('Expire', 'b')]
    """

    def __init__(
        self,
        options: Options,
        perform: Perform,
        monotonic_s: Callable[[], float],
        call_at: CallAt,
    ) -> None:
        self._scheduler = Scheduler(options)
        self._perform = perform
        self._monotonic_s = monotonic_s
        self._call_at = call_at
        self._inbox: deque[Event] = deque()
        self._draining = False
        self._stopped = False
        self._timer: TimerHandle | None = None
        self._timer_s: float | None = None

    def post(self, event: Event) -> None:
        """Hand one event to the core and perform what it decides, before returning.

        A callback that raises does not keep the others from being performed, nor later events
        from being taken: a lost action would be a lost slot. The errors come out at the end.
        """
        if self._stopped:
            return
        if self._draining:
            self._inbox.append(event)
            return
        self._draining = True
        errors: list[Exception] = []
        try:
            self._take(event, errors)
            while self._inbox:
                self._take(self._inbox.popleft(), errors)
        finally:
            self._draining = False
            self._arm_timer()
        if errors:
            raise ExceptionGroup("performing actions failed", errors)

    # -- the lifecycle of a coordinator that shares its queue with nobody

    @property
    def fleet(self) -> None:
        """There are no other replicas."""

    def introduce(self, about: About) -> None:
        """There is nobody to introduce it to."""

    async def start(self) -> None:
        """There is nothing to join."""

    def resign(self) -> None:
        """There is nobody to take over."""

    async def close(self) -> None:
        self.stop()

    def stop(self) -> None:
        """Cancel the timer and ignore what is posted from now on; may be called twice."""
        self._stopped = True
        self._inbox.clear()
        self._arm_timer()

    def _take(self, event: Event, errors: list[Exception]) -> None:
        try:
            actions = self._scheduler.handle(event, self._monotonic_s())
        except Exception as error:  # the event was wrong; others behind it must not suffer
            errors.append(error)
            return
        for action in actions:
            if self._stopped:  # by one of these callbacks
                return
            try:
                self._perform(action)
            except Exception as error:
                errors.append(error)

    def _arm_timer(self) -> None:
        due_s = None if self._stopped else self._scheduler.next_deadline_s()
        if due_s == self._timer_s:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_s = due_s
        if due_s is not None:
            self._timer = self._call_at(due_s, self._tick)

    def _tick(self) -> None:
        self._timer = self._timer_s = None
        self.post(Ticked())
