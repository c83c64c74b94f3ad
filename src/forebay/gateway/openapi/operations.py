"""The operations of `/openapi.json`: path items, with their headers and errors.

Errors are made from `codes.py`, in the dialect of each route.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from forebay.api.errors import AnthropicError, OllamaError, OpenAIError
from forebay.api.sessions import PromptQueueFull
from forebay.gateway.errors.codes import CODES
from forebay.gateway.errors.rendering import LISTED, family_of
from forebay.gateway.openapi.schemas import COUNT, TEXT, reference

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.gateway.openapi.schemas import Schema

ANYWHERE: Final = (
    "invalid_request", "unsupported", "forbidden_host", "body_too_large", "headers_too_large",
    "request_timeout", "too_many_connections", "internal_error",
)  # fmt: skip
"""What any request may run into, whatever it asks for."""
WITH_A_KEY: Final = ("unauthorized",)
FOR_ADMINS: Final = ("unauthorized", "forbidden")

_ERRORS_OF: Final = {
    "openai": (OpenAIError,),
    "anthropic": (AnthropicError,),
    "ollama": (OllamaError,),
    "either": (OpenAIError, AnthropicError),
}
_CHOSEN: Final = {"queue_full": "queue.full_status", "queue_timeout": "queue.timeout_status"}

ON_INFERENCE: Final = (
    "X-Forebay-Priority", "X-Nexus-Priority", "X-Forebay-User", "X-Forebay-Session",
    "X-Forebay-Max-Wait", "X-Request-Id", "traceparent", "Accept-Language",
)  # fmt: skip
RATE: Final = (
    "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests",
    "x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens",
)  # fmt: skip
"""For keys that have such a limit."""
RELAYED: Final = (
    "X-Request-Id", "X-Forebay-Node", "X-Forebay-Model", "X-Queue-Status", "X-Queue-Wait-Ms",
    "X-Queue-Position", "X-Estimated-Wait", *RATE,
)  # fmt: skip
"""On everything that a node answered."""

_PATH_PARAMETERS: Final = {
    "file_id": "The id of a file.",
    "batch_id": "The id of a batch.",
    "session_id": "The session's id.",
    "prompt_id": "The prompt's id.",
    "ticket_id": "The id of the request: the `X-Request-Id` that it was answered with or sent.",
    "model": "The model's name; it may contain slashes.",
    "name": "The name of the node, the key or the file.",
    "job_id": "The job's id: a whole number.",
}
_TAGS: Final = {
    "/v1/queue": "queue",
    "/v1/models": "models",
    "/v1/usage": "admin",
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


def error_responses(path: str, codes: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the responses that these codes and those of any request give, by status."""
    always = _by_status(ANYWHERE)
    family = "either" if path.startswith(LISTED) else family_of(path).name
    return {
        str(status): {"$ref": f"#/components/responses/{family}_{status}"}
        if always.get(status) == named
        else _response(family, named)
        for status, named in _by_status((*ANYWHERE, *codes)).items()
    }


def shared_responses() -> dict[str, dict[str, Any]]:
    """Return what any request may run into, by dialect and status."""
    return {
        f"{family}_{status}": _response(family, codes)
        for family in _ERRORS_OF
        for status, codes in _by_status(ANYWHERE).items()
    }


def resolved(response: dict[str, Any]) -> dict[str, Any]:
    """Return a response itself where it is given by reference."""
    name = response.get("$ref", "").rpartition("/")[2]
    return shared_responses()[name] if name else response


def _by_status(codes: Iterable[str]) -> dict[int, list[str]]:
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(CODES[code].status, []).append(code)
    return dict(sorted(by_status.items()))


