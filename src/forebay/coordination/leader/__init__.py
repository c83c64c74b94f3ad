"""The leader's side of the shared queue: it runs the one core for all replicas."""
