"""Several gateways, and guarded nodes."""
