"""Sessions through the gateway."""
