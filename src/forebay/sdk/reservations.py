"""How many prompts of each session are under way here: the local cap, before anything is sent.

One count per session id and client, however many session clients look at it; each of them holds its
own limit against that one count. A reservation is taken before the request is sent and given back
exactly once, whatever becomes of the prompt. The count is of this client only: the server's own cap
(`PromptQueueFullError`) is the one that holds between clients.
"""

from __future__ import annotations

import math

from forebay.sdk.errors import PendingPromptLimitError

MAX_PENDING = 5
"""The gateway's own default (`sessions.max_pending_prompts`)."""


def checked_limit(value: float | None) -> int | None:
    """Return a `max_pending` as a number, None for no limit; raises ValueError.

    >>> checked_limit(5), checked_limit(0), checked_limit(None), checked_limit(float("inf"))
    (5, None, None, None)
    """
    if value is None or value == 0 or value == math.inf:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or math.isnan(value) or value < 0 or value != int(value):
        raise ValueError(
            f"max_pending: {value!r} is not a whole number of prompts; 0 or None means no limit"
        )
    return int(value)


class Reservation:
    """The right to have one prompt under way."""

    def __init__(self, counts: dict[str, int], session_id: str) -> None:
        self._counts = counts
        self._session_id = session_id
        self._held = True
        counts[session_id] = counts.get(session_id, 0) + 1

    def release(self) -> None:
        """Give it back; the second time does nothing."""
        if not self._held:
            return
        self._held = False
        left = self._counts[self._session_id] - 1
        if left:
            self._counts[self._session_id] = left
        else:
            del self._counts[self._session_id]


class Reservations:
    """The counts of one client."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def take(self, session_id: str, limit: int | None) -> Reservation:
        """Take one more; raises PendingPromptLimitError where that would be more than the limit."""
        held = self.held(session_id)
        if limit is not None and held >= limit:
            raise PendingPromptLimitError(session_id, limit, held)
        return Reservation(self._counts, session_id)

    def held(self, session_id: str) -> int:
        """Return how many prompts of a session are under way here."""
        return self._counts.get(session_id, 0)
