"""What a long line costs: a grant's time, the leader's CPU, and how long taking over takes."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

from bench.fleet.leaders import LeaderProcess, leader_process
from bench.fleet.replicas import BenchReplica, settled, started_replicas, until
from harness.valkey_server import ValkeyServer

if TYPE_CHECKING:
    from forebay.core import Route

LEASE_S = 5.0
LONG_S = 200.0
AT_ONCE = 500
"""Arrivals between two turns of the loop."""


class Line:
    """So many tickets over two replicas, one slot, and who holds it."""

    def __init__(self, of: list[BenchReplica]) -> None:
        self._desks = of
        self._told: asyncio.Future[tuple[BenchReplica, str, float]] | None = None
        self._holder: tuple[BenchReplica, str] | None = None
        self.waiting = 0
        for one in of:
            one.on_route = self._routed
            one.on_wait = self._waits

    def _routed(self, one: BenchReplica, route: Route) -> None:
        self._holder = (one, route.id)
        if self._told is not None and not self._told.done():
            self._told.set_result((one, route.id, perf_counter()))

    def _waits(self, _: BenchReplica, __: object) -> None:
        self.waiting += 1

    async def fill(self, count: int) -> None:
        """Have one run and so many wait, at each replica every second."""
        for number in range(count + 1):
            self._desks[number % 2].arrive()
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
        await until(lambda: self.waiting >= count, LONG_S)
        await settled(self._desks)

    async def grant(self) -> float:
        """End what runs and have one more arrive; returns how long the next took to start."""
        assert self._holder is not None
        one, name = self._holder
        self._told = asyncio.get_running_loop().create_future()
        began = perf_counter()
        one.finish(name)
        one.arrive()
        _, _, ended = await self._told
        return ended - began

    async def next_grant(self) -> float:
        """Return when the next one starts after what runs has ended just now."""
        assert self._holder is not None
        one, name = self._holder
        self._told = asyncio.get_running_loop().create_future()
        one.finish(name)
        return (await self._told)[2]


async def measure(depth: int, grants: int) -> dict[str, object]:
    """Return the times of grants, the leader's CPU seconds for each, and the takeover."""
    with ValkeyServer() as server, leader_process(server.url, LEASE_S) as leader:
        async with started_replicas(server.url, 2, LEASE_S) as pair:
            for one in pair:
                one.node(slots=1)
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


async def _idle_cpu(leader: LeaderProcess) -> float:
    """Return what part of a core the leader uses while nothing happens but signs of life."""
    before, began = leader.cpu_s(), perf_counter()
    await asyncio.sleep(LEASE_S / 2)
    return (leader.cpu_s() - before) / (perf_counter() - began)


async def _take_over(leader: LeaderProcess, line: Line, pair: list[BenchReplica]) -> float:
    """Return the time from a leader's resignation to the first grant of the next."""
    began = perf_counter()
    leader.resign()
    await until(lambda: any(one.replica.leads for one in pair))
    return await line.next_grant() - began
