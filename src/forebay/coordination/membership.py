"""The members of the fleet: present ones, and those lost recently."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from forebay.coordination.protocol.fleet import FleetPicture, ReplicaView
from forebay.coordination.protocol.messages import Broadcast, MemberStatus, OwnerAsked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from forebay.coordination.protocol.fleet import ReplicaState
    from forebay.coordination.protocol.messages import About
    from forebay.coordination.replica import Replica
    from forebay.coordination.store.port import StoreReply

NAMESAKES = 10
"""Heartbeats, three a lease: by then the store has forgotten a gateway that was restarted."""
LEFT_MAX = 100
"""Many more than leave in two leases; a member never comes back under the same name."""
OWNER_S = 1.0
"""How long to wait for the leader's answer who has a ticket."""
REMEMBERED = 120
"""How many leases a replica that has vanished is shown as lost: ten minutes by default."""


class Roster:
    """The replicas that this one knows of."""

    def __init__(self, about: About, lease_s: float) -> None:
        self._lease_s = lease_s
        self._about = about
        self._seen: dict[str, tuple[About, float]] = {about.name: (about, 0.0)}
        self._left: deque[str] = deque(maxlen=LEFT_MAX)  # those that left with nothing running
        self._namesakes = 0  # how often in a row another had this one's name
        self._differing: set[tuple[str, ...]] = set()  # by whose settings, and the keys

    def introduce(self, about: About) -> None:
        del self._seen[self._about.name]
        self._differing.clear()
        self._about = about
        self._seen[about.name] = (about, 0.0)

    def update(self, reply: StoreReply, now_s: float) -> None:
        """Note which members there are; one that restarted replaces its former self.

        One that left in order is not lost: it is not shown once the store has forgotten it.
        """
        for about in reply.members:
            if about.name != self._about.name:
                self._seen[about.name] = (about, now_s)
        left = set(self._left) - {about.member for about in reply.members}
        for name, (about, seen_s) in list(self._seen.items()):
            gone = now_s - seen_s > REMEMBERED * self._lease_s
            if (gone or about.member in left) and name != self._about.name:
                del self._seen[name]

    def has_namesake(self, reply: StoreReply) -> bool:
        """Say, once, whether another gateway has the same address; not before its restart."""
        me = self._about
        twins = [one for one in reply.members if one.name == me.name and one != me]
        self._namesakes = self._namesakes + 1 if twins else 0
        return self._namesakes == NAMESAKES

    def differing(self, reply: StoreReply) -> tuple[str, ...]:
        """Return, once, the keys of shared settings that differ from the leader's."""
        led_by = next((one for one in reply.members if one.member == reply.leader), None)
        if led_by is None or led_by.settings == self._about.settings:
            return ()
        mine, theirs = self._about.given, led_by.given
        keys = tuple(sorted(key for key in {**mine, **theirs} if mine.get(key) != theirs.get(key)))
        if (led_by.name, *keys) in self._differing:
            return ()
        self._differing.add((led_by.name, *keys))
        return keys

    def leave(self, member: str) -> None:
        self._left.append(member)

    def expected(self, led: Iterable[MemberStatus], now_s: float) -> set[str]:
        """Return the other members that a new leader should wait for.

        Those that the leader before it had, and those seen within two leases. More than the store
        knows: one that lost its data knows only those that sent a heartbeat since.
        """
        members = {one.about.member for one in led}
        for about, seen_s in self._seen.values():
            if about.name != self._about.name and now_s - seen_s <= 2 * self._lease_s:
                members.add(about.member)
        return members - set(self._left)

    def address_of(self, name: str) -> str | None:
        """Return where another replica is reached."""
        if name == self._about.name or name not in self._seen:
            return None
        return self._seen[name][0].address or None

    def addresses(self) -> list[str]:
        names = [name for name in self._seen if name != self._about.name]
        return [address for address in map(self.address_of, names) if address is not None]

    def views(
        self, statuses: Iterable[MemberStatus], leader: str, now_s: float
    ) -> tuple[ReplicaView, ...]:
        """Return everyone, by name, as a dashboard shows them."""
        known = {standing.about.member: standing for standing in statuses}
        return tuple(
            self._view(about, seen_s, known.get(about.member), leader, now_s)
            for _, (about, seen_s) in sorted(self._seen.items())
        )

    def _view(
        self, about: About, seen_s: float, standing: MemberStatus | None, leader: str, now_s: float
    ) -> ReplicaView:
        mine = about.name == self._about.name
        silent_s = 0.0 if mine else now_s - seen_s
        standing = standing or MemberStatus(about)
        state: ReplicaState = "leading" if about.member == leader else "following"
        if silent_s > 2 * self._lease_s:
            state = "lost"
        return ReplicaView(
            name=about.name,
            address=about.address,
            state=state,
            version=about.version,
            settings=about.settings,
            waiting=standing.waiting,
            running=standing.running,
            lent=standing.lent,
            heard_s=silent_s,
        )


class Directory:
    """A `Fleet`: the replicas as the rest of the gateway sees them."""

    def __init__(self, replica: Replica) -> None:
        self.on_broadcast: Callable[[str, bytes], None] = lambda _, __: None
        self._replica = replica
        self._roster = replica.roles.roster
        self._asked: dict[str, list[asyncio.Future[str]]] = {}

    @property
    def me(self) -> str:
        return self._replica.about.name

    def picture(self) -> FleetPicture:
        replica = self._replica
        now_s, statuses, leader = replica.statuses()
        views = self._roster.views(statuses, leader, now_s)
        return FleetPicture(
            replica.mode, replica.epoch, self.me, views, replica.roles.failovers, replica.outages
        )

    def address_of(self, name: str) -> str | None:
        return self._roster.address_of(name)

    def broadcast(self, topic: str, payload: bytes) -> None:
        self._replica.send(Broadcast(topic, payload))

    async def owner_of(self, ticket_id: str) -> str | None:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        waiting = self._asked.setdefault(ticket_id, [])
        waiting.append(answer)
        if len(waiting) == 1:  # later callers share the question
            self._replica.send(OwnerAsked(ticket_id))
        try:
            async with asyncio.timeout(OWNER_S):
                return await answer or None
        except TimeoutError:
            return None
        finally:
            waiting.remove(answer)
            if not waiting and self._asked.get(ticket_id) is waiting:
                del self._asked[ticket_id]

    def on_owner(self, ticket_id: str, name: str) -> None:
        for answer in self._asked.pop(ticket_id, ()):
            if not answer.done():
                answer.set_result(name)

    def receive_broadcast(self, topic: str, payload: bytes) -> None:
        self.on_broadcast(topic, payload)

    def stop(self) -> None:
        for waiting in self._asked.values():
            for answer in waiting:
                answer.cancel()
