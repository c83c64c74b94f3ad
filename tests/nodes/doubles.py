"""Doubles of servers that cannot run here: they replay the JSON of the vendors' documentation."""

from collections.abc import Mapping

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

Answers = Mapping[str, object]
"""Path to answer: a JSON value is a 200, bytes are sent as they are, a `Response` too."""

OLLAMA: Answers = {
    "/api/version": {"version": "0.40.12"},
    "/api/tags": {
        "models": [
            {
                "name": "gemma4:latest",
                "model": "gemma4:latest",
                "modified_at": "2025-10-03T23:34:03.409490317-07:00",
                "size": 3338801804,
                "digest": "a2af6cc3eb7fa8be8504abaf9b04e88f17a119ec3f04a3addf55f92841195f5a",
                "details": {"format": "gguf", "family": "gemma4", "parameter_size": "8.0B"},
            },
            {"name": "all-minilm:22m", "model": "all-minilm:22m", "size": 45960996},
        ]
    },
    "/api/ps": {
        "models": [
            {
                "name": "gemma4:latest",
                "model": "gemma4:latest",
                "size": 6591830464,
                "expires_at": "2025-10-17T16:47:07.93355-07:00",
                "size_vram": 5333539264,
                "context_length": 4096,
            }
        ]
    },
    "/v1/models": {
        "object": "list",
        "data": [{"id": "gemma4:latest", "object": "model", "owned_by": "library"}],
    },
}

VLLM: Answers = {
    "/health": b"",
    "/version": {"version": "0.32.0"},
    "/v1/models": {
        "object": "list",
        "data": [
            {
                "id": "Qwen/Qwen3-8B",
                "object": "model",
                "created": 1686935002,
                "owned_by": "vllm",
                "root": "Qwen/Qwen3-8B",
                "parent": None,
                "max_model_len": 40960,
            },
            {"id": "sql-lora", "object": "model", "owned_by": "vllm", "parent": "Qwen/Qwen3-8B"},
        ],
    },
}

VLLM_IN_DEVELOPMENT: Answers = {
    **VLLM,
    "/server_info": {"vllm_config": {"scheduler_config": {"max_num_seqs": 256}}},
}

LM_STUDIO: Answers = {
    "/api/v0/models": {
        "object": "list",
        "data": [
            {
                "id": "qwen2-vl-7b-instruct",
                "object": "model",
                "type": "vlm",
                "arch": "qwen2_vl",
                "compatibility_type": "mlx",
                "state": "not-loaded",
                "max_context_length": 32768,
            },
            {
                "id": "meta-llama-3.1-8b-instruct",
                "object": "model",
                "type": "llm",
                "state": "loaded",
                "max_context_length": 131072,
            },
        ],
    },
    "/api/v1/models": {
        "models": [
            {"key": "qwen2-vl-7b-instruct", "loaded_instances": []},
            {
                "key": "meta-llama-3.1-8b-instruct",
                "loaded_instances": [
                    {
                        "id": "meta-llama-3.1-8b-instruct",
                        "config": {"context_length": 4096, "parallel": 4},
                    }
                ],
            },
        ]
    },
    "/v1/models": {
        "object": "list",
        "data": [
            {"id": "qwen2-vl-7b-instruct", "object": "model", "owned_by": "organization_owner"}
        ],
    },
    # It answers 200 to routes that it does not have.
    "/api/version": {"error": "Unexpected endpoint or method. (GET /api/version)"},
}

LLAMA_CPP_LOADING: Answers = {
    path: Response(
        b'{"error":{"message":"Loading model","type":"unavailable_error","code":503}}',
        503,
        {"server": "llama.cpp"},
    )
    for path in ("/health", "/props", "/v1/models")
}

LLAMA_CPP_ROUTER: Answers = {
    "/health": {"status": "ok"},
    "/props": {"role": "router"},
    "/v1/models": {
        "object": "list",
        "data": [
            {"id": "small", "owned_by": "llamacpp", "status": {"value": "loaded"}},
            {"id": "large", "owned_by": "llamacpp", "status": {"value": "unloaded"}},
        ],
    },
}


def double(answers: Answers) -> Starlette:
    """Make a server that answers so, and 404 elsewhere."""

    async def answer(request: Request) -> Response:
        value = answers[request.url.path]
        if isinstance(value, Response):
            return value
        body = value if isinstance(value, bytes) else msgspec.json.encode(value)
        return Response(body, media_type="application/json")

    return Starlette(routes=[Route(path, answer) for path in answers])
