"""Tests of replays: reading, fitting and the figures by hand; and against a real run."""
