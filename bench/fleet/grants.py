"""A freed slot: from `Finished` at one replica to `Route` at the other, by one clock."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Any

from redis.asyncio import Redis

from bench.fleet.replicas import BenchReplica, settled, started_replicas
from harness.valkey_server import ValkeyServer

if TYPE_CHECKING:
    from forebay.core import Route, Wait

LEASE_S = 5.0
STREAM = "bench:floor"


class Relay:
    """Two replicas and one slot that goes back and forth between them."""

    def __init__(self, one: BenchReplica, other: BenchReplica) -> None:
        self._turn = [one, other]
        self._told: asyncio.Future[float] | None = None
        self._waits = asyncio.Event()
        for each in self._turn:
            each.on_route, each.on_wait = self._routed, self._waiting
        self._holder = ""

    def _routed(self, _: BenchReplica, __: Route) -> None:
        if self._told is not None:
            self._told.set_result(perf_counter())

    def _waiting(self, _: BenchReplica, __: Wait) -> None:
        self._waits.set()

    async def begin(self) -> None:
        self._told = asyncio.get_running_loop().create_future()
        self._holder = self._turn[0].arrive()
        await self._told

    async def hand_over(self) -> float:
        """Return how long the one that waits waited for its grant, in seconds."""
        holder, waiter = self._turn
        self._waits.clear()
        name = waiter.arrive()
        await self._waits.wait()
        self._told = asyncio.get_running_loop().create_future()
        began = perf_counter()
        holder.finish(self._holder)
        ended = await self._told
        self._holder = name
        self._turn.reverse()
        return ended - began

    async def end(self) -> None:
        self._told = None
        self._turn[0].finish(self._holder)
        await settled(self._turn)


class Floor:
    """The same way twice with nothing but the driver: what a message through the store costs."""

    def __init__(self, url: str) -> None:
        self._ends: list[tuple[Any, Any]] = [
            (Redis.from_url(url, protocol=2), Redis.from_url(url, protocol=2)) for _ in range(2)
        ]
        self._last = [b"0-0", b"0-0"]

    async def hand_over(self) -> float:
        """Pass one message there and its answer back; returns how long that took."""
        answer = asyncio.ensure_future(self._read(1))
        question = asyncio.ensure_future(self._read(0))
        await asyncio.sleep(0.002)  # both are waiting by then
        began = perf_counter()
        await self._ends[0][0].xadd(f"{STREAM}:0", {"d": b"x" * 100}, maxlen=1000)
        await question
        await self._ends[1][0].xadd(f"{STREAM}:1", {"d": b"x" * 100}, maxlen=1000)
        await answer
        return perf_counter() - began

    async def _read(self, way: int) -> None:
        reader = self._ends[way][1]
        [(_, entries)] = await reader.xread({f"{STREAM}:{way}": self._last[way]}, block=5000)
        self._last[way] = entries[-1][0]

    async def close(self) -> None:
        for end in self._ends:
            for client in end:
                await client.aclose()


async def measure(rounds: int, each: int) -> dict[str, list[list[float]]]:
    """Return the times of all grants by way, turn and turn about, in seconds."""
    with ValkeyServer() as server:
        async with started_replicas(server.url, 3, LEASE_S) as (leader, *others):
            for one in (leader, *others):
                one.node(slots=1)
            floor = Floor(server.url)
            times: dict[str, list[list[float]]] = {}
            for _ in range(rounds):
                await _between(
                    leader, others[0], each, ("leader to follower", "follower to leader"), times
                )
                await _between(others[0], others[1], each, ("follower to follower",) * 2, times)
                bare = [await floor.hand_over() for _ in range(each // 4)]
                times.setdefault("two bare messages", []).append(bare)
            await floor.close()
            return times


async def _between(
    one: BenchReplica,
    other: BenchReplica,
    each: int,
    names: tuple[str, str],
    times: dict[str, list[list[float]]],
) -> None:
    relay = Relay(one, other)
    await settled([one, other])
    await relay.begin()
    taken: dict[str, list[float]] = {name: [] for name in names}
    for number in range(each):
        taken[names[number % 2]].append(await relay.hand_over())
    await relay.end()
    for name, seconds in taken.items():
        times.setdefault(name, []).append(seconds)
