"""Tests of nodes.sim."""
