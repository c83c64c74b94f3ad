"""Real engines behind the gateway and real clients in front of it."""
