"""The other routes of `/openapi.json`: looking in, models, and what operators do."""

from __future__ import annotations

from typing import Any, Final

from forebay.gateway.openapi.batches import (
    BATCH_OPERATIONS,
    BATCH_PATH_PARAMETERS,
    QUERY_PARAMETERS,
)
from forebay.gateway.openapi.errors import FOR_ADMINS, WITH_A_KEY, error_responses
from forebay.gateway.openapi.guards import GUARD_OPERATIONS, GUARD_QUERY_PARAMETERS
from forebay.gateway.openapi.headers import parameter_references
from forebay.gateway.openapi.jobs import JOB_OPERATIONS, JOB_QUERY_PARAMETERS
from forebay.gateway.openapi.operation import Operation
from forebay.gateway.openapi.schemas import reference
from forebay.gateway.openapi.sessions import SESSION_OPERATIONS, SESSION_PATH_PARAMETERS

_AS_LISTED: Final = ("Accept-Language", "anthropic-version")

_OPERATIONS: Final = (
    Operation("/", "get", "The page", "status", media="text/html"),
    Operation("/dashboard/{name}", "get", "A file of the page", "status",
               codes=("not_found",), media="*/*"),
    Operation("/events", "get", "What the page draws, twice a second, as server-sent events",
               "status", codes=(*WITH_A_KEY, "too_many_connections"), media="text/event-stream"),
    Operation("/health", "get", "Whether the gateway is alive; touches no node", "status",
               "Health"),
    Operation("/ready", "get", "Whether requests should be sent here", "status", "Ready",
               ("shutting_down", "no_node", "coordination_lost")),
    Operation("/metrics", "get", "Metrics in Prometheus' text format", "status",
               codes=WITH_A_KEY, media="text/plain"),
    Operation("/capabilities", "get", "What this gateway offers, and its limits", "status",
               "Capabilities"),
    Operation("/openapi.json", "get", "This description", "status", media="application/json"),
    Operation("/v1/queue", "get", "The whole queue, in aggregates only", "queue", "Queue",
               WITH_A_KEY),
    Operation("/v1/queue/{ticket_id}", "get", "Where one request stands, and why it waits",
               "queue", "Ticket", (*WITH_A_KEY, "not_found", "replica_unavailable")),
    Operation("/v1/queue/{ticket_id}", "delete", "Cancel a request, waiting or running", "queue",
               "Cancelled",
               (*WITH_A_KEY, "not_found", "store_unavailable", "replica_unavailable",
                "replica_lost")),
    Operation("/v1/models", "get", "The models there are, aliases included", "models",
               "ModelList", WITH_A_KEY, headers=_AS_LISTED),
    Operation("/v1/models/{model}", "get", "One model", "models", "ModelCard",
               (*WITH_A_KEY, "model_not_found"), headers=_AS_LISTED),
    Operation("/api/tags", "get", "The models there are, as Ollama lists them", "models", "Tags",
               WITH_A_KEY),
    Operation("/api/ps", "get", "The models in memory, as Ollama lists them, of all its nodes",
               "models", "Tags", WITH_A_KEY),
    Operation("/api/version", "get", "The gateway's version, where Ollama's clients ask", "models",
               "OllamaVersion"),
    Operation("/admin/nodes", "get", "The nodes, with all that is known of them", "admin",
               "NodeList", FOR_ADMINS),
    Operation("/admin/nodes", "post", "Take in a node", "admin", "Node",
               (*FOR_ADMINS, "conflict"), 201, "NodeDescription"),
    Operation("/admin/nodes/{name}", "delete", "Take a node out; what runs there may finish",
               "admin", codes=(*FOR_ADMINS, "not_found"), status=204, media=""),
    Operation("/admin/nodes/{name}/drain", "post", "Let nothing new start on a node", "admin",
               "Node", (*FOR_ADMINS, "not_found")),
    Operation("/admin/nodes/{name}/resume", "post", "Use a drained node again", "admin",
               "Node", (*FOR_ADMINS, "not_found")),
    Operation("/admin/reload", "post", "Read the settings anew and apply what has changed",
               "admin", "Reloaded", FOR_ADMINS),
    *GUARD_OPERATIONS,
    *JOB_OPERATIONS,
    *BATCH_OPERATIONS,
    *SESSION_OPERATIONS,
)  # fmt: skip

_QUERY_PARAMETERS: Final = {
    **QUERY_PARAMETERS,
    **JOB_QUERY_PARAMETERS,
    **GUARD_QUERY_PARAMETERS,
}

_PATH_PARAMETERS: Final = {
    **BATCH_PATH_PARAMETERS,
    **SESSION_PATH_PARAMETERS,
    "ticket_id": "The id of the request: the `X-Request-Id` that it was answered with or sent.",
    "model": "The model's name; it may contain slashes.",
    "name": "The node's name.",
    "job_id": "The job's id: a whole number.",
}


def operation_paths() -> dict[str, dict[str, Any]]:
    """Return every route that is not inference."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in _OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation)
    return paths


def _described(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": _operation_id(operation),
        "tags": [operation.tag],
        "summary": operation.summary,
        "parameters": [
            *_path_parameters(operation.path),
            *(_QUERY_PARAMETERS[name] for name in operation.query),
            *parameter_references(operation.headers),
        ],
    }
    if operation.body:
        described["requestBody"] = {
            "required": operation.needs_body,
            "content": {operation.body_media: {"schema": reference(operation.body)}},
        }
    described["responses"] = {
        str(operation.status): _good_answer(operation),
        **({"204": {"description": "Nothing to say"}} if operation.may_be_empty else {}),
        **error_responses(operation.path, operation.codes),
    }
    return described


def _good_answer(operation: Operation) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": operation.summary}
    if operation.media:
        schema = reference(operation.answer) if operation.answer else {}
        answer["content"] = {operation.media: {"schema": schema}}
    return answer


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "description": words,
         "schema": {"type": "string", "minLength": 1}}
        for name, words in _PATH_PARAMETERS.items()
        if f"{{{name}}}" in path
    ]  # fmt: skip


def _operation_id(operation: Operation) -> str:
    words = [part.strip("{}") for part in operation.path.strip("/").split("/") if part]
    return "_".join([operation.method, *words]).replace(".", "_")
