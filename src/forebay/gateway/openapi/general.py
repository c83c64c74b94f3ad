"""Status, queue, models, admin and guards in `/openapi.json`."""

from __future__ import annotations

from typing import Final

from forebay.api.models import (
    AnthropicModelCard,
    AnthropicModelList,
    ModelCard,
    ModelList,
    OllamaVersion,
    Tags,
)
from forebay.api.nodes import GuardHeard, GuardHeartbeat, Node, NodeDescription, NodeList, Reloaded
from forebay.api.queue import Cancelled, Queue, RequestList, Ticket
from forebay.api.status import Capabilities, DayHistory, Health, Ready
from forebay.gateway.openapi.operations import FOR_ADMINS, WITH_A_KEY, Operation, query
from forebay.gateway.openapi.schemas import TEXT

_AS_LISTED: Final = ("Accept-Language", "anthropic-version")
_GUARD_HEADERS: Final = ("Accept-Language", "X-Forebay-Guard-Token")
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
    Operation("get", "/events/history", "Up to 24 hours of the same, by the minute", DayHistory,
        WITH_A_KEY, query=(
            query("hours", {"type": "integer", "minimum": 1, "maximum": 24, "default": 24}),)),
    Operation("get", "/health", "Whether the gateway is alive; touches no node", Health),
    Operation("get", "/ready", "Whether requests should be sent here", Ready,
        ("shutting_down", "no_node", "coordination_lost")),
    Operation("get", "/metrics", "Metrics in Prometheus' text format", codes=WITH_A_KEY,
        media="text/plain"),
    Operation("get", "/capabilities", "What this gateway offers, and its limits", Capabilities),
    Operation("get", "/openapi.json", "This description"),
    Operation("get", "/v1/queue", "The whole queue, in aggregates only", Queue, WITH_A_KEY),
    Operation("get", "/v1/queue/requests",
        "Requests one by one, the newest first: those of the same key, all for an admin",
        RequestList, FOR_ADMINS, query=_REQUESTS_QUERY),
    Operation("get", "/v1/queue/{ticket_id}", "The state of one request, and why it waits",
        Ticket, (*WITH_A_KEY, "not_found", "replica_unavailable")),
    Operation("delete", "/v1/queue/{ticket_id}", "Cancel a request, waiting or running",
        Cancelled, (*WITH_A_KEY, "not_found", "store_unavailable", "replica_unavailable",
                      "replica_lost")),
    Operation("get", "/v1/models", "The available models, aliases included; as Anthropic "
        "lists them where `anthropic-version` is sent", (ModelList, AnthropicModelList), WITH_A_KEY,
        headers=_AS_LISTED),
    Operation("get", "/v1/models/{model}", "One model", (ModelCard, AnthropicModelCard),
        (*WITH_A_KEY, "model_not_found"), headers=_AS_LISTED),
    Operation("get", "/api/tags", "The available models, as Ollama lists them", Tags,
        WITH_A_KEY),
    Operation("get", "/api/ps", "The models in memory of all nodes, as Ollama lists them", Tags,
        WITH_A_KEY),
    Operation("get", "/api/version", "The gateway's version, where Ollama's clients ask",
        OllamaVersion),
    Operation("get", "/admin/nodes", "The nodes, with all that is known of them", NodeList,
        FOR_ADMINS),
    Operation("post", "/admin/nodes", "Add a node", Node, (*FOR_ADMINS, "conflict"), 201,
        NodeDescription),
    Operation("delete", "/admin/nodes/{name}", "Remove a node; what runs there may finish",
        codes=(*FOR_ADMINS, "not_found"), status=204, media=""),
    Operation("post", "/admin/nodes/{name}/drain", "Let nothing new start on a node", Node,
        (*FOR_ADMINS, "not_found")),
    Operation("post", "/admin/nodes/{name}/resume", "Use a drained node again", Node,
        (*FOR_ADMINS, "not_found")),
    Operation("post", "/admin/reload", "Reload the settings and apply what has changed",
        Reloaded, FOR_ADMINS),
    Operation("post", "/guard/nodes",
        "A heartbeat of a guard; the first one registers its node, and is answered 201",
        GuardHeard, ("guard_refused", "conflict", "shutting_down"), body=GuardHeartbeat,
        headers=_GUARD_HEADERS),
    Operation("delete", "/guard/nodes/{name}",
        "Forget a node whose guard stops; what runs there may finish",
        codes=("guard_refused", "not_found"), status=204, media="", headers=_GUARD_HEADERS,
        query=(_INSTANCE,)),
)  # fmt: skip
