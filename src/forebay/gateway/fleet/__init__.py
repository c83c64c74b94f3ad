"""Several replicas and guarded nodes: membership, forwarding to peers, shared node commands."""
