"""One of several worker processes: what the leader does for all, and how the others know it."""
