"""The simulated node: a server with the timing of a model, and no model."""
