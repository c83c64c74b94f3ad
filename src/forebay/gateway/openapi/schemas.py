"""How schemas of `/openapi.json` are written, and those of inference requests and errors."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from forebay.gateway.errors.codes import CODES
from forebay.relay.anthropic import TYPES as ANTHROPIC_TYPES

Schema: TypeAlias = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
SECONDS: Final[Schema] = {"type": "number", "minimum": 0}
TEXT_OR_NULL: Final[Schema] = {"type": ["string", "null"]}
INTEGER_OR_NULL: Final[Schema] = {"type": ["integer", "null"]}
BOOLEAN: Final[Schema] = {"type": "boolean"}
SECONDS_OR_NULL: Final[Schema] = {"type": ["number", "null"], "minimum": 0}
COUNTS: Final[Schema] = {"type": "object", "additionalProperties": COUNT}
STATE: Final[Schema] = {"enum": ["online", "loading", "offline", "draining"]}


def reference(name: str) -> Schema:
    """Return a reference to one of these schemas."""
    return {"$ref": f"#/components/schemas/{name}"}


def said(description: str, schema: Schema) -> Schema:
    """Return a schema with words of its own."""
    return {**schema, "description": description}


def listed(items: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": items}


def record(properties: dict[str, Schema]) -> Schema:
    """Return the schema of an object that may grow more members; `?` marks optional ones."""
    needed = [name for name in properties if not name.endswith("?")]
    schema: Schema = {
        "type": "object",
        "properties": {name.removesuffix("?"): value for name, value in properties.items()},
    }
    return {**schema, "required": needed} if needed else schema


def closed(properties: dict[str, Schema]) -> Schema:
    """Return the schema of an object without other members than these."""
    return {**record(properties), "additionalProperties": False}


MODEL: Final = said("A model or an alias.", {"type": "string", "minLength": 1, "maxLength": 1024})
LIMIT: Final = said("Most tokens to answer with.", {"type": ["number", "null"]})
_STREAM: Final = {"type": ["boolean", "null"]}
_USER: Final = said("Whom fairness counts it for, unless a key says so.", TEXT_OR_NULL)
_TIER: Final = said(
    "`priority` reads as high, `flex` as low, anything else as normal; a header comes first.",
    TEXT_OR_NULL,
)

REQUESTS: Final[dict[str, Schema]] = {
    "OpenAIRequest": record({
        "model": MODEL,
        "stream?": said("Whether to answer with server-sent events; default false.", _STREAM),
        "user?": _USER,
        "service_tier?": _TIER,
        "max_tokens?": LIMIT,
        "max_completion_tokens?": LIMIT,
        "max_output_tokens?": LIMIT,
    }),
    "AnthropicRequest": record({
        "model": MODEL,
        "stream?": said("Whether to answer with server-sent events; default false.", _STREAM),
        "max_tokens?": LIMIT,
        "metadata?": {"type": ["object", "null"], "properties": {"user_id": _USER}},
    }),
    "OllamaRequest": record({
        "model": MODEL,
        "stream?": said("Whether to answer line by line; default true.", _STREAM),
        "user?": _USER,
        "options?": {"type": ["object", "null"], "properties": {"num_predict": LIMIT}},
    }),
    "Question": record({"model?": MODEL}),
}  # fmt: skip
"""What is read of request bodies; members that are not named here pass through untouched."""

_CODE: Final[Schema] = {"enum": sorted(CODES)}
_DETAILS: Final[dict[str, Schema]] = {
    "retry_after?": said("Whole seconds after which to try again.", COUNT),
    "waited_seconds?": said("How long it waited (`queue_timeout`, `no_node`).", SECONDS),
    "estimated_wait_seconds?": said(
        "The wait to expect (`deadline_unreachable`, `queue_full`).", SECONDS
    ),
    "cause?": said("What the node did (`node_failed`).", TEXT),
    "node?": said("Which node it ran on.", TEXT),
    "attempts?": said("How often it was tried (`node_failed`).", COUNT),
    "hint?": said("What the caller or the operator can do about it.", TEXT),
    "model?": said("The name that was asked for, cut to 80 letters (`model_not_found`).", TEXT),
    "suggestions?": said("Models that may have been meant (`model_not_found`).", listed(TEXT)),
    "available?": said(
        "Else some of those there are, at most 3 (`model_not_found`).", listed(TEXT)
    ),
}

ERRORS: Final[dict[str, Schema]] = {
    "OpenAIError": record({
        "error": record({
            "message": TEXT, "type": _CODE, "code": _CODE, "param": TEXT_OR_NULL, **_DETAILS
        })
    }),
    "AnthropicError": record({
        "type": {"const": "error"},
        "error": record({
            "type": {"enum": [*ANTHROPIC_TYPES.values(), "invalid_request_error", "api_error"]},
            "message": TEXT,
            "code": _CODE,
            "param?": TEXT,
            **_DETAILS,
        }),
    }),
    "OllamaError": record({"error": TEXT, "code": _CODE, "param?": TEXT, **_DETAILS}),
    "NodeAnswer": {
        "description": "What the node says, byte for byte; the header `X-Forebay-Node` names it."
    },
}  # fmt: skip
"""The gateway's own errors, by family, and the node's answers, which are its own affair."""

SCHEMAS: Final[dict[str, Schema]] = {**REQUESTS, **ERRORS}
