"""What sessions need of the gateway around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.clock import Timers
    from forebay.relay.call import Call
    from forebay.relay.problem import Problem
    from forebay.relay.relay import Relay
    from forebay.sessions.prompt import Prompt
    from forebay.sessions.record import SessionRecord


@dataclass(frozen=True)
class Surroundings:
    """Handed in once, and the same for all sessions of a gateway."""

    relay: Relay
    clock: Timers
    make_call: Callable[[SessionRecord, Prompt, bytes], Call | Problem]
    """Makes a request of a body, as the settings and keys of the moment say."""
    context_tokens: Callable[[str], int | None]
    """What fits into a model's context; None where no node says."""
    wait_s_max: Callable[[], float]
    """How long a request may wait in the queue (`queue.max_wait_seconds`)."""
    rank_of: Callable[[str], int]
    """The place of a class among the classes, the most urgent first."""
    new_id: Callable[[str], str]
    """Makes an id that nobody can guess, with this prefix."""

    def utc_s(self) -> float:
        """Return the time of day in seconds since 1970."""
        return self.clock.utc().timestamp()
