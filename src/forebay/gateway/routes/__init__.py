"""The Starlette routes, one module per area."""
