"""The gateway's side of durable jobs."""
