"""`/openapi.json`: the HTTP surface, described for programs (OpenAPI 3.1).

Written by hand where words matter and made from `codes.py` and the families where facts do; a
test compares it with the routes that exist.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from forebay import __version__
from forebay.api.errors import AnthropicError, OllamaError, OpenAIError
from forebay.api.inference import AnthropicRequest, OllamaRequest, OpenAIRequest, Question
from forebay.api.sessions import PromptQueueFull
from forebay.gateway.hot.admission import FAMILIES
from forebay.gateway.openapi import general, jobs, records, sessions
from forebay.gateway.openapi.inference import inference_paths
from forebay.gateway.openapi.operations import (
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    operation_paths,
    shared_responses,
)
from forebay.gateway.openapi.schemas import NODE_ANSWER, component_schemas

if TYPE_CHECKING:
    from collections.abc import Iterator

DESCRIPTION = """\
The queue in front of your LLMs: one endpoint that speaks the OpenAI, Anthropic and Ollama \
dialects, with fair, bounded waiting in front of every node.

Inference bodies go to the node byte for byte; the schemas here type only the fields that the \
gateway reads itself. A body may be gzip (`Content-Encoding: gzip`): it is inflated. Paths are \
understood as clients write them: with a `/` at the end, with `/v1` twice or not at all, and \
Azure's `/openai/deployments/{model}/chat/completions`, where the model in the path counts. Below \
`/v1/audio/` and `/v1/images/` any path is passed on.

Where keys are configured every route but `/`, `/health`, `/ready`, `/capabilities`, \
`/api/version` and `/openapi.json` needs one; routes under `/admin` need an admin key, or without \
any keys a caller on the same machine; routes under `/guard` need the guards' token. Errors are \
told in the dialect of the route, in English, or in Japanese when `Accept-Language` prefers it."""

TAGS = {
    "inference": "Relayed to a node, queued while every slot is taken.",
    "models": "The models that can be used.",
    "queue": "Waiting and running requests.",
    "jobs": "Durable work that needs no connected client.",
    "status": "Health, readiness, metrics and the dashboard.",
    "sessions": "Conversations that the gateway holds, with a bounded queue of prompts each.",
    "batches": "Many requests in a file, run on idle slots, answered in a file.",
    "admin": "Nodes, keys and settings, while the gateway runs.",
    "guards": "Where `forebay node` registers the node that it guards; with the token of "
    "`guard.token_env`, not with a key.",
}

AREAS = (general, jobs, sessions, records)
BODIES = (
    OpenAIRequest, AnthropicRequest, OllamaRequest, Question, OpenAIError, AnthropicError,
    OllamaError, PromptQueueFull,
)  # fmt: skip
"""What no single operation names."""


@cache
def document() -> dict[str, object]:
    """Return the OpenAPI description of this gateway."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Forebay",
            "version": __version__,
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": words} for name, words in TAGS.items()],
        "security": [{}, {"bearer": []}, {"apiKey": []}],
        "paths": _paths(),
        "components": {
            "schemas": {**component_schemas(_bodies()), "NodeAnswer": NODE_ANSWER},
            "parameters": REQUEST_HEADERS,
            "headers": RESPONSE_HEADERS,
            "responses": shared_responses(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "A gateway key."},
                "apiKey": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "x-api-key",
                    "description": "A gateway key, as Anthropic's clients send it.",
                },
            },
        },
    }


def routes() -> list[str]:
    """Return the paths that there are."""
    areas = {operation.path for area in AREAS for operation in area.OPERATIONS}
    families = (route for one in FAMILIES for route in (*one.routes, *one.free_routes))
    return sorted(areas.union(families))


def _bodies() -> Iterator[Any]:
    yield from BODIES
    for area in AREAS:
        for operation in area.OPERATIONS:
            yield from (body for body in (operation.answer, operation.body) if body is not None)


def _paths() -> dict[str, dict[str, Any]]:
    return inference_paths() | operation_paths(one for area in AREAS for one in area.OPERATIONS)
