"""Tests of nodes.embedded."""
