"""What there is to count about sessions; kept apart, so that counting needs no database."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class SessionFigures:
    """Plain numbers that the metrics read."""

    def __init__(self) -> None:
        self.held: Callable[[], int] = _none
        """How many sessions there are."""
        self.pending: Callable[[], int] = _none
        """How many prompts are pending in all of them, the running ones included."""
        self.outcomes: dict[str, int] = {}
        """How prompts ended: `completed`, or an error's code. Codes are ours, so they are few."""

    def ended(self, outcome: str) -> None:
        """Count a prompt at its end."""
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1


def _none() -> int:
    return 0
