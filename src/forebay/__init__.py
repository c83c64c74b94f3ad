"""Forebay: the queue in front of your LLMs."""

__version__ = "0.1.0"
