"""The fleet as the rest of the gateway sees it: who is there, and a word with them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.coordination.protocol.fleet import FleetPicture

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.coordination.membership import Roster
    from forebay.coordination.replica import Replica

OWNER_S = 1.0
"""How long the leader may take to say who has a ticket."""


class Directory:
    """A `Fleet`."""

    def __init__(self, replica: Replica, roster: Roster) -> None:
        self.on_told: Callable[[str, bytes], None] = _ignore
        self._replica = replica
        self._roster = roster
        self._asked: dict[str, list[asyncio.Future[str]]] = {}

    @property
    def me(self) -> str:
        """The name of this replica."""
        return self._replica.about.name

    def picture(self) -> FleetPicture:
        """Return the fleet as it is known here; costs no round trip."""
        replica = self._replica
        now_s, standings, leader = replica.standings()
        views = self._roster.views(standings, leader, now_s)
        return FleetPicture(
            replica.mode, replica.epoch, self.me, views, replica.failovers, replica.outages
        )

    def address_of(self, name: str) -> str | None:
        """Return where a replica is reached; None for this one and for those unknown."""
        return self._roster.address_of(name)

    def tell(self, topic: str, payload: bytes) -> None:
        """Tell every other replica something, at most once: who is away does not hear it."""
        self._replica.tell(topic, payload)

    async def owner_of(self, ticket_id: str) -> str | None:
        """Ask the leader which replica has a ticket; None when it has ended or nobody leads."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        waiting = self._asked.setdefault(ticket_id, [])
        waiting.append(answer)
        if len(waiting) == 1:  # the others share its question, and outlive it
            self._replica.ask_owner(ticket_id)
        try:
            async with asyncio.timeout(OWNER_S):
                return await answer or None
        except TimeoutError:
            return None
        finally:
            waiting.remove(answer)
            if not waiting and self._asked.get(ticket_id) is waiting:
                del self._asked[ticket_id]

    def hear_owner(self, ticket_id: str, name: str) -> None:
        """Take the leader's answer."""
        for answer in self._asked.pop(ticket_id, ()):
            if not answer.done():
                answer.set_result(name)

    def hear_told(self, topic: str, payload: bytes) -> None:
        """Take what another replica tells everyone."""
        self.on_told(topic, payload)

    def stop(self) -> None:
        """Answer nobody any more."""
        for waiting in self._asked.values():
            for answer in waiting:
                answer.cancel()


def _ignore(_: str, __: bytes) -> None:
    pass
