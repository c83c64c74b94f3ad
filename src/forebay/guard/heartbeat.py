"""The heartbeat of a guard, which registers and keeps alive alike, and its backoff.

There is no separate registration that could be lost: a gateway that has restarted learns all of it
from the next heartbeat. Pure: outcomes go in, a delay and at most one log line come out. A gateway
that is away for an hour costs two lines, one when it goes and one when it is back.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

from msgspec import Meta, Struct

AGAIN_S_MAX: Final = 10.0
"""Limit of the backoff: how long a gateway that is back waits for us, at worst."""

HEARTBEAT_S: Final = 2.0
"""Between two heartbeats."""
MISSED_MAX: Final = 3
"""Heartbeats in a row that may be missed; then the gateway takes the node out."""
LOST_S: Final = HEARTBEAT_S * MISSED_MAX
NODES_PATH: Final = "/guard/nodes"
"""Where gateways receive heartbeats."""

GuardState: TypeAlias = Literal["idle", "busy", "loading", "offline", "draining"]
"""`idle`: nothing runs; `busy`: something does; `loading`: the backend says so of itself;
`offline`: the backend does not answer; `draining`: the guard is about to stop."""

Text: TypeAlias = Annotated[str, Meta(max_length=256)]
Bytes: TypeAlias = Annotated[int, Meta(ge=0, le=2**60)]


class GuardHeartbeat(Struct, frozen=True, kw_only=True):
    """One heartbeat. Members that are not known here are left alone: guards may be newer."""

    name: Text
    """The node's name in the gateway."""
    url: Text
    """Where the gateway reaches the guard."""
    instance: Annotated[str, Meta(min_length=8, max_length=64)]
    """Drawn anew whenever a guard starts: tells a restart from two guards of one name."""
    state: GuardState
    slots: Annotated[int, Meta(ge=1, le=10_000)]
    model_slots: dict[Text, int] = {}
    """Slots beside these that some models have for themselves, by pattern."""
    in_flight: Annotated[int, Meta(ge=0, le=10_000)] = 0
    gpu_load: Annotated[float, Meta(ge=0, le=1)] | None = None
    vram_used_bytes: Bytes | None = None
    vram_total_bytes: Bytes | None = None
    kv_free_tokens: Annotated[int, Meta(ge=0, le=2**40)] | None = None
    """Tokens for which the backend's key-value cache has room; None where it does not say."""
    kind: Text = ""
    """The kind of the backend; "" while it is not known."""
    version: Text = ""
    """The backend's own version."""


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
