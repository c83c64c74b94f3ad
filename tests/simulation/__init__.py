"""Seeded clusters with faults around the real scheduler, and controls that must fail."""
