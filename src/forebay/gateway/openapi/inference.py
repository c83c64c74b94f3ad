"""The inference routes of `/openapi.json`: relayed, queued, in three dialects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from forebay.api.inference import AnthropicRequest, OllamaRequest, OpenAIRequest, Question
from forebay.gateway.hot.admission import FAMILIES
from forebay.gateway.openapi.operations import (
    ON_INFERENCE,
    RELAYED,
    error_responses,
    header_references,
    parameter_references,
    resolved,
)
from forebay.gateway.openapi.schemas import reference

if TYPE_CHECKING:
    from forebay.relay.family import Family

CODES_OF_INFERENCE: Final = (
    "unauthorized", "forbidden", "model_not_found", "route_not_supported", "queue_full",
    "user_queue_full", "rate_limited", "deadline_unreachable", "cancelled", "node_failed",
    "queue_disabled", "stream_not_queued", "model_loading", "no_node", "shutting_down",
    "queue_timeout", "first_byte_timeout", "run_timeout", "chunk_timeout",
)  # fmt: skip

CODES_OF_FREE: Final = (
    "unauthorized", "forbidden", "model_not_found", "route_not_supported", "queue_full",
    "rate_limited", "cancelled", "node_failed", "model_loading", "no_node", "shutting_down",
)  # fmt: skip
ON_FREE: Final = ("X-Forebay-Max-Wait", "X-Request-Id", "Accept-Language")

_SUMMARIES: Final = {
    "/v1/chat/completions": "Chat, as OpenAI does it",
    "/v1/completions": "Complete a text, as OpenAI does it",
    "/v1/embeddings": "Embed texts, as OpenAI does it",
    "/v1/responses": "Respond, as OpenAI does it; stored responses are not offered",
    "/v1/rerank": "Rank documents by a query; `/rerank` is the same",
    "/v1/moderations": "Say whether a text is harmful, as OpenAI does it",
    "/v1/audio/transcriptions": "Write down what is said, as OpenAI does it",
    "/v1/audio/translations": "Write down in English what is said, as OpenAI does it",
    "/v1/audio/speech": "Say a text, as OpenAI does it",
    "/v1/images/generations": "Draw pictures, as OpenAI does it",
    "/v1/images/edits": "Change pictures, as OpenAI does it",
    "/v1/images/variations": "Vary a picture, as OpenAI does it",
    "/tokenize": "Cut a text into tokens, as llama.cpp and vLLM do it",
    "/detokenize": "Make tokens into a text again",
    "/v1/messages": "Chat, as Anthropic does it",
    "/v1/messages/count_tokens": "Count the tokens of a chat, as Anthropic does it",
    "/api/chat": "Chat, as Ollama does it",
    "/api/generate": "Complete a text, as Ollama does it",
    "/api/embed": "Embed texts, as Ollama does it",
    "/api/embeddings": "Embed one text, as Ollama once did it",
    "/api/show": "What a model is, as Ollama tells it",
}
_NODE_ANSWER: Final = {"$ref": "#/components/schemas/NodeAnswer"}
_REQUEST_OF: Final = {
    "openai": OpenAIRequest,
    "anthropic": AnthropicRequest,
    "ollama": OllamaRequest,
}
_STREAMS: Final = {
    "openai": "A waiting stream is told its place in comments: `: queued position=3 eta=12`. An "
    "error after the first byte is a last `data:` event, and no `[DONE]` follows.",
    "anthropic": "A waiting stream is told its place in comments: `: queued position=3 eta=12`. An "
    "error after the first byte is a last `event: error`.",
    "ollama": "A stream is lines of JSON; an error after the first byte is a last line with `error`"
    " in it.",
}


def inference_paths() -> dict[str, dict[str, Any]]:
    """Return every inference route, and those that take no slot."""
    paths = {
        route: {"post": _operation(family, route)} for family in FAMILIES for route in family.routes
    }
    return paths | {
        route: {"post": _free_operation(family, route)}
        for family in FAMILIES
        for route in family.free_routes
    }


def _operation(family: Family, route: str) -> dict[str, Any]:
    return {
        "operationId": route.strip("/").replace("/", "_"),
        "tags": ["inference"],
        "summary": _SUMMARIES[route],
        "description": _description(family, route),
        "parameters": parameter_references(ON_INFERENCE),
        "requestBody": {
            "required": True,
            "content": _content(family, route),
        },
        "responses": _responses(family, route),
    }


def _free_operation(family: Family, route: str) -> dict[str, Any]:
    return _operation(family, route) | {
        "description": "Passed to a node without a slot, whatever waits. Without `model` it goes "
        "to the only model; where there are several, that is an error.",
        "parameters": parameter_references(ON_FREE),
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": reference(Question)}},
        },
        "responses": _responses(family, route, CODES_OF_FREE),
    }


def _description(family: Family, route: str) -> str:
    words = "Passed to a node byte for byte."
    if route in family.media_routes:
        return f"{words} The answer is whatever the node makes: JSON, text, sound or pictures."
    return words if route in family.unary_routes else f"{words} {_STREAMS[family.name]}"


def _content(family: Family, route: str) -> dict[str, Any]:
    schema = {"schema": reference(_REQUEST_OF[family.name])}
    content = {"application/json": schema}
    return content | {"multipart/form-data": schema} if route in family.media_routes else content


def _responses(
    family: Family, route: str, codes: tuple[str, ...] = CODES_OF_INFERENCE
) -> dict[str, Any]:
    """Return our own errors, and the answers of nodes: anything but what we take for a failure."""
    answer = {"schema": _NODE_ANSWER}
    kinds = ["application/json", family.stream_type.decode()]
    if route in family.media_routes:
        kinds.append("*/*")
    errors = error_responses(route, codes)
    for status in ("400", "404", "413", "500", "502", "504"):
        if status in errors:
            errors[status] = _or_the_nodes(resolved(errors[status]))
    return {
        "200": {
            "description": "The node's answer, whole or streamed.",
            "headers": header_references(RELAYED),
            "content": dict.fromkeys(kinds, answer),
        },
        **errors,
        "4XX": _passed_through("The node's own refusal, passed through."),
        "5XX": _passed_through("The node's own error, tried once more (not 501), passed through."),
    }


def _or_the_nodes(response: dict[str, Any]) -> dict[str, Any]:
    """Return a response of ours that may also be one of the node, passed through."""
    (ours,) = response["content"].values()
    either = {"anyOf": [ours["schema"], _NODE_ANSWER]}
    return {
        **response,
        "description": f"{response['description']}\n- or what the node says, passed through",
        "content": {"application/json": {"schema": either}},
    }


def _passed_through(description: str) -> dict[str, Any]:
    return {
        "description": description,
        "headers": header_references(RELAYED),
        "content": {"application/json": {"schema": _NODE_ANSWER}},
    }