def _response(family: str, codes: list[str]) -> dict[str, Any]:
    names: list[str] = []
    if all(CODES[code].retry_after for code in codes):
        names += ["Retry-After", "retry-after-ms"]
    if any(CODES[code].retry != "unsaid" for code in codes):
        names.append("x-should-retry")
    if "user_queue_full" in codes:  # where requests are queued
        names += RATE
    if codes == ["unauthorized"]:
        names.append("WWW-Authenticate")
    response: dict[str, Any] = {
        "description": "\n".join(
            f"- `{code}`: {CODES[code].meaning}{_note(code)}" for code in codes
        )
    }
    if names:
        response["headers"] = header_references(tuple(names))
    schemas = [reference(body) for body in _ERRORS_OF[family]]
    if "prompt_queue_full" in codes:  # specification 2 has a body of its own
        schemas.append(reference(PromptQueueFull))
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    response["content"] = {"application/json": {"schema": schema}}
    return response


def _note(code: str) -> str:
    """Say where the operator may choose another status."""
    return f" (The status is `{_CHOSEN[code]}`.)" if code in _CHOSEN else ""


def _sent(name: str, description: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": schema or TEXT,
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


def _given(description: str, schema: dict[str, Any], *, always: bool = False) -> dict[str, Any]:
    return {"description": description, "schema": schema, "required": always}


RESPONSE_HEADERS: Final[dict[str, dict[str, Any]]] = {
    "X-Request-Id": _given("The id of the request, the caller's own or ours.", TEXT, always=True),
    "X-Forebay-Node": _given("The node that answered, or was the last to fail.", TEXT),
    "X-Forebay-Model": _given("The model that ran, where an alias or a fallback chose it.", TEXT),
    "X-Queue-Status": _given("Whether it had to wait.", {"enum": ["direct", "queued"]}),
    "X-Queue-Wait-Ms": _given("How long it waited, in milliseconds.", COUNT),
    "X-Queue-Position": _given("Its place on arrival, from 1; only where it waited.",
                               {"type": "integer", "minimum": 1}),
    "X-Estimated-Wait": _given("The wait in whole seconds that was expected on arrival; only where "
                               "it waited and something has been measured.", COUNT),
    "x-ratelimit-limit-requests": _given("What the key may start in a minute.", COUNT),
    "x-ratelimit-remaining-requests": _given("What is left of that.", COUNT),
    "x-ratelimit-reset-requests": _given("When all of it is there again, such as `12s`.", TEXT),
    "x-ratelimit-limit-tokens": _given("What the key may use in a minute, or in a day where less "
                                       "is left of that.", COUNT),
    "x-ratelimit-remaining-tokens": _given("What is left of that.", COUNT),
    "x-ratelimit-reset-tokens": _given("When all of it is there again, such as `6m0s`.", TEXT),
    "Retry-After": _given("Whole seconds after which to try again.",
                          {"type": "integer", "minimum": 1}, always=True),
    "retry-after-ms": _given("The same in milliseconds.",
                             {"type": "integer", "minimum": 1}, always=True),
    "x-should-retry": _given("Whether trying again can help; the stock SDKs obey it.",
                             {"enum": ["true", "false"]}),
    "WWW-Authenticate": _given("How to send a key.", {"const": "Bearer"}, always=True),
}  # fmt: skip


def header_references(names: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Return these response headers by reference."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def parameter_references(names: tuple[str, ...]) -> list[dict[str, str]]:
    """Return these request headers by reference."""
    return [{"$ref": f"#/components/parameters/{name}"} for name in names]


class Operation(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    summary: str
    answer: Any = None
    """The type of a good answer; None for one without JSON."""
    codes: tuple[str, ...] = ()
    """What can go wrong, beside what can always go wrong."""
    status: int = 200
    body: Any = None
    """The type of the request body; None for none."""
    headers: tuple[str, ...] = ("Accept-Language",)
    media: str = "application/json"
    """The content type of a good answer; "" for none."""
    other_media: str = ""
    """Another content type of a good answer, without a schema; "" for none."""
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
    if operation.body is not None:
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
        schema = {} if operation.answer is None else reference(operation.answer)
        answer["content"] = {operation.media: {"schema": schema}}
    if operation.other_media:
        answer["content"][operation.other_media] = {"schema": {}}
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
