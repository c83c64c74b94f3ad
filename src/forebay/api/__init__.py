"""Every request and answer of the HTTP surface, one Struct each.

Routes encode them, `/openapi.json` is made of them, and the SDK, the command line and `forebay top`
decode them. The docstring of a field is its description in `/openapi.json`.
"""
