"""Slots that are found, on random engines."""
