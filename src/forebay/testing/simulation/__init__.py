"""A seeded simulation of clients and nodes around the real scheduler, in virtual time.

A `Scenario` says who sends what, which nodes serve it and how they fail, and with which options
the scheduler runs. `Simulation(scenario, seed).run()` plays it to its end and returns a `Report`;
after every step a checker asserts, from events and actions alone, what the scheduler promises. Use
it to try a policy before your users do:

>>> crowd = [ClientPlan(f"user{n}", Poisson(0.05), priorities={"normal": 1}) for n in range(4)]
>>> script = ClientPlan("script", Bursts(20, every_s=Always(60.0)), priorities={"low": 1})
>>> scenario = Scenario(
...     nodes=(NodePlan("gpu", slots=2, service_s=Lognormal(2.0, 0.5)),),
...     clients=(script, *crowd),
...     duration_s=300.0,
... )
>>> report = Simulation(scenario, seed=7).run()
>>> report.users["user0"].waits.p90_s < report.users["script"].waits.p90_s
True

`python -m forebay.testing.simulation --seeds 2000` plays random scenarios, and a failure prints
how to replay its seed.
"""

from forebay.testing.simulation.arrivals import Arrivals, Backlog, Bursts, Poisson, Times
from forebay.testing.simulation.checker import Checker
from forebay.testing.simulation.distributions import (
    Always,
    Distribution,
    Exponential,
    Lognormal,
    Mixture,
    Uniform,
)
from forebay.testing.simulation.engine import Decider, Simulation
from forebay.testing.simulation.report import Coverage, Group, Report, RequestRecord, Waits
from forebay.testing.simulation.scenario import (
    ClientPlan,
    Closing,
    Disturbance,
    NodePlan,
    Outage,
    Reconfigured,
    Remodelled,
    Removal,
    Resized,
    Scenario,
)
from forebay.testing.simulation.swarm import random_scenario

__all__ = [
    "Always",
    "Arrivals",
    "Backlog",
    "Bursts",
    "Checker",
    "ClientPlan",
    "Closing",
    "Coverage",
    "Decider",
    "Distribution",
    "Disturbance",
    "Exponential",
    "Group",
    "Lognormal",
    "Mixture",
    "NodePlan",
    "Outage",
    "Poisson",
    "Reconfigured",
    "Remodelled",
    "Removal",
    "Report",
    "RequestRecord",
    "Resized",
    "Scenario",
    "Simulation",
    "Times",
    "Uniform",
    "Waits",
    "random_scenario",
]
