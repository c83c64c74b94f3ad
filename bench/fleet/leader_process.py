"""A leader in a process of its own: `python -m bench.fleet.leader_process URL LEASE_S`.

It has no requests of its own, so that its CPU time is what leading costs, and it can be
killed. It prints `leads` when it does; SIGTERM has it resign and leave, the end of its input has
it end.
"""

from __future__ import annotations

import asyncio
import signal
import sys

import uvloop

from bench.fleet.replicas import BenchReplica, until
from forebay.core import ShutDown

NUMBER = 99


async def lead(url: str, lease_s: float) -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, asked.set)
    loop.add_reader(sys.stdin.fileno(), sys.exit)
    one = BenchReplica(url, NUMBER, lease_s)
    await one.replica.start()
    await until(lambda: one.replica.leads)
    print("leads", flush=True)
    await asked.wait()
    one.replica.post(ShutDown())
    one.replica.resign()
    await until(lambda: not one.replica.leads)
    await one.replica.close()


if __name__ == "__main__":
    uvloop.run(lead(sys.argv[1], float(sys.argv[2])))
