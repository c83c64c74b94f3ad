"""Jobs of the built-in task types, run by the gateway in idle slots."""
