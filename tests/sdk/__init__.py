"""The SDK against the real gateway, and against a scripted server that can do what none should."""
