"""How long nothing is granted when the leader goes: killed, or told to stop."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING

from bench.fleet.desks import Desk, desks, until
from bench.fleet.leaders import office
from harness.valkey_server import ValkeyServer

if TYPE_CHECKING:
    from forebay.core import Route

SERVICE_S = 0.005
SLOTS = 4
WAITING = 16
"""At each of the two replicas that stay; a new one comes for each that ends."""


class Load:
    """A line that never gets empty, and when something was last granted."""

    def __init__(self, of: list[Desk]) -> None:
        self._loop = asyncio.get_running_loop()
        self.granted: list[float] = []
        self.over = False
        for desk in of:
            desk.on_route = self._routed
            for _ in range(WAITING):
                desk.arrive()

    def _routed(self, desk: Desk, route: Route) -> None:
        self.granted.append(perf_counter())
        self._loop.call_later(SERVICE_S, self._end, desk, route.id)

    def _end(self, desk: Desk, name: str) -> None:
        desk.finish(name)
        if not self.over:
            desk.arrive()

    def longest_gap_s(self, since: float) -> float:
        """Return the longest time without a grant from a moment on."""
        times = [since, *(at for at in self.granted if at > since)]
        return max(after - before for before, after in pairwise(times))


async def measure(rounds: int, lease_s: float, *, kill: bool) -> list[float]:
    """Return the time without grants of each round, in leases."""
    return [await _round(lease_s, kill=kill, seed=number) for number in range(rounds)]


async def _round(lease_s: float, *, kill: bool, seed: int) -> float:
    """The leader goes at some moment between two signs of life."""
    with ValkeyServer() as server, office(server.url, lease_s) as leader:
        async with desks(server.url, 2, lease_s) as pair:
            for desk in pair:
                desk.node(slots=SLOTS)
            load = Load(pair)
            await until(lambda: len(load.granted) > 100)
            await asyncio.sleep(random.Random(seed).uniform(1.0, 1.4) * lease_s)
            began = perf_counter()
            (leader.kill if kill else leader.resign)()
            await until(lambda: any(desk.replica.leads for desk in pair))
            count = len(load.granted)
            await until(lambda: len(load.granted) > count + 100)
            load.over = True
            return load.longest_gap_s(began) / lease_s
