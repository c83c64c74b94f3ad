"""The page at `/` and its data: the queue, the nodes, and what is wrong."""
