"""`/openapi.json`: the HTTP surface, described for programs."""
