"""One of several worker processes: forwarding to the leader, and what workers share."""
