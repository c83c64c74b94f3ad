"""Public test doubles: a clock and a node you control, a raw client, a simulated cluster."""

from forebay.testing.clock import FakeClock
from forebay.testing.fake_fleet import FakeDirectory, FakeFleet
from forebay.testing.fake_node import Call, FakeNode
from forebay.testing.raw_client import RawClient, Reply
from forebay.testing.simulation import Report, Scenario, Simulation, random_scenario

__all__ = [
    "Call",
    "FakeClock",
    "FakeDirectory",
    "FakeFleet",
    "FakeNode",
    "RawClient",
    "Reply",
    "Report",
    "Scenario",
    "Simulation",
    "random_scenario",
]
