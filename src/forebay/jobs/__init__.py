"""Durable jobs, model by model: the library and what the gateway builds on it."""
