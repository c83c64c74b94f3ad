"""Per-session FIFO: only a session's oldest unfinished entry may run or stand in a line.

The others are held: they keep their sequence number and count in the bounds, but their waiting
clock stands still, so that nothing times out behind its own session.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from forebay.core.states import ENDED

if TYPE_CHECKING:
    from forebay.core.entries import Entry


SWEEP_SLACK = 64
"""Ended entries always tolerated behind a head that goes on."""


class Session:
    """One conversation."""

    __slots__ = ("entries", "name", "unfinished")

    def __init__(self, name: str) -> None:
        self.name = name
        self.entries: deque[Entry] = deque()  # by seq; may hold ended ones behind the head
        self.unfinished = 0


class Sessions:
    """All sessions with something unfinished."""

    __slots__ = ("_sessions",)

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}

    def unfinished(self, name: str) -> int:
        """Return how much of a session has not ended."""
        session = self._sessions.get(name)
        return session.unfinished if session is not None else 0

    def join(self, name: str, entry: Entry) -> bool:
        """Append an entry to its session; return whether it heads it."""
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = Session(name)
        session.entries.append(entry)
        session.unfinished += 1
        entry.session = session
        return session.unfinished == 1

    def leave(self, entry: Entry) -> Entry | None:
        """Take an ended entry out; return the next one if that entry headed its session."""
        session = entry.session
        if session is None:
            return None
        entry.session = None
        session.unfinished -= 1
        entries = session.entries
        headed = entries[0] is entry
        while entries and entries[0].state in ENDED:
            entries.popleft()
        if len(entries) > 2 * session.unfinished + SWEEP_SLACK:
            session.entries = deque(e for e in entries if e.state not in ENDED)
        if session.unfinished == 0:
            del self._sessions[session.name]
            return None
        return session.entries[0] if headed else None
