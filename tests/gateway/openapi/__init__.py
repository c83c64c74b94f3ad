"""`/openapi.json`."""
