"""Real fleets and simulated ones for tests and benchmarks: HAProxy, PostgreSQL, Valkey, faults."""
