"""The simulated node: a server that takes the time of a model and has none."""
