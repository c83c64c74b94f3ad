"""Status, queue, models, admin and guards in `/openapi.json`."""

from __future__ import annotations

from typing import Final, get_args

from forebay.build import Build
from forebay.coordination.protocol.fleet import Mode, ReplicaState
from forebay.core.actions import WhyBetter
from forebay.gateway.openapi.operations import FOR_ADMINS, WITH_A_KEY, Operation, query
from forebay.gateway.openapi.schemas import (
    BOOLEAN,
    COUNT,
    COUNTS,
    INTEGER_OR_NULL,
    SECONDS,
    SECONDS_OR_NULL,
    STATE,
    TEXT,
    TEXT_OR_NULL,
    Schema,
    closed,
    listed,
    record,
    reference,
    said,
)
from forebay.guard.heartbeat import GuardState

_AS_LISTED: Final = ("Accept-Language", "anthropic-version")
_GUARD_HEADERS: Final = ("Accept-Language", "X-Forebay-Guard-Token")
_SPEED: Final = {"type": "number", "minimum": 0}
_SHORT: Final = {"type": "string", "maxLength": 256}
_INSTANCE: Final = query(
    "instance", _SHORT, "Which guard stops, where another may have taken over its name."
)
_REQUEST_STATE: Final = {"enum": ["waiting", "running", "ended"]}
_REQUESTS_QUERY: Final = (
    query("state", _REQUEST_STATE, "Only those; else all, with the last 1,000 that ended."),
    query("user", TEXT, "Only requests that count for this user."),
    query("model", TEXT, "Only requests for this model."),
    query("id", TEXT, "Only requests of this id; several that ended may have had the same."),
    query("outcome", TEXT, "Only those that ended so: `served`, `cancelled` or an error code."),
    query("limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100},
        "Most to list."),
    query("before", TEXT, "The id of the last one seen."),
)  # fmt: skip

OPERATIONS: Final = (
    Operation("get", "/", "The dashboard", media="text/html"),
    Operation("get", "/dashboard/{name}", "A file of the dashboard", codes=("not_found",),
        media="*/*"),
    Operation("get", "/dashboard/{edition}/{name}", "The same file, at an address that changes "
        "with the files: browsers keep it", codes=("not_found",), media="*/*"),
    Operation("get", "/events", "What the dashboard shows, twice a second, as server-sent events",
        codes=(*WITH_A_KEY, "too_many_connections"), media="text/event-stream"),
    Operation("get", "/events/history", "Up to 24 hours of the same, by the minute", "DayHistory",
        WITH_A_KEY, query=(
            query("hours", {"type": "integer", "minimum": 1, "maximum": 24, "default": 24}),)),
    Operation("get", "/health", "Whether the gateway is alive; touches no node", "Health"),
    Operation("get", "/ready", "Whether requests should be sent here", "Ready",
        ("shutting_down", "no_node", "coordination_lost")),
    Operation("get", "/metrics", "Metrics in Prometheus' text format", codes=WITH_A_KEY,
        media="text/plain"),
    Operation("get", "/capabilities", "What this gateway offers, and its limits", "Capabilities"),
    Operation("get", "/openapi.json", "This description"),
    Operation("get", "/v1/queue", "The whole queue, in aggregates only", "Queue", WITH_A_KEY),
    Operation("get", "/v1/queue/requests",
        "Requests one by one, the newest first: those of the same key, all for an admin",
        "RequestList", FOR_ADMINS, query=_REQUESTS_QUERY),
    Operation("get", "/v1/queue/{ticket_id}", "The state of one request, and why it waits",
        "Ticket", (*WITH_A_KEY, "not_found", "replica_unavailable")),
    Operation("delete", "/v1/queue/{ticket_id}", "Cancel a request, waiting or running",
        "Cancelled", (*WITH_A_KEY, "not_found", "store_unavailable", "replica_unavailable",
                      "replica_lost")),
    Operation("get", "/v1/models", "The available models, aliases included", "ModelList",
        WITH_A_KEY, headers=_AS_LISTED),
    Operation("get", "/v1/models/{model}", "One model", "ModelCard",
        (*WITH_A_KEY, "model_not_found"), headers=_AS_LISTED),
    Operation("get", "/api/tags", "The available models, as Ollama lists them", "Tags",
        WITH_A_KEY),
    Operation("get", "/api/ps", "The models in memory of all nodes, as Ollama lists them", "Tags",
        WITH_A_KEY),
    Operation("get", "/api/version", "The gateway's version, where Ollama's clients ask",
        "OllamaVersion"),
    Operation("get", "/admin/nodes", "The nodes, with all that is known of them", "NodeList",
        FOR_ADMINS),
    Operation("post", "/admin/nodes", "Add a node", "Node", (*FOR_ADMINS, "conflict"), 201,
        "NodeDescription"),
    Operation("delete", "/admin/nodes/{name}", "Remove a node; what runs there may finish",
        codes=(*FOR_ADMINS, "not_found"), status=204, media=""),
    Operation("post", "/admin/nodes/{name}/drain", "Let nothing new start on a node", "Node",
        (*FOR_ADMINS, "not_found")),
    Operation("post", "/admin/nodes/{name}/resume", "Use a drained node again", "Node",
        (*FOR_ADMINS, "not_found")),
    Operation("post", "/admin/reload", "Reload the settings and apply what has changed",
        "Reloaded", FOR_ADMINS),
    Operation("post", "/guard/nodes",
        "A heartbeat of a guard; the first one registers its node, and is answered 201",
        "GuardHeard", ("guard_refused", "conflict", "shutting_down"), body="GuardBeat",
        headers=_GUARD_HEADERS),
    Operation("delete", "/guard/nodes/{name}",
        "Forget a node whose guard stops; what runs there may finish",
        codes=("guard_refused", "not_found"), status=204, media="", headers=_GUARD_HEADERS,
        query=(_INSTANCE,)),
)  # fmt: skip

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
_MODEL_SLOTS: Final = {
    "type": "object", "maxProperties": 16,
    "additionalProperties": {"type": "integer", "minimum": 1, "maximum": 10_000},
}  # fmt: skip
_BYTES_OR_NULL: Final = {"type": ["integer", "null"], "minimum": 0, "maximum": 2**60}

