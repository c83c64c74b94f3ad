"""Tests of coordination.workers."""
