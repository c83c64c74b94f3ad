"""The guards of `/openapi.json`: where they register, and what they say."""

from __future__ import annotations

from typing import Final, get_args

from forebay.gateway.openapi.operations import Operation, query
from forebay.gateway.openapi.schemas import (
    SECONDS,
    STATE,
    TEXT,
    Schema,
    record,
    said,
)
from forebay.guard.heartbeat import GuardState

_HEADERS: Final = ("Accept-Language", "X-Forebay-Guard-Token")
_SHORT: Final = {"type": "string", "maxLength": 256}
_BYTES_OR_NULL: Final = {"type": ["integer", "null"], "minimum": 0, "maximum": 2**60}

_INSTANCE: Final = query(
    "instance", _SHORT, "Which guard goes, where another may have taken over its name."
)

OPERATIONS: Final = (
    Operation(path="/guard/nodes", method="post", tag="guards", status=200,
        summary="A heartbeat of a guard; the first one registers its node, and is answered 201",
        answer="GuardHeard", body="GuardBeat", headers=_HEADERS,
        codes=("guard_refused", "conflict", "shutting_down")),
    Operation(path="/guard/nodes/{name}", method="delete", tag="guards", status=204,
        summary="Forget a node whose guard goes; what runs there may finish", headers=_HEADERS,
        media="", codes=("guard_refused", "not_found"), query=(_INSTANCE,)),
)  # fmt: skip

SCHEMAS: Final[dict[str, Schema]] = {
    "GuardBeat": record({
        "name": said("The node's name.", {"type": "string", "maxLength": 64}),
        "url": said("Where the gateway reaches the guard: http or https, a host and a port.",
            _SHORT),
        "instance": said("Drawn anew whenever a guard starts.",
            {"type": "string", "minLength": 8, "maxLength": 64}),
        "state": said("What the guard is doing.", {"enum": list(get_args(GuardState))}),
        "slots": said("Requests that it lets through at once.",
            {"type": "integer", "minimum": 1, "maximum": 10_000}),
        "in_flight?": said("Requests that run there, for whichever gateway.",
            {"type": "integer", "minimum": 0, "maximum": 10_000}),
        "gpu_load?": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
        "vram_used_bytes?": _BYTES_OR_NULL,
        "vram_total_bytes?": _BYTES_OR_NULL,
        "kind?": said('The kind of the backend, such as "ollama".', _SHORT),
        "version?": said("The backend's own version.", _SHORT),
    }),
    "GuardHeard": record({
        "name": TEXT,
        "state": STATE,
        "heartbeat_seconds": said("How often to send one.", SECONDS),
        "lost_after_seconds": said("How long after the last one the node is out.", SECONDS),
    }),
}  # fmt: skip
