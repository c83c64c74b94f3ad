"""Real fleets, simulated ones, and traces of traffic, for tests and benchmarks."""
