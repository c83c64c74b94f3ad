"""A fleet without a store: gateways of one test that know each other by a list.

Everything is as the port says, but for what a leader does: there is none, and whoever has a ticket
is asked directly.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.coordination import FleetPicture, ReplicaView

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.coordination.protocol.fleet import Mode, ReplicaState


class FakeDirectory:
    """Who there is, for all of them."""

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        """Where each is; change it at will. One that is missing is unknown to the others."""
        self.lost: set[str] = set()
        """Those that nobody has heard of for a while."""
        self.leader = ""
        """Who is shown as leading; nobody by default."""
        self.deaf: set[str] = set()
        """Those who hear nothing now, and whom nobody hears."""
        self.members: dict[str, FakeFleet] = {}
        self.mode: Mode = "coordinated"

    def state_of(self, name: str) -> ReplicaState:
        if name in self.lost:
            return "lost"
        return "leading" if name == self.leader else "following"

    def fleet(self, name: str, has: Callable[[str], bool] | None = None) -> FakeFleet:
        """Return the fleet as one gateway sees it; `has` says whether a ticket is there."""
        made = self.members[name] = FakeFleet(self, name, has or _has_none)
        return made


class FakeFleet:
    """A `Fleet` for tests."""

    def __init__(self, directory: FakeDirectory, name: str, has: Callable[[str], bool]) -> None:
        self._directory = directory
        self._name = name
        self._has = has
        self.on_broadcast: Callable[[str, bytes], None] = _deaf
        self.broadcasts: list[tuple[str, bytes]] = []
        """What this one has told the others."""
        self.answers_s: float = 0.0
        """How long it takes to say who has a ticket."""

    @property
    def me(self) -> str:
        return self._name

    def picture(self) -> FleetPicture:
        directory = self._directory
        replicas = tuple(
            ReplicaView(name, address, directory.state_of(name), "0", "", 0, 0, 0, 0)
            for name, address in sorted(directory.addresses.items())
        )
        return FleetPicture(directory.mode, 1, self._name, replicas)

    def address_of(self, name: str) -> str | None:
        return None if name == self._name else self._directory.addresses.get(name)

    def broadcast(self, topic: str, payload: bytes) -> None:
        self.broadcasts.append((topic, payload))
        deaf = self._directory.deaf
        for name, other in self._directory.members.items():
            if name != self._name and name not in deaf and self._name not in deaf:
                asyncio.get_running_loop().call_soon(other.on_broadcast, topic, payload)

    async def owner_of(self, ticket_id: str) -> str | None:
        await asyncio.sleep(self.answers_s)
        if self._directory.mode != "coordinated":
            return None
        for name, other in self._directory.members.items():
            if other._has(ticket_id):
                return name
        return None


def _has_none(ticket_id: str) -> bool:
    return False


def _deaf(topic: str, payload: bytes) -> None:
    """Nobody listens."""
