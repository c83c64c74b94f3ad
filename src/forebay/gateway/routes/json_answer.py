"""Answers in JSON."""

import msgspec
from starlette.responses import Response


def json_answer(value: object, status: int = 200) -> Response:
    """Return a value as the JSON body of a response."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")
