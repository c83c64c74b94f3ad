"""Tests of what a soak judges by."""
