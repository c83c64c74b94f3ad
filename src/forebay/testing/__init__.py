"""Public test doubles: a clock you control, and a simulated cluster around the real scheduler."""

from forebay.testing.clock import FakeClock
from forebay.testing.simulation import Report, Scenario, Simulation, random_scenario

__all__ = ["FakeClock", "Report", "Scenario", "Simulation", "random_scenario"]
