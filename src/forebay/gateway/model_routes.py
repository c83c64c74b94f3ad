"""The models there are: the union over healthy nodes, in each family's own form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Route

from forebay.gateway.asking import Refused
from forebay.gateway.status_routes import json_answer

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from forebay.gateway.callers import Caller
    from forebay.gateway.parts import Parts

CREATED_AT = "1970-01-01T00:00:00Z"
"""Nodes do not say when a model was made; clients want a date all the same."""


class ModelRoutes:
    """`/v1/models`, `/v1/models/{id}` and `/api/tags`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.routes = [
            Route("/v1/models", self.listed),
            Route("/v1/models/{model:path}", self.one),
            Route("/api/tags", self.tags),
        ]

    async def listed(self, request: Request) -> Response:
        """List models as OpenAI does, or as Anthropic where its client asks."""
        caller = self._parts.asking.caller(request)
        if "anthropic-version" in request.headers:
            data = [_as_anthropic(name) for name in self._names(caller, "anthropic")]
            first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
            return json_answer(
                {"data": data, "has_more": False, "first_id": first, "last_id": last}
            )
        data = [self._as_openai(name) for name in self._names(caller, "openai")]
        return json_answer({"object": "list", "data": data})

    async def one(self, request: Request) -> Response:
        """Show one model."""
        caller = self._parts.asking.caller(request)
        name = request.path_params["model"]
        family = "anthropic" if "anthropic-version" in request.headers else "openai"
        if name not in self._names(caller, family):
            raise Refused(self._parts.models.unknown(name, caller.key, family, "model"))
        is_anthropic = family == "anthropic"
        return json_answer(_as_anthropic(name) if is_anthropic else self._as_openai(name))

    async def tags(self, request: Request) -> Response:
        """List models as Ollama does."""
        caller = self._parts.asking.caller(request)
        return json_answer({"models": [_as_ollama(name) for name in self._names(caller, "ollama")]})

    def _names(self, caller: Caller, family: str) -> list[str]:
        """Return what this caller may ask for, aliases included."""
        return self._parts.models.usable(caller.key, family)

    def _as_openai(self, name: str) -> dict[str, object]:
        target = self._parts.admission.aliases.get(name, name)
        return {
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": "forebay-sim" if self._parts.nodes.only_simulated(target) else "forebay",
        }


def _as_anthropic(name: str) -> dict[str, object]:
    return {"type": "model", "id": name, "display_name": name, "created_at": CREATED_AT}


def _as_ollama(name: str) -> dict[str, object]:
    return {
        "name": name,
        "model": name,
        "modified_at": CREATED_AT,
        "size": 0,
        "digest": "",
        "details": {"format": "", "family": "", "families": [], "parameter_size": "",
                    "quantization_level": ""},
    }  # fmt: skip
