"""Tests of coordination.store."""
