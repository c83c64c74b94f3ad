"""The errors of `/openapi.json`: made from `codes.py`, in the dialect of each route."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from forebay.gateway.errors.codes import CODES
from forebay.gateway.errors.rendering import LISTED, family_of
from forebay.gateway.openapi.headers import header_references
from forebay.gateway.openapi.schemas import reference

if TYPE_CHECKING:
    from collections.abc import Iterable

ANYWHERE: Final = (
    "invalid_request", "unsupported", "forbidden_host", "body_too_large", "headers_too_large",
    "request_timeout", "too_many_connections", "internal_error",
)  # fmt: skip
"""What any request may run into, whatever it asks for."""
WITH_A_KEY: Final = ("unauthorized",)
FOR_ADMINS: Final = ("unauthorized", "forbidden")

_ERRORS_OF: Final = {
    "openai": ("OpenAIError",),
    "anthropic": ("AnthropicError",),
    "ollama": ("OllamaError",),
    "either": ("OpenAIError", "AnthropicError"),
}
_CHOSEN: Final = {"queue_full": "queue.full_status", "queue_timeout": "queue.timeout_status"}


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
    if codes == ["unauthorized"]:
        names.append("WWW-Authenticate")
    response: dict[str, Any] = {
        "description": "\n".join(
            f"- `{code}`: {CODES[code].meaning}{_note(code)}" for code in codes
        )
    }
    if names:
        response["headers"] = header_references(tuple(names))
    schemas = [reference(name) for name in _ERRORS_OF[family]]
    if "prompt_queue_full" in codes:  # specification 2 has a body of its own
        schemas.append(reference("PromptQueueFull"))
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    response["content"] = {"application/json": {"schema": schema}}
    return response


def _note(code: str) -> str:
    """Say where the operator may choose another status."""
    return f" (The status is `{_CHOSEN[code]}`.)" if code in _CHOSEN else ""
