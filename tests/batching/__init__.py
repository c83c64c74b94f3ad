"""Tests of the library queue for continuous batching."""
