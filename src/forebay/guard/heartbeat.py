"""The heartbeat of a guard, which registers and keeps alive alike, and its backoff.

There is no separate registration that could be lost: a gateway that has restarted learns all of it
from the next heartbeat. Pure: outcomes go in, a delay and at most one log line come out. A gateway
that is away for an hour costs two lines, one when it goes and one when it is back.
"""

from __future__ import annotations

from typing import Final, NamedTuple

AGAIN_S_MAX: Final = 10.0
"""Limit of the backoff: how long a gateway that is back waits for us, at worst."""

HEARTBEAT_S: Final = 2.0
"""Between two heartbeats."""
MISSED_MAX: Final = 3
"""Heartbeats in a row that may be missed; then the gateway takes the node out."""
LOST_S: Final = HEARTBEAT_S * MISSED_MAX
NODES_PATH: Final = "/guard/nodes"
"""Where gateways receive heartbeats."""


class HeartbeatOutcome(NamedTuple):
    """What follows from one heartbeat: the delay until the next, and a line for the log."""

    delay_s: float
    line: str
    """For the log; "" where there is nothing new to say."""
    is_bad: bool = False


class RegistrationState:
    """Whether one gateway accepts our heartbeats.

    >>> state = RegistrationState()
    >>> state.record("").line, state.record("").line
    ('registered', '')
    >>> state.record("no connection"), state.record("no connection").delay_s
    (HeartbeatOutcome(delay_s=2.0, line='not registered: no connection', is_bad=True), 4.0)
    """

    def __init__(self) -> None:
        self.registered = False
        """Whether the last heartbeat was accepted."""
        self.complaint = ""
        """What was wrong with it; "" where nothing was."""
        self._failures = 0  # in a row
        self._told = False

    def record(self, complaint: str) -> HeartbeatOutcome:
        """Record one heartbeat; `complaint` is "" where the gateway accepted it."""
        news = not self._told or self.registered == bool(complaint)
        news = news or (bool(complaint) and complaint != self.complaint)
        self._told = True
        self.registered, self.complaint = not complaint, complaint
        if not complaint:
            self._failures = 0
            return HeartbeatOutcome(HEARTBEAT_S, "registered" if news else "")
        delay_s = min(AGAIN_S_MAX, HEARTBEAT_S * 2.0 ** min(self._failures, 8))
        self._failures += 1
        return HeartbeatOutcome(delay_s, f"not registered: {complaint}" if news else "", True)
