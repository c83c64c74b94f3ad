"""The Coordinator port: events from callers to the scheduler, actions back by callback.

Callers post events and are handed actions by callback: at once (before `post` returns), later, or
from another process. Nobody reads core state, so nobody can tell the difference, and the relay
works unchanged when several replicas share one queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from forebay.core import Action, Event

if TYPE_CHECKING:
    from forebay.coordination.protocol.fleet import Fleet
    from forebay.coordination.protocol.messages import About

Perform: TypeAlias = Callable[[Action], None]
"""Do what an action says. Must not block; may post."""


class Coordinator(Protocol):
    """Takes events; the resulting actions are passed to its `Perform` callback.

    In one process there is nothing to join, lead or leave: everything but `post` and `stop` does
    nothing then.
    """

    @property
    def fleet(self) -> Fleet | None:
        """The replicas that share the queue; None where it is not shared."""
        ...

    def post(self, event: Event) -> None:
        """Hand over one event. Never waits and never blocks.

        Each ticket's actions come in the order in which they were decided.
        """
        ...

    def introduce(self, about: About) -> None:
        """Set what the other replicas know of this one: before `start`, and after a reload."""
        ...

    async def start(self) -> None:
        """Join the other replicas, or begin alone where the store does not answer."""
        ...

    def resign(self) -> None:
        """Give up leadership, so that another replica takes over at once."""
        ...

    def stop(self) -> None:
        """Perform nothing any more; may be called twice. Post `ShutDown` first to answer all."""
        ...

    async def close(self) -> None:
        """Stop, leave the other replicas, and close all connections."""
        ...
