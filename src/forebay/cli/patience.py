"""Waiting for a gateway that is away for a moment: restarted, replaced, or out of reach.

Pauses grow from PAUSE_S to PAUSE_S_MAX. One that stays away for AWAY_S_MAX is given up; what it was
given to do is safe with it, so nothing is lost but the watching.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

from forebay.cli.gateway_client import GatewayAway, GatewayRefused, Senseless

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.clock import Clock

T = TypeVar("T")

PAUSE_S = 1.0
PAUSE_S_MAX = 15.0
AWAY_S_MAX = 600.0
"""Longer than a restart with a large model to load; shorter than a night."""


def wait_s(seconds: float) -> None:
    """Let time pass; Ctrl-C ends it at once."""
    threading.Event().wait(seconds)


class Patience:
    """Asks until there is an answer, within bounds."""

    def __init__(
        self, clock: Clock, say: Callable[[str], None], wait: Callable[[float], None] | None = None
    ) -> None:
        self._clock = clock
        self.say = say
        """Where people are told; may be changed."""
        self.wait = wait or wait_s

    def until_answered(self, ask: Callable[[], T]) -> T:
        """Return what `ask` does; raises GatewayAway at last, and GatewayRefused for a real no."""
        since_s: float | None = None
        pause_s = PAUSE_S
        while True:
            try:
                answer = ask()
            except (GatewayAway, GatewayRefused) as problem:
                if not is_passing(problem):
                    raise
                now_s = self._clock.monotonic_s()
                if since_s is None:
                    since_s = now_s
                    self.say(f"{_reason(problem)} Waiting for it to come back.")
                elif now_s - since_s >= AWAY_S_MAX:
                    raise
            else:
                if since_s is not None:
                    self.say("The gateway is back.")
                return answer
            self.wait(pause_s)
            pause_s = min(pause_s * 2, PAUSE_S_MAX)


def is_passing(problem: GatewayAway | GatewayRefused) -> bool:
    """Say whether asking again later may help."""
    if isinstance(problem, GatewayAway):
        return not isinstance(problem, Senseless)
    return problem.status >= 500 or problem.status == 429


def _reason(problem: GatewayAway | GatewayRefused) -> str:
    if isinstance(problem, GatewayRefused):
        return f"The gateway says: {problem} ({problem.code})."
    reason = str(problem).partition(" Start one with")[0]
    return reason[:1].upper() + reason[1:]
