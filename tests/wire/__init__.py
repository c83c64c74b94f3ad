"""Tests of the wire's parts that need no socket."""
