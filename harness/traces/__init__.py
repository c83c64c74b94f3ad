"""Traces of real and of generated traffic, replayed through the pure core in virtual time."""
