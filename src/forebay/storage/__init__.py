"""Databases: one thread that writes, schemas that grow, one holder of each file."""
