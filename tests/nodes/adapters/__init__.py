"""Tests of nodes.adapters."""
