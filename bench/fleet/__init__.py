"""What it costs that several gateways share one queue."""
