"""Replicas in this process, on a real Valkey: what each is told can be timed by one clock."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from forebay.clock import LoopClock
from forebay.coordination.protocol.messages import About
from forebay.coordination.replica import Replica
from forebay.coordination.store.valkey import ValkeyStore
from forebay.core import Arrived, Finished, NodeChanged, Options, Reject, Route, Wait

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from forebay.core import Action

MODEL = "m"
OPTIONS = Options(max_size=1_000_000, wait_s_max=3600.0)
SOON_S = 60.0
"""How long anything here may take before the run is given up."""


class BenchReplica:
    """One replica, and someone who notes what it is told."""

    def __init__(self, url: str, number: int, lease_s: float, options: Options = OPTIONS) -> None:
        self.store = ValkeyStore(url, lease_s)
        self.on_route: Callable[[BenchReplica, Route], None] = _ignore
        self.on_wait: Callable[[BenchReplica, Wait], None] = _ignore
        self.refused = 0
        self.posted = 0
        about = About(f"{number:08x}-1", f"http://127.0.0.1:{number}", "1", "same")
        clock = LoopClock(asyncio.get_running_loop())
        self.replica = Replica(about, options, self._perform, clock, self.store, lease_s=lease_s)

    def _perform(self, action: Action) -> None:
        if isinstance(action, Route):
            self.on_route(self, action)
        elif isinstance(action, Wait):
            self.on_wait(self, action)
        elif isinstance(action, Reject):
            self.refused += 1

    def arrive(self) -> str:
        """Have one more request here; returns its id."""
        self.posted += 1
        name = f"{self.replica.about.name}-{self.posted:024d}"  # as long as a real one
        self.replica.post(Arrived(name, MODEL, user=f"user-{self.posted % 10}", size_bytes=650))
        return name

    def finish(self, name: str) -> None:
        self.replica.post(Finished(name, prompt_tokens=120, output_tokens=90))

    def node(self, slots: int, name: str = "gpu1") -> None:
        """See a node."""
        self.replica.post(NodeChanged(name, slots=slots, models=(MODEL,)))


@asynccontextmanager
async def started_replicas(
    url: str, count: int, lease_s: float, first: int = 0
) -> AsyncIterator[list[BenchReplica]]:
    """Start so many replicas; the first of them leads, where nobody leads yet."""
    opened = [BenchReplica(url, first + number, lease_s) for number in range(count)]
    try:
        for one in opened:
            await one.replica.start()
        await until(lambda: all(one.replica.mode == "coordinated" for one in opened))
        yield opened
    finally:
        for one in opened:
            await one.replica.close()


async def until(holds: Callable[[], bool], limit_s: float = SOON_S) -> None:
    """Wait until something holds, and not for ever."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + limit_s
    while not holds():
        if loop.time() > end_s:
            raise SystemExit("the fleet did not get there in time")
        await asyncio.sleep(0.002)


async def settled(of: list[BenchReplica]) -> None:
    """Return when everything on its way has arrived: a question went through everyone."""
    for _ in range(2):
        await asyncio.gather(*(one.replica.fleet.owner_of("nobody") for one in of))


def _ignore(_: BenchReplica, __: object) -> None:
    pass
