"""One worker's place in the group: its sockets, its name, its connections to the others."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

from forebay import __version__
from forebay.coordination.protocol.messages import About
from forebay.coordination.replica import Replica
from forebay.coordination.workers.store import LEASE_S, WorkerStore

if TYPE_CHECKING:
    import random
    import socket
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from forebay.clock import Timers
    from forebay.coordination import Perform
    from forebay.coordination.workers.parent_link import ParentLink
    from forebay.core import Options


class Place(NamedTuple):
    """Which worker of how many it is, and what it serves."""

    number: int
    directory: Path
    """Where the workers' own sockets are, for nobody else to reach."""
    sockets: Sequence[Sequence[socket.socket]]
    """The listening sockets of each worker, one for each address; all workers inherit them."""


class Seat:
    """What a gateway must know to be one of several workers."""

    def __init__(self, place: Place, link: ParentLink, chance: random.Random) -> None:
        self.number = place.number
        self.workers = len(place.sockets)
        self.link = link
        member = f"worker{place.number}-{chance.randbytes(4).hex()}"
        self.store = WorkerStore(place.directory, member, link)
        self.door = place.directory / f"{member}.http"
        """Where the other workers pass requests on to this one."""
        self.about = About(member, f"unix:{self.door}", __version__)
        self.sockets = place.sockets

    @property
    def port(self) -> int:
        return int(self.sockets[self.number][0].getsockname()[1])

    def coordinator(
        self,
        options: Options,
        perform: Perform,
        clock: Timers,
        on_probe_request: Callable[[str], None],
    ) -> Replica:
        """Return the coordinator that shares the queue with the other workers."""
        replica = Replica(self.about, options, perform, clock, self.store, lease_s=LEASE_S)
        replica.on_probe_request = on_probe_request
        self.store.on_change = replica.on_store_changed
        return replica

    def part(self, whole: int) -> int:
        """Return this worker's part of a bound that is for all together."""
        return max(1, whole // self.workers)

    def close(self) -> None:
        """Close the listening sockets here; the parent has them still. May be called twice.

        Where the parent was killed, nobody else clears up.
        """
        for sockets in self.sockets:
            for sock in sockets:
                sock.close()
        if not self.link.is_open:
            shutil.rmtree(self.door.parent, ignore_errors=True)
