"""How a guard says no: statuses, headers and bodies as the OpenAI SDKs read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from forebay.wire.heads import status_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.wire.refusals import Refusal

RETRY_AFTER_S: Final = 1
"""What the refused are told: a gateway keeps their place in its line, and asks again soon."""
STATUS: Final[Mapping[str, int]] = {
    "node_busy": 429,
    "queue_full": 429,
    "shutting_down": 503,
    "too_many_probes": 503,
    "too_many_connections": 503,
    "backend_failed": 502,
    "backend_closed": 502,
    "run_timeout": 504,
    "unauthorized": 401,
    "forbidden_host": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "invalid_request": 400,
    "unsupported": 400,
    "body_too_large": 413,
    "headers_too_large": 431,
    "request_timeout": 408,
}
"""Every code there is, and its status."""


def answer(refusal: Refusal, connection: bytes = b"") -> bytes:
    """Return a whole answer; `connection` is a header line for the end of the head."""
    status = refusal.status or STATUS[refusal.code]
    error = {
        "message": refusal.message,
        "type": refusal.code,
        "code": refusal.code,
        "param": refusal.param,
    }
    body = msgspec.json.encode({"error": error})
    later = b""
    if status in (429, 503):
        later = b"retry-after: %d\r\nx-should-retry: true\r\n" % RETRY_AFTER_S
    elif status == 401:
        later = b"www-authenticate: Bearer\r\n"
    elif status >= 500:  # so that a gateway does not take it for an answer of the server
        later = b"x-forebay-guard: %b\r\n" % refusal.code.encode()
    return b"%bcontent-type: application/json\r\n%bcontent-length: %d\r\n%b\r\n%b" % (
        status_line(status), later, len(body), connection, body
    )  # fmt: skip
