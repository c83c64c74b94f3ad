"""The port between those who have requests and the one core that decides about them.

Callers post events and are handed actions by callback: at once (before `post` returns), later, or
from another process. Nobody reads core state, so nobody can tell the difference, and the relay
works unchanged when several replicas share one queue.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from forebay.clock import TimerHandle
from forebay.core import Action, Event

Perform: TypeAlias = Callable[[Action], None]
"""Do what an action says. Must not block; may post."""


CallAt: TypeAlias = Callable[[float, Callable[[], None]], TimerHandle]
"""Call back at a time of the clock in use, as `loop.call_at` does."""


class Coordinator(Protocol):
    """Takes events; what follows from them comes back through the `Perform` it was made with."""

    def post(self, event: Event) -> None:
        """Hand over one event. Never waits and never blocks.

        Each ticket's actions come in the order in which they were decided.
        """
        ...

    def stop(self) -> None:
        """Perform nothing any more; may be called twice. Post `ShutDown` first to answer all."""
        ...
