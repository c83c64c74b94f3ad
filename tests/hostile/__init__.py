"""Clients and nodes that do anything to HTTP, against the real command; one oracle judges."""
