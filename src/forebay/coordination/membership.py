"""Who is in the fleet, as the store says it, and who was a moment ago; what others see of it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from forebay.coordination.protocol.fleet import FleetPicture, ReplicaView
from forebay.coordination.protocol.messages import Asked, Standing, Told
from forebay.coordination.store.port import Sign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from forebay.coordination.protocol.fleet import ReplicaState
    from forebay.coordination.protocol.messages import About
    from forebay.coordination.replica import Replica
    from forebay.coordination.store.port import Standing as StoreStanding

NAMESAKES = 10
"""Signs of life, three a lease: by then a gateway that was killed and came back is forgotten."""
LEFT_MAX = 100
"""Many more than leave in two leases, one after the other; a member never comes back."""
OWNER_S = 1.0
"""How long the leader may take to say who has a ticket."""
REMEMBERED = 120
"""How many leases a replica that has vanished is shown as lost: ten minutes by default."""


class Roster:
    """The replicas that this one knows of."""

    def __init__(self, about: About, lease_s: float) -> None:
        self._lease_s = lease_s
        self._about = about
        self._seen: dict[str, tuple[About, float]] = {about.name: (about, 0.0)}
        self._left: deque[str] = deque(maxlen=LEFT_MAX)  # who said that it has nothing left
        self._namesakes = 0  # how often in a row another had this one's name
        self._differing: set[tuple[str, ...]] = set()  # by whose settings, and the keys

    def introduce(self, about: About) -> None:
        """Know who this replica is now."""
        del self._seen[self._about.name]
        self._differing.clear()
        self._about = about
        self._seen[about.name] = (about, 0.0)

    def sign(self, token: str, epoch: int, *, may_lead: bool) -> Sign:
        """Return what this replica tells the store."""
        return Sign(self._about, token, epoch, may_lead)

    def hear(self, standing: StoreStanding, now_s: float) -> None:
        """Take note of who is there; one that restarted takes the place of its old self.

        One that said goodbye is not lost: it is shown no more once the store has forgotten it.
        """
        for about in standing.members:
            if about.name != self._about.name:
                self._seen[about.name] = (about, now_s)
        left = set(self._left) - {about.member for about in standing.members}
        for name, (about, seen_s) in list(self._seen.items()):
            gone = now_s - seen_s > REMEMBERED * self._lease_s
            if (gone or about.member in left) and name != self._about.name:
                del self._seen[name]

    def has_namesake(self, standing: StoreStanding) -> bool:
        """Say, once, that another gateway has the same address; not the one before a restart."""
        me = self._about
        twins = [one for one in standing.members if one.name == me.name and one != me]
        self._namesakes = self._namesakes + 1 if twins else 0
        return self._namesakes == NAMESAKES

    def differing(self, standing: StoreStanding) -> tuple[str, ...]:
        """Return, once, the keys of settings that are other than the leader's, which decide."""
        led_by = next((one for one in standing.members if one.member == standing.leader), None)
        if led_by is None or led_by.settings == self._about.settings:
            return ()
        mine, theirs = self._about.given, led_by.given
        keys = tuple(sorted(key for key in {**mine, **theirs} if mine.get(key) != theirs.get(key)))
        if (led_by.name, *keys) in self._differing:
            return ()
        self._differing.add((led_by.name, *keys))
        return keys

    def leave(self, member: str) -> None:
        """Know that a replica goes, and has nothing left."""
        self._left.append(member)

    def expected(self, led: Iterable[Standing], now_s: float) -> set[str]:
        """Return the others whom a new leader should hear before it begins.

        Those led by the one before it, and those that were there two leases ago or less. More than
        the store says: one that has lost everything knows only who signed since.
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
        """Return where all others are reached."""
        names = [name for name in self._seen if name != self._about.name]
        return [address for address in map(self.address_of, names) if address is not None]

    def views(
        self, standings: Iterable[Standing], leader: str, now_s: float
    ) -> tuple[ReplicaView, ...]:
        """Return everyone, by name, as a dashboard shows them."""
        known = {standing.about.member: standing for standing in standings}
        return tuple(
            self._view(about, seen_s, known.get(about.member), leader, now_s)
            for _, (about, seen_s) in sorted(self._seen.items())
        )

    def _view(
        self, about: About, seen_s: float, standing: Standing | None, leader: str, now_s: float
    ) -> ReplicaView:
        mine = about.name == self._about.name
        silent_s = 0.0 if mine else now_s - seen_s
        standing = standing or Standing(about)
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
    """A `Fleet`: the replicas as the rest of the gateway sees them, and a word with them."""

    def __init__(self, replica: Replica, roster: Roster) -> None:
        self.on_told: Callable[[str, bytes], None] = lambda _, __: None
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
        self._replica.say(Told(topic, payload))

    async def owner_of(self, ticket_id: str) -> str | None:
        """Ask the leader which replica has a ticket; None when it has ended or nobody leads."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        waiting = self._asked.setdefault(ticket_id, [])
        waiting.append(answer)
        if len(waiting) == 1:  # the others share its question, and outlive it
            self._replica.say(Asked(ticket_id))
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
