"""A seeded simulation of clients and nodes around the real scheduler, in virtual time.

`engine` is the one loop: clock, inbox, timer. `nodes` and `clients` are what takes part, `scenario`
says who does what and what befalls it, `playing` runs a scenario to its end, and `checker` asserts
after every step, from events and actions alone, what the scheduler promises:

>>> from forebay.testing.simulation.scenario import *
>>> crowd = [ClientPlan(f"user{n}", Poisson(0.05)) for n in range(4)]
>>> script = ClientPlan("script", Bursts(20, every_s=Always(60.0)), priorities={"low": 1})
>>> nodes = (NodePlan("gpu", slots=2, service_s=Lognormal(2.0, 0.5)),)
>>> report = Simulation(Scenario(nodes, (script, *crowd), duration_s=300.0), seed=7).run()
>>> report.users["user0"].wait_s_p90 < report.users["script"].wait_s_p90
True

`python -m forebay.testing.simulation --seeds 2000` plays random scenarios, and a failure prints
how to replay its seed. Capacity planning, the replay of traces and the bench of slots play their
own nodes and clients on the same engine.
"""

from forebay.testing.simulation.playing import Simulation
from forebay.testing.simulation.report import Report
from forebay.testing.simulation.scenario import Scenario
from forebay.testing.simulation.swarm import random_scenario

__all__ = ["Report", "Scenario", "Simulation", "random_scenario"]
