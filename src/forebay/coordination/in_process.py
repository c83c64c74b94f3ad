"""The coordinator for one process: the core is called directly, with no task and no queue between.

`post` never re-enters: an event posted from inside a callback is taken when the present one is
done, before the outer `post` returns. One timer is armed, for the core's next deadline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.coordination.serial_executor import SerialExecutor
from forebay.core import Event, Options, Scheduler, Ticked

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.clock import Timers
    from forebay.coordination.port import Perform
    from forebay.coordination.protocol.messages import About


class InProcess:
    """Runs the core in the caller's own thread.

    >>> from forebay.core import Arrived, NodeChanged
    >>> from forebay.testing import FakeClock
    >>> clock, actions = FakeClock(), []
    >>> coordinator = InProcess(Options(), actions.append, clock)
    >>> coordinator.post(NodeChanged("gpu1", slots=1, models=("llama",)))
    >>> coordinator.post(Arrived("a", "llama"))
    >>> coordinator.post(Arrived("b", "llama", max_wait_s=5.0))
    >>> clock.advance(5.0)
    >>> [(type(action).__name__, action.id) for action in actions]
    [('Route', 'a'), ('Wait', 'b'), ('Expire', 'b')]
    """

    def __init__(self, options: Options, perform: Perform, clock: Timers) -> None:
        scheduler = Scheduler(options)
        self._executor: SerialExecutor[Event] = SerialExecutor(
            scheduler.handle, perform, clock, scheduler.next_deadline_s, Ticked()
        )
        self.post: Callable[[Event], None] = self._executor.submit
        """Hand one event to the core and perform what it decides, before returning."""

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
        self._executor.stop()
