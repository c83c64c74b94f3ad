"""`/openapi.json`: the HTTP surface, described for programs."""


def document() -> dict[str, object]:
    """Return the OpenAPI description of this gateway."""
    return {"openapi": "3.1.0", "info": {"title": "Forebay", "version": "0"}, "paths": {}}
