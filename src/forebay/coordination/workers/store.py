"""The store of worker processes on one machine: a `Store` without any server.

The parent knows who lives, and tells everyone who leads (`election`): a heartbeat is answered from
what it told last, without a round trip. Messages go straight from a worker to the leader and back,
over one Unix socket each. A worker that died is reported to the leader in the words that one which
leaves in order has for it, so its slots and places are free at once.

**Loss.** Frames are lost where a connection ends, or where a worker does not read for so long that
it is cut off. They are numbered by the protocol above, which announces everything anew after a gap.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final

from forebay.coordination.protocol.messages import (
    MemberLeft,
    ReplicaBatch,
    decode_about,
    encode,
)
from forebay.coordination.store.port import StoreLost, StoreReply, StreamEntry
from forebay.coordination.workers.frames import FrameConnection
from forebay.coordination.workers.messages import (
    GroupState,
    Joined,
    Left,
    SteppedDown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from forebay.coordination.store.port import Registration
    from forebay.coordination.workers.parent_link import ParentLink

LEASE_S: Final = 3.0
"""Only for how long a loan is used, and an answer awaited, without a sign of the leader: it is the
parent that notices when one has died. A new leader waits a third of it for announcements."""
INBOX_MAX: Final = 10_000
"""Frames that wait to be read; whoever sends more is cut off, and announces itself anew."""
EPOCH_BYTES: Final = 8
BATCH, ORDERS, ASIDE = b"b", b"o", b"a"
"""What a frame holds: a batch and its epoch, orders, or something for other parts of a worker."""


class Inbox:
    """Frames that have arrived and are not read yet."""

    def __init__(self) -> None:
        self._entries: deque[tuple[int, bytes]] = deque()
        self._arrived = asyncio.Event()

    def put(self, epoch: int, payload: bytes) -> bool:
        """Add one; False where there is no room."""
        if len(self._entries) >= INBOX_MAX:
            return False
        self._entries.append((epoch, payload))
        self._arrived.set()
        return True

    async def take(self, epoch: int) -> list[StreamEntry]:
        """Wait, and return what has come in an epoch; what is older is dropped.

        Returns nothing where something newer has come: there is another leader then.
        """
        entries = self._entries
        if not entries or entries[0][0] > epoch:
            self._arrived.clear()
            await self._arrived.wait()
        found: list[StreamEntry] = []
        while entries and entries[0][0] <= epoch:
            came, payload = entries.popleft()
            if came == epoch:
                found.append(StreamEntry(b"", payload))
        return found


class WorkerStore:
    """One worker's connections to the others."""

    def __init__(self, directory: Path, member: str, parent: ParentLink) -> None:
        self._directory = directory
        self._member = member
        self._parent = parent
        self._state = GroupState()
        self._said: tuple[bytes, bool] | None = None  # to the parent: about, may lead
        self._joined = asyncio.Event()
        self._changed = asyncio.Event()  # set at the next change
        self._up, self._down = Inbox(), Inbox()
        self._listening: asyncio.Server | None = None
        self._followers: dict[str, FrameConnection] = {}
        self._leader: FrameConnection | None = None  # the connection to it
        self._unnamed: set[FrameConnection] = set()
        self.on_change: Callable[[], None] = lambda: None
        """Called when another leads, or others are there."""
        self.on_leading: Callable[[], None] = lambda: None
        """Called when the parent has chosen this worker."""
        self.on_aside: Callable[[str, bytes], None] = lambda _, __: None
        """Called with what another worker sent aside, and its name."""
        self.on_follower: Callable[[str], None] = lambda _: None
        """Called when a worker has connected to this one, which leads."""

    async def open(self) -> None:
        """Be reachable for the other workers; call it before the first heartbeat."""
        self._parent.on_state = self._take_state
        path = self._path(self._member)
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_unix_server(self._accept, str(path))

    @property
    def leads(self) -> bool:
        """Whether the parent has chosen this worker."""
        return self._state.leader == self._member

    @property
    def leader(self) -> str:
        """The member that leads; "" while there is none."""
        return self._state.leader

    @property
    def members(self) -> set[str]:
        """The workers that are there now."""
        return {member for member, _ in self._state.members}

    async def change(self) -> None:
        """Wait until another leads, or others are there."""
        await self._changed.wait()

    # -- the store

    async def heartbeat(self, registration: Registration) -> StoreReply:
        if not self._parent.is_open:
            raise StoreLost("the parent is gone")
        self._join(encode(registration.about), may_lead=registration.may_lead)
        await self._joined.wait()
        state = self._state
        leader = state.leader
        if leader == self._member and not registration.token and registration.epoch >= state.epoch:
            self._parent.tell(SteppedDown(state.epoch))
            leader = ""
        await self._follow(leader)
        members = tuple(decode_about(about) for _, about in state.members)
        return StoreReply(state.epoch, leader, LEASE_S, members)

    async def send_up(self, epoch: int, payloads: Sequence[bytes]) -> None:
        connection = self._leader
        if connection is not None:
            head = BATCH + epoch.to_bytes(EPOCH_BYTES, "big")
            for payload in payloads:
                connection.send(head + payload)

    async def send_down(
        self, token: str, payloads: Sequence[tuple[str, bytes]], *, last: bool = False
    ) -> bool:
        if token != f"{self._state.epoch}:{self._state.leader}":
            return False
        for member, payload in payloads:
            connection = self._followers.get(member)
            if connection is not None:
                connection.send(ORDERS + payload)
        if last and self._said is not None:
            self._join(self._said[0], may_lead=False)
        return True

    async def read_up(self, epoch: int, after: bytes, wait_s: float) -> list[StreamEntry]:
        return await self._up.take(epoch)

    async def read_down(self, member: str, after: bytes, wait_s: float) -> list[StreamEntry]:
        return await self._down.take(0)

    async def leave(self, member: str) -> None:
        self._parent.tell(Left())

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.close()
            with contextlib.suppress(FileNotFoundError):
                self._path(self._member).unlink()
        if self._leader is not None:
            self._leader.close()
        for connection in (*self._followers.values(), *self._unnamed):
            connection.close()

    # -- for other parts of a worker

    def send_aside(self, payload: bytes, member: str = "") -> bool:
        """Send something to the leader; as the leader, to one worker or to all; or not at all.

        Return whether there was anybody to send it to; it may be lost all the same.
        """
        frame = ASIDE + payload
        if not self.leads:
            if self._leader is None:
                return False
            self._leader.send(frame)
            return True
        for name, connection in self._followers.items():
            if member in ("", name):
                connection.send(frame)
        return bool(self._followers)

    @property
    def followers(self) -> list[str]:
        """The workers that are connected to this one."""
        return list(self._followers)

    # -- inside

    def _join(self, about: bytes, *, may_lead: bool) -> None:
        if self._said != (about, may_lead):
            self._said = about, may_lead
            self._parent.tell(Joined(self._member, about, may_lead))

    def _take_state(self) -> None:
        before, self._state = self._state, self._parent.state
        now = self.members
        for member, _ in before.members:
            if member not in now:
                self._forget(member)
        if self._member in now:
            self._joined.set()
        self._changed.set()
        self._changed = asyncio.Event()
        self.on_change()
        if self.leads:
            self.on_leading()

    def _forget(self, member: str) -> None:
        """Report a worker that is gone to the leader, if that is here."""
        connection = self._followers.pop(member, None)
        if connection is not None:
            connection.abort()
        if self.leads:
            last = ReplicaBatch(member, 0, -1, (MemberLeft(member),))
            self._up.put(self._state.epoch, encode(last))

    async def _follow(self, leader: str) -> None:
        """Connect to the leader, unless that is done or it is this worker."""
        connection = self._leader
        if connection is not None:
            if connection.peer == leader and connection.is_open:
                return
            connection.close()
            self._leader = None
        if leader in ("", self._member):
            return
        # Should it end, the next heartbeat connects again, if the leader lives.
        connection = FrameConnection(self._take_from_leader, lambda _: None)
        connection.peer = leader
        loop = asyncio.get_running_loop()
        try:
            await loop.create_unix_connection(lambda: connection, str(self._path(leader)))
        except OSError:
            return  # it has just died; the parent will say so
        connection.send(self._member.encode())
        self._leader = connection

    def _path(self, member: str) -> Path:
        return self._directory / f"{member}.link"

    def _accept(self) -> FrameConnection:
        connection = FrameConnection(self._take_from_follower, self._lose)
        self._unnamed.add(connection)
        return connection

    def _take_from_follower(self, connection: FrameConnection, frame: bytes) -> None:
        if connection in self._unnamed:
            self._unnamed.discard(connection)
            connection.peer = member = frame.decode()
            former = self._followers.get(member)
            if former is not None:
                former.abort()
            self._followers[member] = connection
            self.on_follower(member)
        elif frame[:1] == ASIDE:
            self.on_aside(connection.peer, frame[1:])
        else:
            epoch = int.from_bytes(frame[1 : 1 + EPOCH_BYTES], "big")
            if not self._up.put(epoch, frame[1 + EPOCH_BYTES :]):
                connection.abort()

    def _take_from_leader(self, connection: FrameConnection, frame: bytes) -> None:
        if frame[:1] == ASIDE:
            self.on_aside(connection.peer, frame[1:])
        elif not self._down.put(0, frame[1:]):
            connection.abort()

    def _lose(self, connection: FrameConnection) -> None:
        self._unnamed.discard(connection)
        if self._followers.get(connection.peer) is connection:
            del self._followers[connection.peer]
