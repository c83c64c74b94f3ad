"""The headers of `/openapi.json`: what callers may send, and what answers carry."""

from __future__ import annotations

from typing import Any, Final

_TEXT: Final = {"type": "string"}
_DIGITS: Final = {"type": "integer", "minimum": 0}


def _sent(name: str, description: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": schema or _TEXT,
    }


REQUEST_HEADERS: Final[dict[str, dict[str, Any]]] = {
    parameter["name"]: parameter
    for parameter in (
        _sent("X-Forebay-Priority", "The class: high, normal or low, unless other ones are "
              "configured; one that does not exist means normal."),
        _sent("X-Nexus-Priority", "The same under its older name; X-Forebay-Priority comes first."),
        _sent("X-Forebay-User", "Whom fairness counts the request for, where no key says so and "
              "the body names nobody."),
        _sent("X-Forebay-Session", "Requests of one session prefer the same node."),
        _sent("X-Forebay-Max-Wait", "Longest wait in seconds; may only shorten the configured one. "
              "0 means now or not at all.",
              {"type": "number", "minimum": 0, "maximum": 1_000_000_000}),
        _sent("X-Request-Id", "An id of the caller's own, used and echoed where it is plain, at "
              "most 128 characters long and not in use."),
        _sent("traceparent", "Passed on to the node."),
        _sent("Accept-Language", "Error messages are in Japanese where this prefers `ja`."),
        _sent("Last-Event-ID", "The number of the event seen last; those after it are sent.",
              {"type": "string", "pattern": "^[0-9]{1,18}$"}),
        _sent("X-Forebay-Guard-Token", "The token that guards and gateways share."),
        _sent("anthropic-version", "Where it is sent, models are listed as Anthropic does."),
    )
}  # fmt: skip
"""By name; every one of them may be left out."""

ON_INFERENCE: Final = (
    "X-Forebay-Priority", "X-Nexus-Priority", "X-Forebay-User", "X-Forebay-Session",
    "X-Forebay-Max-Wait", "X-Request-Id", "traceparent", "Accept-Language",
)  # fmt: skip


def _given(description: str, schema: dict[str, Any], *, always: bool = False) -> dict[str, Any]:
    return {"description": description, "schema": schema, "required": always}


RESPONSE_HEADERS: Final[dict[str, dict[str, Any]]] = {
    "X-Request-Id": _given("The id of the request, the caller's own or ours.", _TEXT, always=True),
    "X-Forebay-Node": _given("The node that answered, or was the last to fail.", _TEXT),
    "X-Forebay-Model": _given("The model that ran, where an alias or a fallback chose it.", _TEXT),
    "X-Queue-Status": _given("Whether it had to wait.", {"enum": ["direct", "queued"]}),
    "X-Queue-Wait-Ms": _given("How long it waited, in milliseconds.", _DIGITS),
    "X-Queue-Position": _given("Its place on arrival, from 1; only where it waited.",
                               {"type": "integer", "minimum": 1}),
    "X-Estimated-Wait": _given("The wait in whole seconds that was expected on arrival; only where "
                               "it waited and something has been measured.", _DIGITS),
    "Retry-After": _given("Whole seconds after which to try again.",
                          {"type": "integer", "minimum": 1, "maximum": 120}, always=True),
    "retry-after-ms": _given("The same in milliseconds.",
                             {"type": "integer", "minimum": 1, "maximum": 120_000}, always=True),
    "x-should-retry": _given("Whether trying again can help; the stock SDKs obey it.",
                             {"enum": ["true", "false"]}),
    "WWW-Authenticate": _given("How to send a key.", {"const": "Bearer"}, always=True),
}  # fmt: skip

RELAYED: Final = (
    "X-Request-Id", "X-Forebay-Node", "X-Forebay-Model", "X-Queue-Status", "X-Queue-Wait-Ms",
    "X-Queue-Position", "X-Estimated-Wait",
)  # fmt: skip
"""On everything that a node answered."""


def header_references(names: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Return these response headers by reference."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def parameter_references(names: tuple[str, ...]) -> list[dict[str, str]]:
    """Return these request headers by reference."""
    return [{"$ref": f"#/components/parameters/{name}"} for name in names]
