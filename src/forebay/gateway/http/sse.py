"""What all routes have in common that answer with server-sent events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.requests import Request

EVENTS: Final = "text/event-stream"
STREAM_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
"""Nobody may keep them, and no proxy may hold them back."""


def only_the_head(request: Request) -> Response | None:
    """Return the answer to HEAD, which must not follow anything: its body would never end."""
    if request.method != "HEAD":
        return None
    return Response(headers=STREAM_HEADERS, media_type=EVENTS)
