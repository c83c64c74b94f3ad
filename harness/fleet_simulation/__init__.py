"""A seeded simulation of several gateways that share one queue, in virtual time.

`random_plan(seed)` draws a world: two to five replicas, nodes, clients, clocks that differ, lost
calls, and faults one after the other: replicas killed, frozen, cut off, restarted in good order;
the store down, paused, emptied, failed over. `play` runs the real replicas in it, around a
simulated store, and checks from outside what is promised (see `checker`).

>>> from harness.fleet_simulation import FleetPlan, play
>>> plan = FleetPlan(seed=1, nodes={"gpu": (2, ("llama",))}, duration_s=10.0)
>>> play(plan).problems
[]

`python -m harness.fleet_simulation --seeds 200` plays many; a failure prints how to replay
its seed.
"""

from harness.fleet_simulation.engine import FleetReport, FleetSimulation, failure, play
from harness.fleet_simulation.plans import Fault, FleetPlan, Resize, random_plan
from harness.fleet_simulation.store import Keyspace

__all__ = [
    "Fault",
    "FleetPlan",
    "FleetReport",
    "FleetSimulation",
    "Keyspace",
    "Resize",
    "failure",
    "play",
    "random_plan",
]
