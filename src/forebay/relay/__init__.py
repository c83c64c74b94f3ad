"""The loop between the core and the sockets: a request and its sink, retries and outcomes.

The relay knows no client socket: an answer goes to a `Sink`, be it a connection, a job or a
session. It takes slots only through the Coordinator port, so that it works unchanged when several
replicas share one queue.
"""
