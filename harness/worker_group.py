"""A parent and its workers in one process, on real sockets."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from forebay.coordination.protocol.messages import About
from forebay.coordination.replica import Replica
from forebay.coordination.workers.group import WorkerGroup
from forebay.coordination.workers.parent_link import ParentLink
from forebay.coordination.workers.store import LEASE_S, WorkerStore

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.clock import Timers
    from forebay.coordination import Perform
    from forebay.core import Options


class LocalWorker:
    """One worker: its store, its replica, and its connection to the parent."""

    def __init__(self, number: int, link: ParentLink, store: WorkerStore) -> None:
        self.number = number
        self.link = link
        self.store = store
        self.replica: Replica

    def die(self) -> None:
        """End as a killed process does: every connection closes, nothing is said."""
        self.replica.stop()
        if self.store._listening is not None:
            self.store._listening.close()
        for connection in (
            self.link._connection,
            self.store._leader,
            *self.store._followers.values(),
        ):
            if connection is not None:
                connection.abort()


class GroupRig:
    """The parent."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.group = WorkerGroup()
        self.runs = 0

    async def start(
        self,
        number: int,
        options: Options,
        perform: Perform,
        clock: Timers,
        *,
        lease_s: float = LEASE_S,
    ) -> LocalWorker:
        """Start a worker; its replica has not joined yet."""
        self.runs += 1
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        await self.group.connect(ours, lambda _: None)
        link = ParentLink()
        await link.connect(theirs)
        member = f"worker{number}-{self.runs}"
        store = WorkerStore(self._directory, member, link)
        await store.open()
        worker = LocalWorker(number, link, store)
        worker.replica = Replica(
            About(member, f"unix:{member}", "1", "same"),
            options,
            perform,
            clock,
            store,
            lease_s=lease_s,
        )
        store.on_change = worker.replica.on_store_changed
        return worker

    async def close(self) -> None:
        self.group.close()
        await asyncio.sleep(0)
