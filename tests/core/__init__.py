"""Tests of the pure scheduler: only events in and actions out, never its insides."""
