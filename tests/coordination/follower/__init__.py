"""Tests of coordination.follower."""
