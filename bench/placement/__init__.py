"""Which node a request had better take: unlike nodes, and nodes that load models."""