_NUMBERS: Final = listed({"type": ["number", "null"]})
_BY_CLASS: Final[Schema] = {"type": "object", "additionalProperties": _NUMBERS}

SCHEMAS: Final[dict[str, Schema]] = {
    "DayHistory": record({
        "priorities": listed(TEXT),
        "step_seconds": COUNT,
        "at": said("When each minute began, in seconds since 1970; the oldest first. The other "
            "columns are as long.", listed(COUNT)),
        "depth": said("Waiting on average, by class.", _BY_CLASS),
        "processing": _NUMBERS,
        "served": _NUMBERS,
        "rejected": _NUMBERS,
        "wait_p50_seconds": said("Null where nobody waited.", _NUMBERS),
        "wait_p95_seconds": _NUMBERS,
        "tokens_per_second": _NUMBERS,
        "wait_p50_seconds_by_priority": said("Null where no request of that class ended, and "
            "in minutes that an older version stored.", _BY_CLASS),
        "wait_p95_seconds_by_priority": _BY_CLASS,
    }),
    "NodeDescription": closed({
        "name?": said(
            "Its name in headers and metrics; left out, made of the host and the port.",
            {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"}),
        "url": said("http or https, a host and a port, no path.",
            {"type": "string", "pattern": "^https?://"}),
        "kind?": said('Such as "ollama"; "auto" finds out.',
            {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"}),
        "slots?": said('Requests at once; "auto" (or 0) asks the node, or finds out by trying.',
            {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 10_000}, {"const": "auto"}]}),
        "model_slots?": said("Slots beside these that some models have for themselves, by pattern.",
            _MODEL_SLOTS),
        "models?": said("Models it serves; empty asks the node.", listed(TEXT)),
        "connect_seconds?": said("Longest time for a connection to open.",
            {"type": "number", "exclusiveMinimum": 0}),
    }),
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
            "enum": ["busy", "turn", "offline", "loading", "starting", "rate", "key",
                "better_node", None],
            "description": "The same for programs; null while it runs.",
        },
        "better_node": said("The busy node that it waits for, though another is free; null where "
            "it waits for none.", {"anyOf": [record({
                "node": TEXT,
                "why": said("What gains most: its model is in memory there, its prompt is cached "
                    "there, or that node is faster.", {"enum": list(get_args(WhyBetter))}),
                "seconds_gained": said("How much sooner it is expected to end there.", SECONDS),
                "seconds_left": said("How long it waits for that node at most.", SECONDS),
                "times_as_fast": said("That node, against what is free.", _SPEED),
                "cached_tokens": COUNT,
                "prompt_tokens": COUNT,
            }), {"type": "null"}]}),
        "cache": said("What of its prompt a node has computed before: where it runs, or where it "
            "waits to run; null where nothing is known.", {"anyOf": [record({
                "node": TEXT_OR_NULL,
                "cached_tokens": COUNT,
                "prompt_tokens": COUNT,
                "message": TEXT,
            }), {"type": "null"}]}),
        "attempt": COUNT,
        "timeline": listed(record({"seconds_ago": {"type": "number"}, "event": TEXT})),
    }),
    "RequestList": record({
        "data": listed(record({
            "id": TEXT,
            "state": _REQUEST_STATE,
            "outcome": said("`served`, `passed_through` (a 4xx or 5xx of the node), `cancelled`, "
                "or an error code; null until it has ended.", TEXT_OR_NULL),
            "status": said("Of the answer; null until it has ended.", INTEGER_OR_NULL),
            "model": TEXT,
            "user": said("Whom fairness counts it for.", TEXT),
            "priority": TEXT,
            "position": said("1 is next; null unless it waits.", INTEGER_OR_NULL),
            "estimated_wait_seconds": said("The wait still to come; null unless it waits.",
                {"anyOf": [record({"p50": SECONDS_OR_NULL, "p90": SECONDS_OR_NULL}),
                    {"type": "null"}]}),
            "waited_seconds": SECONDS,
            "node": TEXT_OR_NULL,
            "attempt": said("How often it has started.", COUNT),
            "reason": said("Why it waits, in words.", TEXT_OR_NULL),
            "reason_code": said("The same for programs.", TEXT_OR_NULL),
            "prompt_tokens": said("As the node says, else estimated.", COUNT),
            "output_limit": said("The caller's own; 0 where it gave none.", COUNT),
            "body_bytes": COUNT,
            "arrived": said("Unix time.", {"type": "number"}),
        })),
        "has_more": BOOLEAN,
        "incomplete": said("Gateways of the fleet that did not answer: their requests are missing.",
            listed(TEXT)),
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
        "build": said("Whether the hot path runs as C extensions or as plain Python.",
            {"enum": list(get_args(Build))}),
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
        "slots_reason": said(
            "Why it has as many, if found automatically; null where the settings say them.",
            TEXT_OR_NULL),
        "in_flight": COUNT,
        "families": listed(TEXT),
        "models": listed(TEXT),
        "loaded": said("Models in memory; null where the node does not say.",
            {"type": ["array", "null"], "items": TEXT}),
        "failing": said("Models that rest there for seconds: they failed.", listed(TEXT)),
        "gpu_load": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
        "speed": said("How fast it served lately: 1.0 is usual for its models, higher is faster; "
            "null where it was not measured.", {"anyOf": [_SPEED, {"type": "null"}]}),
        "speed_measured_seconds_ago": SECONDS_OR_NULL,
        "kv_free_tokens": said("Tokens that its key-value cache has room for, by its guard's last "
            "heartbeat; null where it does not say.", {"type": ["integer", "null"], "minimum": 0}),
        "failures": said("Requests that failed there, by kind.", COUNTS),
        "last_error": TEXT_OR_NULL,
    }),
    "NodeList": record({"data": listed(reference("Node"))}),
    "Reloaded": record({"changed": said("What has changed, in dotted names.", listed(TEXT))}),
    "GuardBeat": record({
        "name": said("The node's name.", {"type": "string", "maxLength": 64}),
        "url": said("Where the gateway reaches the guard: http or https, a host and a port.",
            _SHORT),
        "instance": said("Drawn anew whenever a guard starts.",
            {"type": "string", "minLength": 8, "maxLength": 64}),
        "state": said("What the guard is doing.", {"enum": list(get_args(GuardState))}),
        "slots": said("Requests that it lets through at once.",
            {"type": "integer", "minimum": 1, "maximum": 10_000}),
        "model_slots?": said("Slots beside these that some models have for themselves, by pattern.",
            _MODEL_SLOTS),
        "in_flight?": said("Requests that run there, for whichever gateway.",
            {"type": "integer", "minimum": 0, "maximum": 10_000}),
        "gpu_load?": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
        "vram_used_bytes?": _BYTES_OR_NULL,
        "vram_total_bytes?": _BYTES_OR_NULL,
        "kv_free_tokens?": said("Tokens that its key-value cache has room for; null where it does "
            "not say.", {"type": ["integer", "null"], "minimum": 0, "maximum": 2**40}),
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
