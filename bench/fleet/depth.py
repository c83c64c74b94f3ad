"""What a long line costs: a grant's time, the leader's CPU, and how long taking over takes."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

from bench.fleet.desks import Desk, desks, settled, until
from bench.fleet.leaders import Office, office
from harness.valkey_server import ValkeyServer

if TYPE_CHECKING:
    from forebay.core import Route

LEASE_S = 5.0
LONG_S = 200.0
AT_ONCE = 500
"""Arrivals between two turns of the loop."""


class Line:
    """So many tickets over two replicas, one slot, and who holds it."""

    def __init__(self, of: list[Desk]) -> None:
        self._desks = of
        self._told: asyncio.Future[tuple[Desk, str, float]] | None = None
        self._holder: tuple[Desk, str] | None = None
        self.waiting = 0
        for desk in of:
            desk.on_route = self._routed
            desk.on_wait = self._waits

    def _routed(self, desk: Desk, route: Route) -> None:
        self._holder = (desk, route.id)
        if self._told is not None and not self._told.done():
            self._told.set_result((desk, route.id, perf_counter()))

    def _waits(self, _: Desk, __: object) -> None:
        self.waiting += 1

    async def fill(self, count: int) -> None:
        for number in range(count):
            self._desks[number % 2].arrive()
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
        await until(lambda: self.waiting >= count - 1, LONG_S)
        await settled(self._desks)

    async def grant(self) -> float:
        """End what runs and have one more arrive; returns how long the next took to start."""
        assert self._holder is not None
        desk, name = self._holder
        self._told = asyncio.get_running_loop().create_future()
        began = perf_counter()
        desk.finish(name)
        desk.arrive()
        _, _, ended = await self._told
        return ended - began

    async def next_grant(self) -> float:
        """Return when the next one starts after what runs has ended just now."""
        assert self._holder is not None
        desk, name = self._holder
        self._told = asyncio.get_running_loop().create_future()
        desk.finish(name)
        return (await self._told)[2]


async def measure(depth: int, grants: int) -> dict[str, object]:
    """Return the times of grants, the leader's CPU seconds for each, and the takeover."""
    with ValkeyServer() as server, office(server.url, LEASE_S) as leader:
        async with desks(server.url, 2, LEASE_S) as pair:
            for desk in pair:
                desk.node(slots=1)
            line = Line(pair)
            began = perf_counter()
            await line.fill(depth)
            filled_s = perf_counter() - began
            idle = await _idle_cpu(leader)
            before, began = leader.cpu_s(), perf_counter()
            times = [await line.grant() for _ in range(grants)]
            busy_s = perf_counter() - began
            used = leader.cpu_s() - before - idle * busy_s
            return {
                "depth": depth,
                "fill_s": filled_s,
                "grants_s": times,
                "leader_cpu_s": used / grants,
                "leader_idle_cpu": idle,
                "takeover_s": await _take_over(leader, line, pair),
            }


async def _idle_cpu(leader: Office) -> float:
    """Return what part of a core the leader uses while nothing happens but signs of life."""
    before, began = leader.cpu_s(), perf_counter()
    await asyncio.sleep(LEASE_S / 2)
    return (leader.cpu_s() - before) / (perf_counter() - began)


async def _take_over(leader: Office, line: Line, pair: list[Desk]) -> float:
    """Return the time from a leader's resignation to the first grant of the next."""
    began = perf_counter()
    leader.resign()
    await until(lambda: any(desk.replica.leads for desk in pair))
    return await line.next_grant() - began
