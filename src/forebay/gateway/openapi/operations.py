"""One method of one path in `/openapi.json`, and the path items made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from forebay.gateway.openapi.errors import error_responses
from forebay.gateway.openapi.headers import parameter_references
from forebay.gateway.openapi.schemas import reference

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.gateway.openapi.schemas import Schema

_PATH_PARAMETERS: Final = {
    "file_id": "The id of a file.",
    "batch_id": "The id of a batch.",
    "session_id": "The session's id.",
    "prompt_id": "The prompt's id.",
    "ticket_id": "The id of the request: the `X-Request-Id` that it was answered with or sent.",
    "model": "The model's name; it may contain slashes.",
    "name": "The node's name.",
    "job_id": "The job's id: a whole number.",
}


_TAGS: Final = {
    "/v1/queue": "queue",
    "/v1/models": "models",
    "/api/": "models",
    "/admin/": "admin",
    "/guard/": "guards",
    "/jobs": "jobs",
    "/v1/files": "batches",
    "/v1/batches": "batches",
    "/session": "sessions",
    "/acp": "sessions",
}
"""By the beginning of the path; any other is about the status."""


class Operation(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    summary: str
    answer: str = ""
    """The schema of a good answer; "" for one without JSON."""
    codes: tuple[str, ...] = ()
    """What can go wrong, beside what can always go wrong."""
    status: int = 200
    body: str = ""
    """The schema of the request body; "" for none."""
    headers: tuple[str, ...] = ("Accept-Language",)
    media: str = "application/json"
    """The content type of a good answer; "" for none."""
    body_media: str = "application/json"
    """The content type of the request body."""
    needs_body: bool = True
    """Whether the request body, where there is one, must be sent."""
    may_be_empty: bool = False
    """Whether there may be nothing to say: 204."""
    query: tuple[dict[str, Any], ...] = ()
    """Its query parameters, as `query` makes them."""


def query(name: str, schema: Schema, description: str = "") -> dict[str, Any]:
    """Return an optional query parameter."""
    described = {"description": description} if description else {}
    return {"name": name, "in": "query", "required": False, **described, "schema": schema}


def operation_paths(operations: Iterable[Operation]) -> dict[str, dict[str, Any]]:
    """Return the path items of these operations."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation)
    return paths


def _described(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": _operation_id(operation),
        "tags": [_tag(operation.path)],
        "summary": operation.summary,
        "parameters": [
            *_path_parameters(operation.path),
            *operation.query,
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


def _tag(path: str) -> str:
    return next((tag for start, tag in _TAGS.items() if path.startswith(start)), "status")


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
