"""Every replica's side of the shared queue: its own tickets, and what the leader decides."""
