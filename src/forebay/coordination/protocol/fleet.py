"""The port to the other replicas: who they are, in which state, and messages to all of them.

A coordinator in one process has no fleet. One that shares a queue has a `Fleet`, so that the
dashboard can show the replicas and a session's requests find the replica that has it.
"""

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

Mode: TypeAlias = Literal[
    "coordinated",  # a leader decides for all
    "seeking",  # there is no leader yet, or none any more: newcomers wait for the next one
    "alone",  # the store is out of reach: this replica's share of the slots, nothing else
    "cut_off",  # the store is out of reach, but not for others: nothing new starts here
]
ReplicaState: TypeAlias = Literal["leading", "following", "lost"]


class ReplicaView(Struct, frozen=True, gc=False):
    """One gateway of the fleet, as a dashboard shows it."""

    name: str
    """Eight hexadecimal digits, the same after a restart: made from its address."""
    address: str
    """Where the other gateways reach it, as a URL."""
    state: ReplicaState
    version: str
    settings: str
    """A fingerprint of the settings that all must share."""
    waiting: int
    running: int
    lent: int
    """Slots that it may use without asking, idle or not."""
    heard_s: float
    """How long ago the leader, or the store, last heard of it."""


class FleetPicture(Struct, frozen=True, gc=False):
    """The fleet as this replica knows it."""

    mode: Mode
    epoch: int
    """How many leaders there have been; 0 before the first."""
    me: str
    replicas: tuple[ReplicaView, ...]
    """By name; those that vanished are shown as lost for a while."""
    failovers: int = 0
    """Changes of leader that this replica has seen."""
    outages: int = 0
    """Times that this replica lost the store."""


class Fleet(Protocol):
    """The replicas that share one queue."""

    @property
    def me(self) -> str: ...

    on_broadcast: Callable[[str, bytes], None]
    """Called with the topic and the payload of another replica's broadcast."""

    def picture(self) -> FleetPicture:
        """Return the fleet as it is known here; costs no round trip."""
        ...

    def address_of(self, name: str) -> str | None:
        """Return where a replica is reached; None for this one and for those unknown."""
        ...

    def broadcast(self, topic: str, payload: bytes) -> None:
        """Send something to every other replica, at most once: one that is away misses it."""
        ...

    async def owner_of(self, ticket_id: str) -> str | None:
        """Ask the leader which replica has a ticket; None when it has ended or nobody leads."""
        ...
