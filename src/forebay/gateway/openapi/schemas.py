"""The bodies of `/openapi.json`: what is read of requests, and what answers hold."""

from __future__ import annotations

from typing import Any, Final, TypeAlias, get_args

from forebay.coordination.protocol.fleet import Mode, ReplicaState
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
    "NodeDescription": closed({
        "name?": said(
            "Its name in headers and metrics; left out, made of the host and the port.",
            {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"}),
        "url": said("http or https, a host and a port, no path.",
            {"type": "string", "pattern": "^https?://"}),
        "kind?": said('Such as "ollama"; "auto" finds out.',
            {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"}),
        "slots?": said("Requests at once; 0 asks the node.",
            {"type": "integer", "minimum": 0, "maximum": 10_000}),
        "models?": said("Models it serves; empty asks the node.", listed(TEXT)),
        "connect_seconds?": said("Longest time for a connection to open.",
            {"type": "number", "exclusiveMinimum": 0}),
    }),
}  # fmt: skip
"""What is read of request bodies; members that are not named here pass through untouched."""

_CODE: Final[Schema] = {"enum": sorted(CODES)}
_DETAILS: Final[dict[str, Schema]] = {
    "retry_after?": said("Whole seconds after which to try again.", COUNT),
    "waited_seconds?": said("How long it waited (`queue_timeout`, `no_node`).", SECONDS),
    "estimated_wait_seconds?": said("The wait to expect (`deadline_unreachable`).", SECONDS),
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

_MODEL_CARD = record({
    "id": TEXT,
    "object": {"const": "model"},
    "created": COUNT,
    "owned_by": said("As a node says; `forebay-sim` where only simulated nodes have it.", TEXT),
    "max_model_len?": said("Tokens that fit into its context, as vLLM says; other servers say it "
        "in other words, and more of what they say is here too.", COUNT),
})  # fmt: skip
_ANTHROPIC_CARD = record(
    {"type": {"const": "model"}, "id": TEXT, "display_name": TEXT, "created_at": TEXT}
)

_MODE: Final = said(
    "`coordinated`: a leader decides for all; `seeking`: there is none yet; `alone`: the store is "
    "out of reach; `cut_off`: for this gateway only.",
    {"enum": list(get_args(Mode))},
)
_REPLICA: Final = record({
    "name": said("Eight hexadecimal digits, the same after a restart.", TEXT),
    "state": {"enum": list(get_args(ReplicaState))},
    "version": TEXT,
    "waiting": COUNT,
    "running": COUNT,
    "lent": said("Slots that it may use without asking.", COUNT),
    "heard_seconds": said("How long ago it was last heard of.", SECONDS),
    "same_settings": said("Whether its settings are those of the one that answers.",
        BOOLEAN),
    "address?": said("Where the others reach it; for admins only.", TEXT),
})  # fmt: skip
_FLEET: Final = said(
    "The gateways that share this queue; absent where it is not shared.",
    record({
        "mode": _MODE,
        "epoch": said("How many leaders there have been.", COUNT),
        "me": said("The name of the one that answers.", TEXT),
        "counted_seconds_ago": said(
            "How old the figures of the queue are: 0 when the leader has just told them, null "
            "when it never has.", SECONDS_OR_NULL),
        "replicas": listed(_REPLICA),
    }),
)  # fmt: skip

ANSWERS: Final[dict[str, Schema]] = {
    "Queue": record({
        "waiting": COUNT,
        "processing": said("Live requests that run now.", COUNT),
        "max_size": COUNT,
        "average_wait_seconds": said("Over the last 100.", SECONDS),
        "average_service_seconds": said("Over the last 100.", SECONDS),
        "by_priority": said("Waiting, by class.", COUNTS),
        "processing_jobs": said("Jobs that run now.", COUNT),
        "rejected_total": said("Refused because there was no room.", COUNT),
        "timeouts_total": COUNT,
        "served_total": COUNT,
        "fleet?": _FLEET,
    }),
    "Ticket": record({
        "id": TEXT,
        "state": TEXT,
        "position": said("1 is next; null while it runs.", INTEGER_OR_NULL),
        "estimated_wait_seconds": record({"p50": SECONDS_OR_NULL, "p90": SECONDS_OR_NULL}),
        "waited_seconds": SECONDS,
        "reason": said("Why it waits, in words.", TEXT),
        "reason_code": {
            "type": ["string", "null"],
            "enum": ["busy", "turn", "offline", "loading", "starting", None],
            "description": "The same for programs; null while it runs.",
        },
        "attempt": COUNT,
        "timeline": listed(record({"seconds_ago": {"type": "number"}, "event": TEXT})),
    }),
    "Cancelled": record({"id": TEXT, "state": {"const": "cancelled"}}),
    "ModelCard": {"anyOf": [_MODEL_CARD, _ANTHROPIC_CARD]},
    "ModelList": {
        "anyOf": [
            record({"object": {"const": "list"}, "data": listed(_MODEL_CARD)}),
            record({"data": listed(_ANTHROPIC_CARD), "has_more": {"const": False},
                "first_id": TEXT_OR_NULL, "last_id": TEXT_OR_NULL}),
        ],
        "description": "OpenAI's form, or Anthropic's where `anthropic-version` is sent.",
    },
    "Tags": record({"models": listed(record({"name": TEXT, "model": TEXT}))}),
    "OllamaVersion": record({"version": said("The gateway's own.", TEXT)}),
    "Health": record({"status": {"const": "ok"}, "version": TEXT}),
    "Ready": record({"status": {"const": "ready"}, "mode?": _MODE}),
    "Capabilities": record({
        "version": TEXT,
        "families": said("The routes of each dialect.",
            {"type": "object", "additionalProperties": listed(TEXT)}),
        "priorities": said("The classes, most urgent first.", listed(TEXT)),
        "versions": {"type": "object", "additionalProperties": TEXT},
        "routes": said("Every path there is.", listed(TEXT)),
        "limits": said("Null is no limit.", record({
            "maxPendingPromptsPerSession?": INTEGER_OR_NULL,
            "promptDeadlineMs?": INTEGER_OR_NULL,
        })),
    }),
    "Node": record({
        "name": TEXT,
        "url": TEXT,
        "kind": TEXT_OR_NULL,
        "version": TEXT_OR_NULL,
        "guarded": said("Whether a guard stands before it.", BOOLEAN),
        "state": STATE,
        "slots": COUNT,
        "in_flight": COUNT,
        "families": listed(TEXT),
        "models": listed(TEXT),
        "loaded": said("Models in memory; null where the node does not say.",
            {"type": ["array", "null"], "items": TEXT}),
        "failing": said("Models that rest there for seconds: they failed.", listed(TEXT)),
        "gpu_load": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
        "failures": said("Requests that failed there, by kind.", COUNTS),
        "last_error": TEXT_OR_NULL,
    }),
    "NodeList": record({"data": listed(reference("Node"))}),
    "Reloaded": record({"changed": said("What has changed, in dotted names.", listed(TEXT))}),
}  # fmt: skip

SCHEMAS: Final[dict[str, Schema]] = {**REQUESTS, **ERRORS, **ANSWERS}
