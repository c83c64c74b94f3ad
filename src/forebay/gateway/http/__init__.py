"""What the Starlette routes share: authorisation, bodies, uploads, server-sent events."""
