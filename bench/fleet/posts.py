"""The coordinators alone, in this process: what arriving and ending costs the one who asks."""

from __future__ import annotations

import asyncio
import gc
from statistics import median
from time import thread_time
from typing import TYPE_CHECKING, Protocol

from bench.fleet.replicas import MODEL, OPTIONS, settled, started_replicas
from forebay.clock import LoopClock
from forebay.coordination import InProcess
from forebay.core import Arrived, Event, Finished, NodeChanged
from harness.valkey_server import ValkeyServer

if TYPE_CHECKING:
    from forebay.core import Action

LEASE_S = 60.0
EACH = 500


class Takes(Protocol):
    """What all coordinators have."""

    def post(self, event: Event) -> None: ...


def events(name: str) -> list[Event]:
    """Make the events before the clock starts."""
    ids = [f"{name}-{number:028d}" for number in range(EACH)]
    made: list[Event] = []
    for one in ids:
        made += [Arrived(one, MODEL, size_bytes=650), Finished(one, True, 120, 90)]
    return made


def timed(coordinator: Takes, made: list[Event]) -> float:
    """Return the microseconds that one request costs: its arrival, its grant and its end."""
    gc.collect()
    gc.disable()
    began = thread_time()
    for event in made:
        coordinator.post(event)
    took = thread_time() - began
    gc.enable()
    return took / EACH * 1e6


async def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Return best and median of many short rounds, turn and turn about."""
    clock = LoopClock(asyncio.get_running_loop())
    alone = InProcess(OPTIONS, _ignore, clock)
    alone.post(NodeChanged("gpu1", slots=64, models=(MODEL,)))
    times: dict[str, list[float]] = {}
    with ValkeyServer() as server, ValkeyServer() as another:
        async with (
            started_replicas(another.url, 1, LEASE_S) as (one,),
            started_replicas(server.url, 2, LEASE_S) as pair,
        ):
            for each in (one, *pair):
                each.node(64)
                each.replica._store_tasks.heartbeat_now()  # lends ahead of need
            await settled(pair)
            takers: dict[str, Takes] = {
                "without a store": alone,
                "leader of one": one.replica,
                "leader of two": pair[0].replica,
                "follower, lent slot": pair[1].replica,
            }
            for number in range(rounds):
                for name, taker in takers.items():
                    made = events(f"{number}")
                    times.setdefault(name, []).append(timed(taker, made))
                    await settled(pair)
    best = {name: min(taken) for name, taken in times.items()}
    reference = times["without a store"]
    return {
        name: {
            "best_us": best[name],
            "median_us": median(taken),
            "ratio": median(a / b for a, b in zip(taken, reference, strict=True)),
        }
        for name, taken in times.items()
    }


def _ignore(_: Action) -> None:
    pass
