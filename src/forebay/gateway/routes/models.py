"""The lists of models: the union over healthy nodes, in the form of each API family."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.routing import Route

from forebay import __version__
from forebay.api.models import AnthropicModelCard, AnthropicModelList, OllamaVersion
from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.routes.json_answer import json_answer
from forebay.nodes.adapters.answers import json_object_if_there, names
from forebay.nodes.adapters.simulated import OWNER as SIMULATED

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from forebay.gateway.hot.model_names import ModelNames
    from forebay.gateway.http.authorization import Authorizer
    from forebay.nodes.registry import Nodes

OLLAMAS = ("modified_at", "size", "digest", "details")
"""Fields of a model that only Ollama's list has."""
CREATED_AT = "1970-01-01T00:00:00Z"
"""Nodes do not report it; clients need a date all the same."""

RUNNING_PATH = "/api/ps"
RUNNING_FIELDS = (
    "size", "digest", "details", "expires_at", "size_vram", "context_length"
)  # fmt: skip
RUNNING_S = 1.0
"""How long the answers of the nodes are cached."""


@dataclass
class ModelRoutes:
    """`/v1/models`, `/v1/models/{id}`, `/api/tags`, `/api/ps` and `/api/version`."""

    authorizer: Authorizer
    nodes: Nodes
    models: ModelNames
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _running: dict[str, dict[str, object]] = field(default_factory=dict)
    _running_until_s: float = 0.0

    def routes(self) -> list[Route]:
        return [
            Route("/v1/models", self.listed),
            Route("/v1/models/{model:path}", self.one),
            Route("/api/tags", self.tags),
            Route("/api/ps", self.running),
            Route("/api/version", self.version),
        ]

    async def listed(self, request: Request) -> Response:
        """List models in OpenAI's form, or in Anthropic's for its clients."""
        caller = self.authorizer.caller(request)
        if "anthropic-version" in request.headers:
            names = self.models.usable(caller.key, "anthropic")
            ends = (names[0], names[-1]) if names else (None, None)
            cards = [_as_anthropic(name) for name in names]
            return json_answer(AnthropicModelList(cards, False, *ends))
        data = [self._as_openai(name) for name in self.models.usable(caller.key, "openai")]
        return json_answer({"object": "list", "data": data})

    async def one(self, request: Request) -> Response:
        caller = self.authorizer.caller(request)
        name = request.path_params["model"]
        if not name:  # a slash at the end
            return await self.listed(request)
        family = "anthropic" if "anthropic-version" in request.headers else "openai"
        if name not in self.models.usable(caller.key, family):
            raise HttpError.of(self.models.unknown(name, caller.key, family, "model"))
        is_anthropic = family == "anthropic"
        return json_answer(_as_anthropic(name) if is_anthropic else self._as_openai(name))

    async def tags(self, request: Request) -> Response:
        """List models in Ollama's form."""
        caller = self.authorizer.caller(request)
        usable = self.models.usable(caller.key, "ollama")
        return json_answer({"models": [_as_ollama(name, self._about(name)) for name in usable]})

    async def running(self, request: Request) -> Response:
        """List loaded models in Ollama's form: the union over its nodes."""
        caller = self.authorizer.caller(request)
        usable = set(self.models.usable(caller.key, "ollama"))
        nodes = self.nodes
        async with self._asking:
            if nodes.now_s() >= self._running_until_s:
                self._running = await self._ask_what_runs()
                self._running_until_s = nodes.now_s() + RUNNING_S
        known = sorted(name for name in self._running if name in usable)
        return json_answer({"models": [self._running[name] for name in known]})

    async def version(self, request: Request) -> Response:
        self.authorizer.anyone(request)
        return json_answer(OllamaVersion(__version__))

    async def _ask_what_runs(self) -> dict[str, dict[str, object]]:
        """Ask the nodes for their loaded models; one that does not answer has none."""
        backends = [
            backend
            for backend in self.nodes
            if backend.told.state == "online" and "ollama" in backend.told.families
        ]
        replies = await asyncio.gather(
            *(backend.fetch("GET", RUNNING_PATH) for backend in backends), return_exceptions=True
        )
        found: dict[str, dict[str, object]] = {}
        for reply in replies:
            if not isinstance(reply, BaseException):
                answer = json_object_if_there(reply, RUNNING_PATH)
                listed = answer.get("models")
                for entry in listed if isinstance(listed, list) else ():
                    if isinstance(entry, dict):
                        kept = {field: entry[field] for field in RUNNING_FIELDS if field in entry}
                        for name in names([entry.get("model") or entry.get("name")]):
                            found.setdefault(name, {"name": name, "model": name, **kept})
        return found

    def _about(self, name: str) -> dict[str, object]:
        """Return what nodes report of a model, or of the one that an alias stands for."""
        return self.nodes.about(self.models.aliased(name))

    def _as_openai(self, name: str) -> dict[str, object]:
        simulated = self.nodes.only_simulated(self.models.aliased(name))
        owner = SIMULATED if simulated else "forebay"
        said = {field: value for field, value in self._about(name).items() if field not in OLLAMAS}
        made = _whole(said.pop("created", 0))
        owned = said.pop("owned_by", owner)
        return {
            "id": name,
            "object": "model",
            "created": made,
            "owned_by": owned if isinstance(owned, str) and owned != SIMULATED else owner,
            **said,
        }


def _as_anthropic(name: str) -> AnthropicModelCard:
    return AnthropicModelCard("model", name, name, CREATED_AT)


def _as_ollama(name: str, said: dict[str, object]) -> dict[str, object]:
    return {
        "name": name,
        "model": name,
        "modified_at": CREATED_AT,
        "size": 0,
        "digest": "",
        "details": {"format": "", "family": "", "families": [], "parameter_size": "",
                    "quantization_level": ""},
        **{field: value for field, value in said.items() if field in OLLAMAS},
    }  # fmt: skip


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
