"""Jobs through the gateway."""
