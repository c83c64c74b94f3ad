"""Tests of coordination.leader."""
