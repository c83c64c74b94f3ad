"""Tests of the relay's parts that need no socket."""
