"""Declarative loads on a fake clock, compared with an independent max-min oracle."""
