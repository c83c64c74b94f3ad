"""Tests of what a backend is: adapters, detection, health, the simulated and the embedded node."""
