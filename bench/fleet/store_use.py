"""What requests ask of the store: operations and bytes for each, by how they went."""

from __future__ import annotations

import asyncio
from time import process_time
from typing import TYPE_CHECKING, Any

from redis import Redis

from bench.fleet.replicas import BenchReplica, settled, started_replicas, until
from harness.valkey_server import ValkeyServer

if TYPE_CHECKING:
    from forebay.core import Route

LEASE_S = 60.0
"""So long that no sign of life falls into a measure; what those cost is measured by itself."""
SERVICE_S = 0.005
BEAT_S = 3.0


class Chains:
    """So many clients at each replica, each of which asks again when it has its answer."""

    def __init__(self, of: list[BenchReplica], clients: int, requests: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = requests
        self.done = 0
        self.at_once = 0  # granted before `post` returned
        self._posting = False
        for one in of:
            one.on_route = self._routed
        for number in range(clients * len(of)):
            self._next(of[number % len(of)])

    def _next(self, one: BenchReplica) -> None:
        if self._left > 0:
            self._left -= 1
            self._posting = True
            one.arrive()
            self._posting = False

    def _routed(self, one: BenchReplica, route: Route) -> None:
        self.at_once += self._posting
        self._loop.call_later(SERVICE_S, self._end, one, route.id)

    def _end(self, one: BenchReplica, name: str) -> None:
        self.done += 1
        one.finish(name)
        self._next(one)


class Meter:
    """What the server itself has counted."""

    def __init__(self, url: str) -> None:
        self._client: Any = Redis.from_url(url)

    def read(self) -> dict[str, float]:
        stats, commands = self._client.info("stats"), self._client.info("commandstats")
        wanted = {
            f"{name}_commands": float(commands.get(f"cmdstat_{name}", {"calls": 0})["calls"])
            for name in ("xadd", "xread", "evalsha", "pexpire")
        }
        used = self._client.info("cpu")
        every = sum(one["calls"] for name, one in commands.items() if name != "cmdstat_info")
        return {
            **wanted,
            "commands": float(every),
            "bytes_in": float(stats["total_net_input_bytes"]),
            "bytes_out": float(stats["total_net_output_bytes"]),
            "cpu_us": 1e6 * (used["used_cpu_user"] + used["used_cpu_sys"]),
        }

    def close(self) -> None:
        self._client.close()


async def measure(requests: int) -> dict[str, dict[str, float]]:
    """Return what each request cost the store, case by case."""
    found = {}
    with ValkeyServer() as server:
        meter = Meter(server.url)
        async with started_replicas(server.url, 2, LEASE_S) as (leader, follower):
            found["leader, a slot is free, 1 client"] = await _case(
                meter, [leader, follower], [leader], slots=64, clients=1, requests=requests // 8
            )
            found["leader, a slot is free, 32 clients"] = await _case(
                meter, [leader, follower], [leader], slots=64, clients=32, requests=requests
            )
        async with started_replicas(server.url, 2, LEASE_S) as (leader, follower):
            found["lent slot, 1 client"] = await _case(
                meter, [leader, follower], [follower], slots=64, clients=1, requests=requests // 8
            )
            found["lent slot, 32 clients"] = await _case(
                meter, [leader, follower], [follower], slots=128, clients=32, requests=requests
            )
        async with started_replicas(server.url, 2, LEASE_S) as (leader, follower):
            found["queued at a follower, 2 slots, 4 clients"] = await _case(
                meter, [leader, follower], [follower], slots=2, clients=4, requests=requests // 4
            )
            found["queued at a follower, 16 slots, 64 clients"] = await _case(
                meter, [leader, follower], [follower], slots=16, clients=64, requests=requests
            )
            found["queued at both, 16 slots, 64 clients"] = await _case(
                meter, [leader, follower], [leader, follower], slots=16, clients=32,
                requests=requests,
            )  # fmt: skip
        meter.close()
    return found


async def _case(
    meter: Meter,
    everyone: list[BenchReplica],
    used: list[BenchReplica],
    *,
    slots: int,
    clients: int,
    requests: int,
) -> dict[str, float]:
    for one in everyone:
        one.node(slots)
        one.replica._store_tasks.heartbeat_now()  # lends ahead of need, as three times a lease
    await settled(everyone)
    before, calls = meter.read(), sum(one.store.calls for one in everyone)
    bytes_sent, cpu_s = sum(one.store.bytes_sent for one in everyone), process_time()
    chains = Chains(used, clients, requests)
    await until(lambda: chains.done == requests)
    cpu_s = process_time() - cpu_s
    await settled(everyone)
    after = meter.read()
    per = {name: (after[name] - before[name]) / requests for name in after}
    return {
        "requests": requests,
        "granted_at_once": chains.at_once / requests,
        "calls": (sum(one.store.calls for one in everyone) - calls) / requests,
        "payload_bytes": (sum(one.store.bytes_sent for one in everyone) - bytes_sent) / requests,
        "all_replicas_cpu_us": cpu_s / requests * 1e6,
        **per,
    }


async def idle(replicas: int, lease_s: float) -> dict[str, float]:
    """Return what a fleet asks of the store in a second while nothing happens."""
    with ValkeyServer() as server:
        meter = Meter(server.url)
        async with started_replicas(server.url, replicas, lease_s) as everyone:
            for one in everyone:
                one.node(4)
            await settled(everyone)
            before = meter.read()
            await asyncio.sleep(BEAT_S)
            after = meter.read()
        meter.close()
    return {name: (after[name] - before[name]) / BEAT_S for name in after}
