"""How long nothing is granted when the leader goes: killed, or told to stop."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING

from bench.fleet.leaders import leader_process
from bench.fleet.replicas import BenchReplica, started_replicas, until
from harness.valkey_server import ValkeyServer

if TYPE_CHECKING:
    from forebay.core import Route

SERVICE_S = 0.005
SLOTS = 4
WAITING = 16
"""At each of the two replicas that stay; a new one comes for each that ends."""


class Load:
    """A line that never gets empty, and when something was last granted."""

    def __init__(self, of: list[BenchReplica]) -> None:
        self._loop = asyncio.get_running_loop()
        self.granted: list[float] = []
        self.over = False
        for one in of:
            one.on_route = self._routed
            for _ in range(WAITING):
                one.arrive()

    def _routed(self, one: BenchReplica, route: Route) -> None:
        self.granted.append(perf_counter())
        self._loop.call_later(SERVICE_S, self._end, one, route.id)

    def _end(self, one: BenchReplica, name: str) -> None:
        one.finish(name)
        if not self.over:
            one.arrive()

    def longest_gap_s(self, since: float) -> float:
        """Return the longest time without a grant from a moment on."""
        times = [since, *(at for at in self.granted if at > since)]
        return max(after - before for before, after in pairwise(times))


async def measure(rounds: int, lease_s: float, *, kill: bool) -> list[float]:
    """Return the time without grants of each round, in leases."""
    return [await _round(lease_s, kill=kill, seed=number) for number in range(rounds)]


async def _round(lease_s: float, *, kill: bool, seed: int) -> float:
    """The leader goes at some moment between two signs of life."""
    with ValkeyServer() as server, leader_process(server.url, lease_s) as leader:
        async with started_replicas(server.url, 2, lease_s) as pair:
            for one in pair:
                one.node(slots=SLOTS)
            load = Load(pair)
            await until(lambda: len(load.granted) > 100)
            await asyncio.sleep(random.Random(seed).uniform(1.0, 1.4) * lease_s)
            began = perf_counter()
            (leader.kill if kill else leader.resign)()
            await until(lambda: any(one.replica.leads for one in pair))
            count = len(load.granted)
            await until(lambda: len(load.granted) > count + 100)
            load.over = True
            return load.longest_gap_s(began) / lease_s
