"""What the Starlette routes share."""
