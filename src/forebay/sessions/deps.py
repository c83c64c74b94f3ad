"""What sessions need of the gateway, and the numbers that the metrics read from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.clock import Timers
    from forebay.relay.call import InferenceCall
    from forebay.relay.problem import Problem
    from forebay.relay.relay import Relay
    from forebay.sessions.prompt import Prompt
    from forebay.sessions.record import SessionRecord


@dataclass(frozen=True)
class SessionDeps:
    """The same for all sessions of a gateway."""

    relay: Relay
    clock: Timers
    make_call: Callable[[SessionRecord, Prompt, bytes], InferenceCall | Problem]
    """Makes a request of a body, with the settings and keys of the moment."""
    context_tokens: Callable[[str], int | None]
    """What fits into a model's context; None if no node reports it."""
    wait_s_max: Callable[[], float]
    """How long a request may wait in the queue (`queue.max_wait_seconds`)."""
    rank_of: Callable[[str], int]
    """The place of a class among the classes, the most urgent first."""
    new_id: Callable[[str], str]
    """Makes an id that nobody can guess, with this prefix."""
    owners: Callable[[], int] = field(default=lambda: 0)
    """How many owners of keys share the gateway."""
    figures: SessionFigures = field(default_factory=lambda: SessionFigures())

    def utc_s(self) -> float:
        """Return the time of day in seconds since 1970."""
        return self.clock.utc().timestamp()


class SessionFigures:
    """What the metrics read; here, so that counting does not load the database's library."""

    def __init__(self) -> None:
        self.held: Callable[[], int] = _none
        """How many sessions there are."""
        self.pending: Callable[[], int] = _none
        """How many prompts are pending in all of them, the running ones included."""
        self.outcomes: dict[str, int] = {}
        """How prompts ended: `completed`, or an error's code. Codes are ours, so they are few."""

    def count(self, outcome: str) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1


def _none() -> int:
    return 0
