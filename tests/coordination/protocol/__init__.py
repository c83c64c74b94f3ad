"""Tests of coordination.protocol."""
