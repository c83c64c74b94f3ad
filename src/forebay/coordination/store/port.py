"""The port to the store that replicas share: the lease, the membership and the messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forebay.coordination.protocol.messages import About


class StoreLost(Exception):
    """The store did not answer, or not in time, or cannot do what it must; try again later."""


class Registration(NamedTuple):
    """What a replica's heartbeat tells the store."""

    about: About
    token: str
    """`epoch:member` while it leads, else empty."""
    epoch: int
    """The highest one it knows of: the next leader's is higher, even on a store that lost all."""
    may_lead: bool


class StoreReply(NamedTuple):
    """The store's answer to a heartbeat."""

    epoch: int
    leader: str
    """The member that leads; empty when none does."""
    left_s: float
    """How long its lease runs without being renewed."""
    members: tuple[About, ...]
    """All that sent a heartbeat within the last lease."""


class StreamEntry(NamedTuple):
    """One message read from a stream."""

    id: bytes
    payload: bytes


class Store(Protocol):
    """What replicas need. Every call raises StoreLost where it fails, and has a time limit."""

    async def heartbeat(self, registration: Registration) -> StoreReply:
        """Register, renew the lease or take a free one, and learn who is there."""
        ...

    async def send_up(self, epoch: int, payloads: Sequence[bytes]) -> None:
        """Append to the stream of the leader of an epoch."""
        ...

    async def send_down(
        self, token: str, payloads: Sequence[tuple[str, bytes]], *, last: bool = False
    ) -> bool:
        """Append to the streams of replicas, if the token still holds the lease; else False.

        With `last` the lease is given up in the same step.
        """
        ...

    async def read_up(self, epoch: int, after: bytes, wait_s: float) -> list[StreamEntry]:
        """Wait for what comes after an entry of a leader's stream; empty when nothing came."""
        ...

    async def read_down(self, member: str, after: bytes, wait_s: float) -> list[StreamEntry]:
        """Wait for what comes after an entry of a replica's stream; empty when nothing came."""
        ...

    async def leave(self, member: str) -> None: ...

    async def close(self) -> None:
        """Close all connections; may be called twice."""
        ...
