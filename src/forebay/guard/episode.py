"""How one gateway takes our heartbeats: when to send the next, and what is worth a line in the log.

Pure: outcomes go in, a delay and at most one line come out. A gateway that is away for an hour
costs two lines, one when it goes and one when it is back.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from forebay.guard.beat import HEARTBEAT_S

AGAIN_S_MAX: Final = 10.0
"""How long a gateway that is back may wait for us, at worst."""


class Next(NamedTuple):
    """What follows from one heartbeat."""

    delay_s: float
    line: str
    """For the log; "" where there is nothing new to say."""
    is_bad: bool = False


class Episode:
    """One gateway, as its answers show it.

    >>> episode = Episode()
    >>> episode.took("").line, episode.took("").line
    ('registered', '')
    >>> episode.took("no connection"), episode.took("no connection").delay_s
    (Next(delay_s=2.0, line='not registered: no connection', is_bad=True), 4.0)
    """

    def __init__(self) -> None:
        self.registered = False
        """Whether the last heartbeat was taken."""
        self.complaint = ""
        """What was wrong with it; "" where nothing was."""
        self._failures = 0  # in a row
        self._told = False

    def took(self, complaint: str) -> Next:
        """Take how a heartbeat went: "" where the gateway took it, else what was wrong."""
        news = not self._told or self.registered == bool(complaint)
        news = news or (bool(complaint) and complaint != self.complaint)
        self._told = True
        self.registered, self.complaint = not complaint, complaint
        if not complaint:
            self._failures = 0
            return Next(HEARTBEAT_S, "registered" if news else "")
        delay_s = min(AGAIN_S_MAX, HEARTBEAT_S * 2.0 ** min(self._failures, 8))
        self._failures += 1
        return Next(delay_s, f"not registered: {complaint}" if news else "", True)
